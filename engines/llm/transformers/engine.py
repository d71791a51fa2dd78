"""Language model that generates with Hugging Face's library. It runs in a worker process.

Several answers take turns, one token each. Between tokens the event loop handles new requests and
cancellations.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from core.conversation.usage import TokenUsage
from core.errors import EngineError
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from engines.llm.chat_messages import chat_messages, chat_tools
from engines.llm.reasoning_filter import ReasoningFilter
from engines.llm.transformers.generation import (
    GenerationRequest,
    TokenGeneration,
    TransformersModel,
)
from engines.llm.transformers.settings import NAME, Settings, read_context
from engines.llm.transformers.tool_call_parser import InvalidToolCall, ToolCallParser

logger = logging.getLogger(__name__)


class TransformersLlm:
    """An `Llm` whose model is loaded by `load` or by the first answer.

    Each token blocks the event loop while it is computed. The caller must not run `reply` more than
    `max_concurrency` times at once.
    """

    name = NAME

    def __init__(self, settings: Settings) -> None:
        """Raises EngineMissing if there is no model in the folder."""
        self.languages = settings.languages
        self.context_tokens: int | None = read_context(settings)
        self.max_concurrency: int | None = settings.at_once
        self._settings = settings
        self._model: TransformersModel | None = None

    def load(self) -> None:
        """Loads the model, which blocks for seconds to minutes. Raises EngineError without a chat
        template, and all that the library raises."""
        self._get_model()

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall | TokenUsage, None]:
        """Streams the answer (see `Llm.reply`).

        Tools are left out if the chat template has no place for them.
        """
        model = self._get_model()
        has_tools = bool(tools) and model.has_tools
        answer = TokenGeneration(
            model, self._request(messages, tools if has_tools else (), options)
        )
        try:
            async with aclosing(self._deltas(_texts(answer), has_tools=has_tools)) as deltas:
                async for delta in deltas:
                    yield delta
        except InvalidToolCall as exc:
            raise EngineError("llm", NAME, f"it wrote {exc}") from None
        yield TokenUsage(answer.input_tokens, answer.output_tokens, answer.reused_tokens)

    def _get_model(self) -> TransformersModel:
        if self._model is None:
            self._model = TransformersModel(self._settings)
            logger.info("llm.%s: %s on %s", NAME, self._settings.path, self._model.device)
        return self._model

    async def _deltas(
        self, texts: AsyncGenerator[str, None], *, has_tools: bool
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Streams the text without the model's thoughts, then the tool calls."""
        reasoning, parser = ReasoningFilter(self._settings.starts_thinking), ToolCallParser()

        def without_calls(text: str) -> str:
            return parser.push(text) if has_tools else text

        async with aclosing(texts):
            async for piece in texts:
                if text := without_calls(reasoning.push(piece)):
                    yield TextDelta(text)
        if text := without_calls(reasoning.end()):
            yield TextDelta(text)
        if has_tools:
            rest, calls = parser.end()
            if rest:
                yield TextDelta(rest)
            for call in calls:
                yield call

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: LlmOptions
    ) -> GenerationRequest:
        settings = self._settings
        max_tokens = options.max_output_tokens
        return GenerationRequest(
            with_short_ids(chat_messages(messages, arguments_as_text=False)),
            chat_tools(tools),
            settings.max_output_tokens if max_tokens is None else max_tokens,
            self.context_tokens or 0,
            options.resolve_temperature(settings.temperature),
            options.top_p,
            options.repetition_penalty,
            has_reasoning=settings.thinking or settings.starts_thinking,
        )


async def _texts(answer: TokenGeneration) -> AsyncGenerator[str, None]:
    """Yields the text of an answer while it is generated. Other answers run after each token."""
    try:
        while not answer.is_over:
            if text := answer.step():
                yield text
            await asyncio.sleep(0)
    except (GeneratorExit, asyncio.CancelledError):
        answer.finish()
        raise
    answer.finish()


def with_short_ids(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replaces the ids of tool calls, in place, by nine letters and digits, and returns `chat`.

    Mistral's templates refuse other ids.
    """
    ids: dict[str, str] = {}
    for message in chat:
        for call in message.get("tool_calls", ()):
            call["id"] = ids.setdefault(call["id"], f"call{len(ids):05}")
        if "tool_call_id" in message:
            message["tool_call_id"] = ids[message["tool_call_id"]]
    return chat
