"""An `Llm` without a neural network: it recognises commands and answers with templates."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing

from core.ids import new_id
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from engines.llm.intents.follow_up import (
    NO_REFERENCE,
    UNRESOLVED,
    CommandHistory,
    completed,
    decoded_result,
)
from engines.llm.intents.grammar import MAX_CHARS, MAX_GRAMMARS, Grammar, IntentMatch, grammar
from engines.llm.intents.home_names import HOUSE_INTENTS, INTENT, HomeNames, names_of
from engines.llm.intents.language import languages, supported
from engines.llm.intents.replies import ReplyTemplates, replies
from engines.llm.intents.sentences import SAME_ACTION, SAME_TARGETS

CALL_PREFIX = "intent"
"Prefix of the ids of its tool calls. By it `hybrid` knows that the templates answer their results."

MAX_PIECES = 4  # pieces of one sentence; with more pauses it is no command
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
"Characters after which an answer is complete."

PAUSES = " .,;:!?…，。！？"
"Characters that a recogniser puts behind a piece, as if it were a whole sentence."

MAX_UNHEARD_WORDS = 3
"Longest beginning of an answer, in words, that nobody can have understood: half a second."

INTENTS_WITHOUT_SKILL = (
    "NoWeather",
    "NoReminder",
    "NoAlarm",
    "NoCall",
    "NoDistance",
    "NoMusicSearch",
)
"Intents that are understood but answered with: there is no skill for it."

HOUSE_FALLBACK_INTENTS = (*INTENTS_WITHOUT_SKILL, "NoSwitch", "NoHeaterPercent")
"Intents without a skill of ours that go to the house tool all the same: it may have one."

HOUSE_SENTENCE = "House"
"Intent of a sentence that no template matches, when there is a house tool to ask."

MAX_INLINE_CHARS = 100  # up to here a match takes a few ms; the event loop can wait for that


class IntentsLlm:
    """Turns a sentence into tool calls, and their results into a sentence.

    It keeps no state of the home. The house tool is a tool with `ToolSpec.house`: it takes whole
    sentences, such as Home Assistant's conversation agent.
    """

    name = "intents"
    context_tokens: int | None = None

    def __init__(self) -> None:
        self.languages = languages()
        self._loaded: dict[tuple[str, HomeNames], tuple[Grammar, ReplyTemplates]] = {}

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Loads the grammar and replies of `language` in a thread. This takes up to a second."""
        await self._load(supported(language), names_of(tools))

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
        has_model: bool = False,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Yields the tool calls for the last sentence, or its answer once their results exist.

        has_model: a language model answers all other sentences, so that none has to be added.
        """
        code, names = supported(language), names_of(tools)
        matcher, answers = await self._load(code, names)
        history, pieces, results = _last_exchange(messages)
        found = await _understand(matcher, pieces)
        if found is not None:
            found = completed(found, CommandHistory(history, tools), names)
        is_unclear = found is None or (bool(names.house) and found.intent == NO_REFERENCE)
        if (
            found is None
            or is_unclear
            or (_is_for_house(messages, tools) and not _has_calls(found, names))
        ):
            found = _house_command(pieces, names)
        if found is None:
            may_help = any(pieces) and bool(names.tools) and not has_model
            yield TextDelta(answers.not_understood(_spoken(history), may_help=may_help))
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
        """Returns no tools (see `ToolFilterLlm`): there is no prompt that they could be part of."""
        return ()

    async def steps(
        self, sentence: str, tools: Sequence[ToolSpec], *, language: str
    ) -> list[TextDelta | ToolCall] | None:
        """Returns the calls for a sentence, or its answer if it needs none.

        None: the sentence is not understood, and there is no house tool to ask.
        """
        names = names_of(tools)
        matcher, _ = await self._load(supported(language), names)
        found = await _understand(matcher, [sentence])
        if found is not None:
            found = completed(found, CommandHistory((), tools), names)
        is_unclear = found is None or found.intent in UNRESOLVED
        if is_unclear and _house_command([sentence], names) is None:
            return None
        reply = self.reply([Message("user", sentence)], tools, language=language)
        async with aclosing(reply) as steps:
            return [step async for step in steps]

    async def understands(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """Returns True if `reply` would carry out or answer the last sentence.

        False if it would say that it did not understand. Also False if it would say that it has no
        skill for it, while there are other tools that may help. Always True while the house tool
        waits for the answer to a question of its own.
        """
        if _is_asking(tools):
            return True
        if language.partition("-")[0] not in self.languages:
            return False
        names = names_of(tools)
        matcher, _ = await self._load(supported(language), names)
        history, pieces, _ = _last_exchange(messages)
        found = await _understand(matcher, pieces)
        if found is not None:
            found = completed(found, CommandHistory(history, tools), names)
        if found is None:
            return False
        has_more = any(not tool.name.startswith(INTENT) for tool in tools)
        unanswered = (*INTENTS_WITHOUT_SKILL, *UNRESOLVED)
        return not (has_more and any(step.intent in unanswered for step in found.steps))

    async def may_become_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """Returns whether more words could make the last sentence one that `understands` accepts.

        With a house tool always True: what it knows is not known here.
        """
        if any(tool.house is not None for tool in tools):
            return True
        if language.partition("-")[0] not in self.languages:
            return False
        matcher, _ = await self._load(supported(language), names_of(tools))
        _, pieces, _ = _last_exchange(messages)
        return matcher.may_become_command(" ".join(pieces))

    async def _load(self, language: str, names: HomeNames) -> tuple[Grammar, ReplyTemplates]:
        loaded = self._loaded.get((language, names))
        if loaded is None:
            loaded = await asyncio.to_thread(_load, language, names)
            while len(self._loaded) >= MAX_GRAMMARS:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[language, names] = loaded
        return loaded


async def _understand(matcher: Grammar, pieces: Sequence[str]) -> IntentMatch | None:
    if len(pieces) == 1 and len(pieces[0]) < MAX_INLINE_CHARS:
        found = matcher.understand(pieces[0])
        return found or await asyncio.to_thread(matcher.understand_loosely, pieces[0])
    return await asyncio.to_thread(_understand_pieces, matcher, pieces)


def _understand_pieces(matcher: Grammar, pieces: Sequence[str]) -> IntentMatch | None:
    """Returns the meaning of a sentence that may have been cut at pauses.

    Pieces are joined, unless the last one and those before it are commands of their own. Then the
    earlier command was left unanswered for a reason, and the later one must not trigger it.
    """
    for start in range(len(pieces)):
        found = matcher.understand(" ".join(pieces[start:]))
        if found is None:
            continue
        if start and matcher.ends_negated(pieces[start - 1]):
            return None  # "don't" and, after a pause, "turn on the light"
        if start and found.intent == SAME_ACTION:  # "turn on the kitchen", "and bedroom lights"
            whole = matcher.understand_loosely(" ".join(pieces[start - 1 :]))
            if whole is not None:
                return whole
        alone = matcher.understand(pieces[-1]) if start < len(pieces) - 1 else None
        if alone is not None and alone.intent in {SAME_ACTION, SAME_TARGETS}:
            alone = None  # "and the bedroom" belongs to the piece before it
        if alone is not None and matcher.understand(" ".join(pieces[start:-1])):
            return alone
        return found
    return matcher.understand_loosely(" ".join(pieces))


def _is_asking(tools: Sequence[ToolSpec]) -> bool:
    return any(tool.house is not None and tool.house.is_asking for tool in tools)


def _is_for_house(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
    """Returns True if the house tool has asked for this sentence, or was called for it already."""
    houses = {tool.name for tool in tools if tool.house is not None}
    for message in reversed(messages):
        if message.role == "user":
            break
        if any(call.name in houses for call in message.tool_calls):
            return True
    return _is_asking(tools)


def _has_calls(found: IntentMatch, names: HomeNames) -> bool:
    return any(_call(step, names) is not None for step in found.steps)


def _house_command(pieces: Sequence[str], names: HomeNames) -> IntentMatch | None:
    """Returns a command for the house tool; None without such a tool or without text.

    It may know what no template matches: its owner adds sentences, scripts and scenes.
    """
    text = " ".join(pieces)[:MAX_CHARS].strip()
    return IntentMatch(HOUSE_SENTENCE, text=text) if names.house and text else None


def _call(step: IntentMatch, names: HomeNames) -> ToolCall | None:
    """Returns the tool call for a command; None if it needs only an answer."""
    to_house = (HOUSE_SENTENCE, *HOUSE_INTENTS, *HOUSE_FALLBACK_INTENTS)
    if names.house and step.intent in to_house:
        meant = {"intent": step.intent, "slots": dict(step.slots)}
        arguments: dict[str, object] = {"text": step.text}
        if step.intent in HOUSE_INTENTS:
            arguments |= meant
        if step.is_follow_up:
            arguments["is_follow_up"] = True  # its text does not say which devices are meant
        return ToolCall(new_id(CALL_PREFIX), names.house, arguments)
    if step.intent in names.tools:
        return ToolCall(new_id(CALL_PREFIX), step.intent, dict(step.slots))
    return None


def _load(language: str, names: HomeNames) -> tuple[Grammar, ReplyTemplates]:
    return grammar(language, names), replies(language)


def _last_exchange(
    messages: Sequence[Message],
) -> tuple[Sequence[Message], list[str], list[Mapping[str, object]]]:
    """Returns the messages before the user's sentence, the sentence since the last answer, and the
    results of its tool calls.

    The sentence comes in pieces, oldest first; the results come in the order of the calls.
    """
    results: dict[str, Mapping[str, object]] = {}
    order: list[str] = []
    pieces: list[str] = []
    begin = len(messages)
    for index in reversed(range(len(messages))):
        message = messages[index]
        if message.role == "user":
            text = message.text.rstrip(PAUSES) if pieces else message.text
            pieces.insert(0, text)
            begin = index
        elif pieces and not _is_between_pieces(message):
            break
        elif message.role == "tool":
            results[message.call_id] = decoded_result(message.text)
        elif message.tool_calls:
            order = [call.call_id for call in message.tool_calls] + order
    if not pieces:
        return messages, [], []
    return (
        messages[:begin],
        pieces[-MAX_PIECES:],
        [results.get(call, {"error": "failed"}) for call in order],
    )


def _is_between_pieces(message: Message) -> bool:
    """Returns True for a message between two pieces of a sentence that answers neither.

    It holds instructions, or the first words of an answer that stopped because the user went on.
    """
    if message.role != "assistant" or message.tool_calls:
        return message.role == "system"
    text = message.text.rstrip()
    return len(text.split()) <= MAX_UNHEARD_WORDS and not text.endswith(SENTENCE_ENDS)


def _spoken(messages: Sequence[Message]) -> Iterator[str]:
    return (message.text for message in messages if message.role == "assistant")


def _answers(
    found: IntentMatch,
    results: Sequence[Mapping[str, object]],
    answers: ReplyTemplates,
    names: HomeNames,
) -> Iterator[str]:
    """Yields one sentence for each step, with a space in front of all but the first.

    If the house tool returned a sentence (`speech`), that one is used.
    """
    waiting = iter(results)
    for position, step in enumerate(found.steps):
        call = _call(step, names)
        result = {} if call is None else next(waiting, {})
        speech = result.get("speech") if call is not None and call.name == names.house else None
        text = speech if isinstance(speech, str) and speech else answers.answer(step, result)
        yield f" {text}" if position else text
