"""The `Llm` whose model runs in a process of its own."""

import logging
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

from core.errors import EngineError, OverloadedError
from core.events import TokenUsage
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from engines.llm.chat_messages import chat_messages, chat_tools
from engines.llm.reasoning_filter import ReasoningFilter
from engines.llm.transformers.child import LlmWorkerProcess
from engines.llm.transformers.settings import NAME, Settings, read_context
from engines.llm.transformers.tool_call_parser import InvalidToolCall, ToolCallParser
from engines.llm.transformers.wire import (
    LlmEndReply,
    LlmGenerateRequest,
    LlmLoadRequest,
    LlmTextReply,
)

logger = logging.getLogger(__name__)


class TransformersLlm:
    """An `Llm` in a process. `warm` or the first turn loads the model; `aclose` ends it."""

    name = NAME

    def __init__(self, settings: Settings, *, python: str = sys.executable) -> None:
        """Raises EngineMissing if there is no model in the folder.

        python: path of an interpreter that has torch and transformers.
        """
        self.languages = settings.languages
        self.context_tokens: int | None = read_context(settings)
        self.at_once: int | None = settings.at_once
        self._settings = settings
        load = LlmLoadRequest(
            str(settings.folder.resolve()),
            settings.device,
            settings.dtype,
            settings.threads,
            settings.at_once,
        )
        self._child = LlmWorkerProcess(load, settings.load_timeout_s, python=python)
        self._taken = 0
        "Answers in progress, including those that wait until the model is loaded."

    @property
    def pid(self) -> int | None:
        """Process id of the model's process; None while it does not run."""
        return self._child.pid

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Loads the model. Raises EngineError if that fails."""
        loaded = await self._child.loaded()
        logger.info("llm.%s: %s on %s", NAME, self._settings.path, loaded.device)

    async def aclose(self) -> None:
        """Ends the process; a later request starts a new one."""
        await self._child.aclose()

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall | TokenUsage, None]:
        """Streams the answer (see `Llm.reply`). Tools are left out if the template knows none."""
        with self._place():
            async with aclosing(self._answer(messages, tools, options)) as deltas:
                async for delta in deltas:
                    yield delta

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Takes one of the `at_once` places. Raises OverloadedError if there is none."""
        if self._taken >= self._settings.at_once:
            raise OverloadedError(
                f"llm engine {NAME!r} already generates {self._settings.at_once} answers, the"
                " limit",
                retry_after_s=2,
                code="engine_busy",
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    async def _answer(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: LlmOptions
    ) -> AsyncGenerator[TextDelta | ToolCall | TokenUsage, None]:
        has_tools = bool(tools) and (await self._child.loaded()).has_tools
        request = self._request(messages, tools if has_tools else (), options)
        limits = (self._settings.first_token_timeout_s, self._settings.token_timeout_s)
        try:
            async with (
                aclosing(self._child.answer(request, *limits)) as told,
                aclosing(self._read(told, has_tools=has_tools)) as deltas,
            ):
                async for delta in deltas:
                    yield delta
        except InvalidToolCall as exc:
            raise EngineError("llm", NAME, f"it wrote {exc}") from None

    async def _read(
        self, told: AsyncGenerator[LlmTextReply | LlmEndReply, None], *, has_tools: bool
    ) -> AsyncGenerator[TextDelta | ToolCall | TokenUsage, None]:
        """Streams the text without thoughts; then the tool calls, then the usage."""
        thoughts, spoken = ReasoningFilter(self._settings.starts_thinking), ToolCallParser()
        usage = TokenUsage()
        async for part in told:
            if isinstance(part, LlmEndReply):
                usage = TokenUsage(part.input_tokens, part.output_tokens)
                text = thoughts.end()
            else:
                text = thoughts.push(part.text)
            if has_tools:
                text = spoken.push(text)
            if text:
                yield TextDelta(text)
        if has_tools:
            rest, calls = spoken.end()
            if rest:
                yield TextDelta(rest)
            for call in calls:
                yield call
        yield usage

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: LlmOptions
    ) -> LlmGenerateRequest:
        settings = self._settings
        most = options.max_output_tokens
        return LlmGenerateRequest(
            0,
            with_short_ids(chat_messages(messages, arguments_as_text=False)),
            chat_tools(tools),
            settings.max_output_tokens if most is None else most,
            self.context_tokens or 0,
            options.temperature_beside(settings.temperature),
            options.top_p,
            options.repetition_penalty,
            thinks=settings.thinking or settings.starts_thinking,
        )


def with_short_ids(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replaces the ids of tool calls, in place, by nine letters and digits.

    Mistral's templates refuse other ids.
    """
    ids: dict[str, str] = {}
    for message in chat:
        for call in message.get("tool_calls", ()):
            call["id"] = ids.setdefault(call["id"], f"call{len(ids):05}")
        if "tool_call_id" in message:
            message["tool_call_id"] = ids[message["tool_call_id"]]
    return chat
