"""Runs what a language model asks for: skills, and later Home Assistant, devices, MCP servers."""

import asyncio
import json
import logging
from collections.abc import Sequence

from core.errors import EarshotError
from core.ports import Metrics, ToolContext, ToolOutcome, ToolProvider, ToolSpec
from engines.base import ToolCall

logger = logging.getLogger(__name__)

TOOL_TIMEOUT_S = 10.0
"A person waits no longer for a light; the answer then says that it did not work."
MAX_RESULT_CHARS = 8000
"A model's context is not a place for a whole database."


class Toolbox:
    """All tools of a session, whoever provides them."""

    def __init__(self, providers: Sequence[ToolProvider], metrics: Metrics) -> None:
        self._providers = providers
        self._metrics = metrics

    def specs(self, context: ToolContext) -> list[ToolSpec]:
        return [spec for provider in self._providers for spec in provider.tools(context)]

    async def run(self, calls: Sequence[ToolCall], context: ToolContext) -> list[str]:
        """Run calls side by side. One result as JSON per call, in order; a failure is a result."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._run(call, context)) for call in calls]
        return [task.result() for task in running]

    async def _run(self, call: ToolCall, context: ToolContext) -> str:
        outcome = await self._outcome(call, context)
        if outcome.error is not None:
            self._metrics.count("earshot_tool_errors", code=outcome.error)
            logger.info("! tool %s: %s", call.name, outcome.error)
            return json.dumps({"error": outcome.error, **outcome.data})
        text = json.dumps(dict(outcome.data))
        if len(text) > MAX_RESULT_CHARS:
            return json.dumps({"error": "result_too_large", "limit_chars": MAX_RESULT_CHARS})
        return text

    async def _outcome(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        provider = self._provider(call.name, context)
        if provider is None:
            return ToolOutcome({}, error="no_such_tool")
        try:
            async with asyncio.timeout(TOOL_TIMEOUT_S):
                return await provider.call(call.name, call.arguments, context)
        except TimeoutError:
            return ToolOutcome({}, error="tool_timeout")
        except EarshotError as exc:
            return ToolOutcome({}, error=exc.code)

    def _provider(self, name: str, context: ToolContext) -> ToolProvider | None:
        for provider in self._providers:
            if any(spec.name == name for spec in provider.tools(context)):
                return provider
        return None
