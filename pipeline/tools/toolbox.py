"""Runs what a language model asks for: skills, functions, and the tools of MCP servers."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from core.errors import EarshotError, chain_of
from core.ports import Metrics, ToolContext, ToolOutcome, ToolProvider, ToolSpec
from engines.base import Message, ToolCall
from pipeline.tools.catalogue import Tool, ToolCatalogue
from pipeline.tools.results import as_json
from pipeline.tools.selection import relevant_tools

logger = logging.getLogger(__name__)

TOOL_TIMEOUT_S = 10.0
"A person waits no longer for a light; the answer then says that it did not work."

MAX_PARALLEL = 8
"Calls of one answer at a time; a model gone wrong asks for hundreds."

NO_OTHERS: Mapping[str, Tool] = {}

ToolOverride = Callable[[ToolCall, Tool], str | None]
"A call's result without a call, as JSON for the model; None: the tool is called."

_HOW: Mapping[str | None, str] = {None: "done", "tool_timeout": "timeout"}
"Error code -> outcome, as a metric tells it; all other codes are failures."


class Toolbox:
    """All tools of all sessions, whoever provides them. `allowed`: what a session may use of them;
    None: all. `instead`: what answers in a tool's place; also in that of a client's MCP servers.
    `offers_all`: False for only those that what was said may need."""

    def __init__(
        self,
        providers: Sequence[ToolProvider],
        metrics: Metrics,
        *,
        timeout_s: float | None = None,
        instead: ToolOverride | None = None,
        offers_all: bool = True,
    ) -> None:
        self._catalogues = ToolCatalogue(providers)
        self._metrics, self._instead = metrics, instead
        self._offers_all = offers_all
        self._timeout_s = TOOL_TIMEOUT_S if timeout_s is None else timeout_s

    def specs(self, context: ToolContext, allowed: Collection[str] | None = None) -> list[ToolSpec]:
        """What a model is offered."""
        tools = self._catalogues.get(context)
        return [t.spec for name, t in tools.items() if allowed is None or name in allowed]

    def offered(
        self,
        specs: Sequence[ToolSpec],
        messages: Sequence[Message],
        language: str,
        *,
        needs_home: bool,
        context_tokens: int | None,
    ) -> Sequence[ToolSpec]:
        """What of `specs` is offered in a conversation with a model of this context."""
        if self._offers_all:
            return specs
        return relevant_tools(
            specs, messages, language, needs_home=needs_home, context_tokens=context_tokens
        )

    def names(self, context: ToolContext) -> tuple[str, ...]:
        """Everything there is now; an MCP server's tools come and go."""
        return tuple(self._catalogues.get(context))

    def may_run_early(self, call: ToolCall, context: ToolContext) -> bool:
        """Whether nothing has happened if the turn turns out to be none. Also of a call that is
        refused anyway."""
        tool = self._catalogues.get(context).get(call.name)
        return tool is None or tool.spec.is_read_only

    async def run(
        self,
        calls: Sequence[ToolCall],
        context: ToolContext,
        allowed: Collection[str] | None = None,
        *,
        also: Mapping[str, Tool] = NO_OTHERS,
        on_result: Callable[[ToolCall, str], None] = lambda *_: None,
    ) -> list[str]:
        """Run calls side by side. One result as JSON per call, in order; a failure is a result.
        `also`: tools of this session alone. `on_result`: told each one as soon as it is there."""
        slots = asyncio.Semaphore(MAX_PARALLEL)
        # As they are now, for `may_run_early` has just been asked about them: sources change.
        tools = {**self._catalogues.get(context), **also}

        async def one(call: ToolCall) -> str:
            is_allowed = allowed is None or call.name in allowed or call.name in also
            async with slots:
                tool = tools.get(call.name) if is_allowed else None
                result = await self._run(tool, call, context)
            on_result(call, result)
            return result

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(call), name=f"tool-{call.name}") for call in calls]
        return [task.result() for task in running]

    async def _run(self, tool: Tool | None, call: ToolCall, context: ToolContext) -> str:
        if tool is None:
            outcome = ToolOutcome({"message": f"no tool {call.name!r}"}, error="no_such_tool")
            return self._told(call, outcome)
        if self._instead is not None and (result := self._instead(call, tool)) is not None:
            return result
        now = asyncio.get_running_loop().time
        began_at, how = now(), "cancelled"
        try:
            outcome = await self._outcome(tool, call, context)
            told = self._told(call, outcome)
            how = _HOW.get(outcome.error, "failed")
        except Exception as error:
            # The edge of providers: a bug in one, or in what it returned, costs one result.
            logger.error("! tool %s failed: %s", call.name, chain_of(error))
            how, told = "failed", self._told(call, ToolOutcome({}, error="tool_failed"))
        finally:
            self._metrics.observe("earshot_tool_seconds", now() - began_at, outcome=how)
        return told

    async def _outcome(self, tool: Tool, call: ToolCall, context: ToolContext) -> ToolOutcome:
        timeout_s = self._timeout_s if tool.spec.timeout_s is None else tool.spec.timeout_s
        try:
            if not tool.spec.checks_arguments:
                tool.arguments.check(call.arguments)
            async with asyncio.timeout(timeout_s):
                return await tool.provider.call(tool.name, call.arguments, context)
        except TimeoutError:
            message = f"no result within {timeout_s:g} s; it may still happen"
            return ToolOutcome({"message": message}, error="tool_timeout")
        except EarshotError as error:
            return ToolOutcome({"message": str(error)}, error=error.code)

    def _told(self, call: ToolCall, outcome: ToolOutcome) -> str:
        text = as_json(outcome)
        if outcome.error is not None:
            self._metrics.count("earshot_tool_errors", code=outcome.error)
            logger.info("! tool %s: %s", call.name, outcome.error)
        return text
