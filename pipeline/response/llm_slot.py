"""A language model that takes an LLM slot for each request."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace

from core.events import RateLimits, TokenUsage
from core.ports import Metrics, ToolSpec
from engines.base import (
    AS_CONFIGURED,
    CallDelta,
    Llm,
    LlmOptions,
    Message,
    TextDelta,
    ToolCall,
    ToolFilterLlm,
)
from pipeline.response.plan import ResponsePlan
from pipeline.shared.plugin_errors import plugin_errors

LlmSlotContext = Callable[[], AbstractAsyncContextManager[None]]
"Makes the context of one round. It is left when the model's request has been closed."


def with_llm_slots(plan: ResponsePlan, slot: LlmSlotContext, metrics: Metrics) -> ResponsePlan:
    """Returns the plan with a model that takes a slot for each round and raises only our errors."""
    return replace(plan, llm=_SlotLimitedLlm(plan.llm, slot, metrics))


class _SlotLimitedLlm:
    def __init__(self, llm: Llm, slot: LlmSlotContext, metrics: Metrics) -> None:
        self.name, self.languages = llm.name, llm.languages
        self._llm, self._slot, self._metrics = llm, slot, metrics
        with plugin_errors("llm", self.name, metrics):
            self.context_tokens = llm.context_tokens
        if isinstance(llm, ToolFilterLlm):
            declared = llm.declared

            def declared_or_error(
                tools: Sequence[ToolSpec], *, language: str
            ) -> Sequence[ToolSpec]:
                with plugin_errors("llm", self.name, metrics):
                    return declared(tools, language=language)

            self.declared = declared_or_error

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """See `Llm.reply`."""
        async with self._slot():
            with plugin_errors("llm", self.name, self._metrics):
                reply = self._llm.reply(messages, tools, language=language, options=options)
                async with aclosing(reply) as deltas:
                    async for delta in deltas:
                        yield delta
                # some models know their context size only after a request
                self.context_tokens = self._llm.context_tokens
