"""A language model that is none: it recognises commands and answers with templates."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from core.ids import new_id
from core.ports import ToolSpec
from engines.base import Message, TextDelta, ToolCall
from engines.llm.intents.grammar import MAX_GRAMMARS, Grammar, Understanding, grammar
from engines.llm.intents.language import languages, supported
from engines.llm.intents.names import Names, names_of
from engines.llm.intents.replies import Replies, replies

LONG_CHARS = 100  # up to here a match takes a few ms; the event loop can wait for that


class IntentsLlm:
    """Sentence in, tool calls out; tool results in, sentence out. Holds no state of the home."""

    name = "intents"

    def __init__(self) -> None:
        self.languages = languages()
        self._loaded: dict[tuple[str, Names], tuple[Grammar, Replies]] = {}

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Load what `language` needs, in a thread: the first load takes up to a second."""
        await self._load(supported(language), names_of(tools))

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Tool calls for the last sentence, or the answer to it once their results are there."""
        code, names = supported(language), names_of(tools)
        known, answers = await self._load(code, names)
        asked, results = _last_exchange(messages)
        found = await _understand(known, asked)
        if found is None:
            yield TextDelta(answers.not_understood())
            return
        if not results:
            calls = [step for step in found.steps if step.intent in names.tools]
            for step in calls:
                yield ToolCall(new_id("call"), step.intent, dict(step.slots))
            if calls:
                return
        for text in _answers(found, results, answers):
            yield TextDelta(text)

    async def _load(self, language: str, names: Names) -> tuple[Grammar, Replies]:
        loaded = self._loaded.get((language, names))
        if loaded is None:
            loaded = await asyncio.to_thread(_load, language, names)
            while len(self._loaded) >= MAX_GRAMMARS:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[language, names] = loaded
        return loaded


async def _understand(known: Grammar, text: str) -> Understanding | None:
    if len(text) < LONG_CHARS:
        return known.understand(text)
    return await asyncio.to_thread(known.understand, text)


def _load(language: str, names: Names) -> tuple[Grammar, Replies]:
    return grammar(language, names), replies(language)


def _last_exchange(messages: Sequence[Message]) -> tuple[str, list[Mapping[str, Any]]]:
    """The last thing the user said, and the results of the tools called for it, in call order."""
    results: dict[str, Mapping[str, Any]] = {}
    order: list[str] = []
    for message in reversed(messages):
        if message.role == "user":
            return message.text, [results.get(call, {"error": "failed"}) for call in order]
        if message.role == "tool":
            results[message.call_id] = _result(message.text)
        elif message.tool_calls:
            order = [call.call_id for call in message.tool_calls] + order
    return "", []


def _result(text: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"error": "failed"}


def _answers(
    found: Understanding, results: Sequence[Mapping[str, Any]], answers: Replies
) -> Iterator[str]:
    """One sentence for each step; a space keeps them apart when they are joined."""
    waiting = iter(results)
    for position, step in enumerate(found.steps):
        result = next(waiting, {}) if step.intent.startswith("Hass") else {}
        text = answers.answer(step, result)
        yield f" {text}" if position else text
