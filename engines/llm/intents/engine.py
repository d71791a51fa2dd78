"""A language model that is none: it recognises commands and answers with templates."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from core.ids import new_id
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from engines.llm.intents.grammar import MAX_CHARS, MAX_GRAMMARS, Grammar, IntentMatch, grammar
from engines.llm.intents.home_names import HOUSE_INTENTS, INTENT, HomeNames, names_of
from engines.llm.intents.language import languages, supported
from engines.llm.intents.replies import ReplyTemplates, replies

CALL_PREFIX = "intent"
"How ids of its tool calls begin: their results are answered by it, whoever answers otherwise."

MAX_PIECES = 4  # of one sentence; whoever pauses more often says something else
PAUSES = " .,;:!?…"
"What recognition puts behind a piece, as if it were a sentence."

SILENCED_WORDS = 3
"Of an answer: half a second, in which nobody can have understood it."

CANNOT = ("NoWeather", "NoReminder", "NoAlarm", "NoCall", "NoDistance", "NoMusicSearch")
"What is understood, and told that there is no skill for it."

LEFT_TO_HOUSE = (*CANNOT, "NoSwitch", "NoHeaterPercent")
"What the house is asked about all the same: perhaps it has a way."

TO_HOUSE = "House"
"What is not understood, where there is a house to ask."

LONG_CHARS = 100  # up to here a match takes a few ms; the event loop can wait for that


class IntentsLlm:
    """Sentence in, tool calls out; tool results in, sentence out. Holds no state of the home."""

    name = "intents"
    context_tokens: int | None = None

    def __init__(self) -> None:
        self.languages = languages()
        self._loaded: dict[tuple[str, HomeNames], tuple[Grammar, ReplyTemplates]] = {}

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Load what `language` needs, in a thread: the first load takes up to a second."""
        await self._load(supported(language), names_of(tools))

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Tool calls for the last sentence, or the answer to it once their results are there."""
        code, names = supported(language), names_of(tools)
        known, answers = await self._load(code, names)
        pieces, results = _last_exchange(messages)
        found = await _understand(known, pieces)
        if found is None or (_is_for_house(messages, tools) and not _has_calls(found, names)):
            found = _for_house(pieces, names)
        if found is None:
            yield TextDelta(answers.not_understood())
            return
        if not results:
            calls = [call for step in found.steps if (call := _call(step, names)) is not None]
            for call in calls:
                yield call
            if calls:
                return
        for text in _answers(found, results, answers, names):
            yield TextDelta(text)

    def declared(self, tools: Sequence[ToolSpec], *, language: str) -> Sequence[ToolSpec]:
        """See `Declares`: it has no context."""
        return ()

    async def steps(
        self, sentence: str, tools: Sequence[ToolSpec], *, language: str
    ) -> list[TextDelta | ToolCall] | None:
        """The calls that a sentence comes to, or the answer that needs none. None: it is not
        understood, and there is no house to ask."""
        names = names_of(tools)
        known, _ = await self._load(supported(language), names)
        if await _understand(known, [sentence]) is None and _for_house([sentence], names) is None:
            return None
        reply = self.reply([Message("user", sentence)], tools, language=language)
        async with aclosing(reply) as steps:
            return [step async for step in steps]

    async def understands(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """Whether `reply` would do or answer something, and not say that it did not understand; or
        that it cannot, where there are tools beside the home's that perhaps can. A house that has
        asked something back gets what it does not understand, too."""
        if _is_asking(tools):
            return True
        if language.partition("-")[0] not in self.languages:
            return False
        known, _ = await self._load(supported(language), names_of(tools))
        pieces, _ = _last_exchange(messages)
        found = await _understand(known, pieces)
        if found is None:
            return False
        has_more = any(not tool.name.startswith(INTENT) for tool in tools)
        return not (has_more and any(step.intent in CANNOT for step in found.steps))

    async def _load(self, language: str, names: HomeNames) -> tuple[Grammar, ReplyTemplates]:
        loaded = self._loaded.get((language, names))
        if loaded is None:
            loaded = await asyncio.to_thread(_load, language, names)
            while len(self._loaded) >= MAX_GRAMMARS:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[language, names] = loaded
        return loaded


async def _understand(known: Grammar, pieces: Sequence[str]) -> IntentMatch | None:
    if len(pieces) == 1 and len(pieces[0]) < LONG_CHARS:
        found = known.understand(pieces[0])
        return found or await asyncio.to_thread(known.misheard, pieces[0])
    return await asyncio.to_thread(_of_pieces, known, pieces)


def _of_pieces(known: Grammar, pieces: Sequence[str]) -> IntentMatch | None:
    """A sentence that was cut at a pause is one. Two that stand for themselves are not: the first
    was left unanswered for a reason, and must not be done by the second."""
    for start in range(len(pieces)):
        found = known.understand(" ".join(pieces[start:]))
        if found is None:
            continue
        alone = known.understand(pieces[-1]) if start < len(pieces) - 1 else None
        if alone is not None and known.understand(" ".join(pieces[start:-1])):
            return alone
        return found
    return known.misheard(" ".join(pieces))


def _is_asking(tools: Sequence[ToolSpec]) -> bool:
    return any(tool.house is not None and tool.house.is_asking for tool in tools)


def _is_for_house(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
    """A house has asked for this sentence, or has answered it already."""
    houses = {tool.name for tool in tools if tool.house is not None}
    for message in reversed(messages):
        if message.role == "user":
            break
        if any(call.name in houses for call in message.tool_calls):
            return True
    return _is_asking(tools)


def _has_calls(found: IntentMatch, names: HomeNames) -> bool:
    return any(_call(step, names) is not None for step in found.steps)


def _for_house(pieces: Sequence[str], names: HomeNames) -> IntentMatch | None:
    """What no sentence fits, the house may know: its owner adds sentences, scripts, scenes."""
    text = " ".join(pieces)[:MAX_CHARS].strip()
    return IntentMatch(TO_HOUSE, text=text) if names.house and text else None


def _call(step: IntentMatch, names: HomeNames) -> ToolCall | None:
    """None: it needs no tool, only an answer."""
    to_house = (TO_HOUSE, *HOUSE_INTENTS, *LEFT_TO_HOUSE)
    if names.house and step.intent in to_house:
        meant = {"intent": step.intent, "slots": dict(step.slots)}
        arguments = {"text": step.text, **(meant if step.intent in HOUSE_INTENTS else {})}
        return ToolCall(new_id(CALL_PREFIX), names.house, arguments)
    if step.intent in names.tools:
        return ToolCall(new_id(CALL_PREFIX), step.intent, dict(step.slots))
    return None


def _load(language: str, names: HomeNames) -> tuple[Grammar, ReplyTemplates]:
    return grammar(language, names), replies(language)


def _last_exchange(
    messages: Sequence[Message],
) -> tuple[list[str], list[Mapping[str, Any]]]:
    """What the user said since the last answer, piece by piece, and the results of the tools called
    for it, in call order."""
    results: dict[str, Mapping[str, Any]] = {}
    order: list[str] = []
    pieces: list[str] = []
    for message in reversed(messages):
        if message.role == "user":
            text = message.text.rstrip(PAUSES) if pieces else message.text
            pieces.insert(0, text)
        elif pieces and not _is_passing(message):
            break
        elif message.role == "tool":
            results[message.call_id] = _result(message.text)
        elif message.tool_calls:
            order = [call.call_id for call in message.tool_calls] + order
    if not pieces:
        return [], []
    return pieces[-MAX_PIECES:], [results.get(call, {"error": "failed"}) for call in order]


def _is_passing(message: Message) -> bool:
    """It stands between two pieces of a sentence, and is no answer to the first: instructions, or
    what was silenced after a word or two because the user just went on."""
    if message.role != "assistant" or message.tool_calls:
        return message.role == "system"
    text = message.text.rstrip()
    return len(text.split()) <= SILENCED_WORDS and not text.endswith((".", "!", "?", "…"))


def _result(text: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"error": "failed"}


def _answers(
    found: IntentMatch,
    results: Sequence[Mapping[str, Any]],
    answers: ReplyTemplates,
    names: HomeNames,
) -> Iterator[str]:
    """One sentence for each step; a space keeps them apart when they are joined. What a house says
    itself is said."""
    waiting = iter(results)
    for position, step in enumerate(found.steps):
        call = _call(step, names)
        result = {} if call is None else next(waiting, {})
        said = result.get("speech") if call is not None and call.name == names.house else None
        text = said if isinstance(said, str) and said else answers.answer(step, result)
        yield f" {text}" if position else text
