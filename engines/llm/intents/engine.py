"""Language model engine without a neural network: understands commands by templates."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing

from core.conversation.ids import new_id
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from engines.llm.intents.follow_up import (
    NO_REFERENCE,
    UNRESOLVED_INTENTS,
    CommandHistory,
    decode_result,
    resolve_references,
)
from engines.llm.intents.grammar import MAX_CHARS, MAX_GRAMMARS, Grammar, IntentMatch, grammar
from engines.llm.intents.home_names import HOUSE_INTENTS, INTENT_PREFIX, HomeNames, names_of
from engines.llm.intents.language import languages, supported_language
from engines.llm.intents.replies import ReplyTemplates, replies
from engines.llm.intents.sentences import SAME_ACTION, SAME_TARGETS

CALL_PREFIX = "intent"
"Prefix of this engine's tool call ids. `hybrid` recognises calls of the templates by it."

MAX_PIECES = 4  # of one sentence, separated by pauses; a command has fewer
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
"Characters after which an answer is complete."

PAUSES = " .,;:!?…，。！？"
"Characters that a recogniser writes after each piece of a sentence."

MAX_UNHEARD_WORDS = 3
"Longest interrupted answer, in words, that counts as not heard: about half a second of speech."

INTENTS_WITHOUT_SKILL = (
    "NoWeather",
    "NoReminder",
    "NoAlarm",
    "NoCall",
    "NoDistance",
    "NoMusicSearch",
)
"Intents that are understood, but only answered: there is no tool for them."

HOUSE_FALLBACK_INTENTS = (*INTENTS_WITHOUT_SKILL, "NoSwitch", "NoHeaterPercent")
"Intents without a tool of ours that are passed to the house tool, which may know them."

HOUSE_SENTENCE = "House"
"Intent of a sentence that no template matches, when there is a house tool to ask."

MAX_INLINE_CHARS = 100  # matching a text of this length may block the event loop for a few ms


class IntentsLlm:
    """An `Llm` that converts a sentence to tool calls, and their results to a sentence.

    It has no state of the home. The "house tool" is a tool with `ToolSpec.house`, such as Home
    Assistant's conversation agent: its argument is a whole sentence.
    """

    name = "intents"
    context_tokens: int | None = None

    def __init__(self) -> None:
        self.languages = languages()
        self._loaded: dict[tuple[str, HomeNames], tuple[Grammar, ReplyTemplates]] = {}

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Loads the grammar and replies of `language` in a thread, in up to a second."""
        await self._load(supported_language(language), names_of(tools))

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
        has_model: bool = False,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Yields the tool calls for the last sentence, or its answer if their results are there.

        has_model: True if a language model answers other sentences. If not, the first answer to an
        unknown sentence explains how to add one.
        """
        code, names = supported_language(language), names_of(tools)
        matcher, answers = await self._load(code, names)
        history, pieces, results = _last_exchange(messages)
        command = await _understand(matcher, pieces)
        if command is not None:
            command = resolve_references(command, CommandHistory(history, tools), names)
        is_unclear = command is None or (bool(names.house) and command.intent == NO_REFERENCE)
        if (
            command is None
            or is_unclear
            or (_is_for_house(messages, tools) and not _has_calls(command, names))
        ):
            command = _house_command(pieces, names)
        if command is None:
            may_help = any(pieces) and bool(names.tools) and not has_model
            yield TextDelta(answers.not_understood(_past_answers(history), may_help=may_help))
            return
        if not results:
            calls = [call for step in command.steps if (call := _call(step, names)) is not None]
            for call in calls:
                yield call
            if calls:
                return
        for text in _answers(command, results, answers, names):
            yield TextDelta(text)

    def filter_tools(self, tools: Sequence[ToolSpec], *, language: str) -> Sequence[ToolSpec]:
        """Returns no tools (see `ToolFilterLlm`), because this engine has no prompt."""
        return ()

    async def steps(
        self, sentence: str, tools: Sequence[ToolSpec], *, language: str
    ) -> list[TextDelta | ToolCall] | None:
        """Returns the calls for a sentence, or its answer if it needs no call.

        None: the sentence is not understood, and there is no house tool.
        """
        names = names_of(tools)
        matcher, _ = await self._load(supported_language(language), names)
        command = await _understand(matcher, [sentence])
        if command is not None:
            command = resolve_references(command, CommandHistory((), tools), names)
        is_unclear = command is None or command.intent in UNRESOLVED_INTENTS
        if is_unclear and _house_command([sentence], names) is None:
            return None
        reply = self.reply([Message("user", sentence)], tools, language=language)
        async with aclosing(reply) as steps:
            return [step async for step in steps]

    async def understands(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """Returns True if `reply` would carry out or answer the last sentence.

        False if it would say that it did not understand, or that there is no tool for the request
        although a language model may have one.
        """
        if _is_asking(tools):
            return True  # the sentence answers a question of the house tool
        if language.partition("-")[0] not in self.languages:
            return False
        names = names_of(tools)
        matcher, _ = await self._load(supported_language(language), names)
        history, pieces, _ = _last_exchange(messages)
        command = await _understand(matcher, pieces)
        if command is not None:
            command = resolve_references(command, CommandHistory(history, tools), names)
        if command is None:
            return False
        has_other_tools = any(not tool.name.startswith(INTENT_PREFIX) for tool in tools)
        unanswered = (*INTENTS_WITHOUT_SKILL, *UNRESOLVED_INTENTS)
        return not (has_other_tools and any(step.intent in unanswered for step in command.steps))

    async def may_become_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """Returns True if `understands` may accept the last sentence after further words."""
        if any(tool.house is not None for tool in tools):
            return True  # the sentences of the house tool are not known here
        if language.partition("-")[0] not in self.languages:
            return False
        matcher, _ = await self._load(supported_language(language), names_of(tools))
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
        command = matcher.understand(pieces[0])
        return command or await asyncio.to_thread(matcher.understand_loosely, pieces[0])
    return await asyncio.to_thread(_understand_pieces, matcher, pieces)


def _understand_pieces(matcher: Grammar, pieces: Sequence[str]) -> IntentMatch | None:
    """Returns the meaning of a sentence that pauses may have cut into pieces.

    pieces: oldest first. They are joined, unless both the last one and the text before it are
    complete commands. Then the earlier one was not answered for a reason, such as an interruption,
    and must not be carried out now.
    """
    for start in range(len(pieces)):
        command = matcher.understand(" ".join(pieces[start:]))
        if command is None:
            continue
        if start and matcher.ends_negated(pieces[start - 1]):
            return None  # "don't" and, after a pause, "turn on the light"
        if start and command.intent == SAME_ACTION:  # "turn on the kitchen", "and bedroom lights"
            whole = matcher.understand_loosely(" ".join(pieces[start - 1 :]))
            if whole is not None:
                return whole
        last = matcher.understand(pieces[-1]) if start < len(pieces) - 1 else None
        if last is not None and last.intent in {SAME_ACTION, SAME_TARGETS}:
            last = None  # "and the bedroom" belongs to the piece before it
        if last is not None and matcher.understand(" ".join(pieces[start:-1])):
            return last
        return command
    return matcher.understand_loosely(" ".join(pieces))


def _is_asking(tools: Sequence[ToolSpec]) -> bool:
    """Returns True while the house tool waits for the answer to its question."""
    return any(tool.house is not None and tool.house.is_asking for tool in tools)


def _is_for_house(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
    """Returns True if the last sentence answers the house tool's question, or was passed to it."""
    houses = {tool.name for tool in tools if tool.house is not None}
    for message in reversed(messages):
        if message.role == "user":
            break
        if any(call.name in houses for call in message.tool_calls):
            return True
    return _is_asking(tools)


def _has_calls(command: IntentMatch, names: HomeNames) -> bool:
    return any(_call(step, names) is not None for step in command.steps)


def _house_command(pieces: Sequence[str], names: HomeNames) -> IntentMatch | None:
    """Returns a command for the house tool; None without such a tool or without text.

    The tool may understand sentences that no template matches: users add sentences, scripts and
    scenes to it.
    """
    text = " ".join(pieces)[:MAX_CHARS].strip()
    return IntentMatch(HOUSE_SENTENCE, text=text) if names.house and text else None


def _call(step: IntentMatch, names: HomeNames) -> ToolCall | None:
    """Returns the tool call for a command; None if it needs only an answer."""
    to_house = (HOUSE_SENTENCE, *HOUSE_INTENTS, *HOUSE_FALLBACK_INTENTS)
    if names.house and step.intent in to_house:
        arguments: dict[str, object] = {"text": step.text}
        if step.intent in HOUSE_INTENTS:
            arguments |= {"intent": step.intent, "slots": dict(step.slots)}
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
    """Returns the messages before the user's last sentence, the pieces of that sentence, and the
    results of its tool calls.

    The sentence is everything that the user said since the last answer. Its pieces are in the order
    in which they were spoken, the results in the order of the calls.
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
            results[message.call_id] = decode_result(message.text)
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
    """Returns True if the pieces before and after a message belong to one sentence.

    Such a message has instructions, or the first words of an answer that the user interrupted.
    """
    if message.role != "assistant" or message.tool_calls:
        return message.role == "system"
    text = message.text.rstrip()
    return len(text.split()) <= MAX_UNHEARD_WORDS and not text.endswith(SENTENCE_ENDS)


def _past_answers(messages: Sequence[Message]) -> Iterator[str]:
    return (message.text for message in messages if message.role == "assistant")


def _answers(
    command: IntentMatch,
    results: Sequence[Mapping[str, object]],
    answers: ReplyTemplates,
    names: HomeNames,
) -> Iterator[str]:
    """Yields one sentence for each step, with a space in front of all but the first."""
    unused_results = iter(results)
    for position, step in enumerate(command.steps):
        call = _call(step, names)
        result = {} if call is None else next(unused_results, {})
        # The house tool returns a sentence of its own, and so does a guard that refuses.
        has_speech = call is not None and (
            call.name == names.house or result.get("error") == "not_allowed"
        )
        speech = result.get("speech") if has_speech else None
        text = speech if isinstance(speech, str) and speech else answers.answer(step, result)
        yield f" {text}" if position else text
