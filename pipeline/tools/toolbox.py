"""Collects the tools of all providers (skills, Python functions, MCP servers), and runs calls."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from core.errors import EarshotError, chain_of
from core.ports import Metrics, ToolContext, ToolOutcome, ToolProvider, ToolSpec
from engines.base import Message, ToolCall
from pipeline.tools.calls.arguments import ArgumentCheck
from pipeline.tools.calls.results import as_json
from pipeline.tools.guards import NO_GUARDS, Guards
from pipeline.tools.selection import relevant_tools

logger = logging.getLogger(__name__)

TOOL_TIMEOUT_S = 10.0
"""Longest time of one call. Nobody waits longer for a light. After it the call counts as failed,
and the answer can say so."""

MAX_PARALLEL = 8
"Most calls of one batch that run at a time: a faulty model may ask for hundreds."

MAX_TOOLS = 128
"""Most tools of all providers together. OpenAI's API takes no more in one request, and a model
reads each of them again in every turn."""

SHOWN_NAMES = 8
"Most tool names in one log line."

MAX_SNAPSHOTS = 32
"Most snapshots kept: one for each recent language and state of the providers."


@dataclass(frozen=True)
class Tool:
    """A tool and the provider that runs it."""

    spec: ToolSpec
    "Specification with the name that models see."
    provider: ToolProvider
    name: str
    "Name that the provider uses."

    @cached_property
    def arguments(self) -> ArgumentCheck:
        """Check of the arguments, made at the first call: most tools are never called."""
        return ArgumentCheck(self.spec.parameters)


@dataclass(frozen=True, slots=True)
class _ToolSnapshot:
    """The tools of all providers at one moment."""

    specs: tuple[Sequence[ToolSpec], ...]
    """Tools of each provider. Their `id`s are the key of the cache, so they are kept: no other
    object can get the same `id` meanwhile."""
    tools: Mapping[str, Tool]


class ToolCatalogue:
    """Names the tools of all providers. The result is cached until a provider changes its tools."""

    def __init__(self, providers: Sequence[ToolProvider]) -> None:
        self._providers = providers
        self._snapshots: dict[tuple[int, ...], _ToolSnapshot] = {}
        self._logged: set[str] = set()
        "Names of tools and providers whose problem has been logged."
        self._left_out: tuple[str, ...] = ()
        "Names of the tools beyond the limit that were logged last."

    def get(self, context: ToolContext) -> Mapping[str, Tool]:
        """Returns the tools by the name that models see, in the order of the providers."""
        by_provider = tuple(self._specs(provider, context) for provider in self._providers)
        key = tuple(id(specs) for specs in by_provider)
        snapshot = self._snapshots.get(key)
        if snapshot is None:
            while len(self._snapshots) >= MAX_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
            snapshot = self._snapshots[key] = _ToolSnapshot(by_provider, self._named(by_provider))
        return snapshot.tools

    def _specs(self, provider: ToolProvider, context: ToolContext) -> Sequence[ToolSpec]:
        """Returns a provider's tools, or none if it fails."""
        try:
            return provider.tools(context)
        except Exception as bug:
            # Providers may be written by others. A bug in one must not take the others' tools away.
            name = type(provider).__name__
            if name not in self._logged:
                self._logged.add(name)
                logger.error("! tools of %s are left out: %s", name, chain_of(bug))
            return ()

    def _named(self, by_provider: Sequence[Sequence[ToolSpec]]) -> Mapping[str, Tool]:
        """Returns the tools by unique names. Tools beyond MAX_TOOLS are left out.

        Of tools with the same name, the first keeps it; later ones get their fallback name.
        """
        tools: dict[str, Tool] = {}
        left_out: list[str] = []
        for provider, specs in zip(self._providers, by_provider, strict=True):
            for spec in specs:
                name = spec.name
                if name in tools:
                    name = spec.fallback_name
                    self._log_duplicate(spec.name, name if name not in tools else "")
                if not name or name in tools:
                    continue
                if len(tools) < MAX_TOOLS:
                    tools[name] = Tool(replace(spec, name=name), provider, spec.name)
                else:
                    left_out.append(name)
        self._warn_of_limit(tuple(left_out))
        return tools

    def _warn_of_limit(self, left_out: tuple[str, ...]) -> None:
        if left_out and left_out != self._left_out:
            shown = ", ".join(left_out[:SHOWN_NAMES]) + (", ..." if left_out[SHOWN_NAMES:] else "")
            logger.warning(
                "! %d tools are known, and a model is offered %d at most. %d are left out: %s. "
                "Name the useful ones under 'tools' of each MCP server",
                MAX_TOOLS + len(left_out),
                MAX_TOOLS,
                len(left_out),
                shown,
            )
        self._left_out = left_out

    def _log_duplicate(self, name: str, other: str) -> None:
        if name not in self._logged:
            self._logged.add(name)
            outcome = f"the second one is called {other}" if other else "the second one is left out"
            logger.warning("two tools have the name %s: %s", name, outcome)


NO_TOOLS: Mapping[str, Tool] = {}

ToolOverride = Callable[[ToolCall, Tool], str | None]
"Returns a call's result as JSON without running the tool; None: the tool is run."

_METRIC_OUTCOMES: Mapping[str | None, str] = {None: "done", "tool_timeout": "timeout"}
"Error code -> outcome in the metric. All other codes count as `failed`."


class Toolbox:
    """Offers the tools of all providers to all sessions, and runs their calls.

    toolbox = Toolbox([FunctionTools(functions), *mcp_tools(servers)], metrics)
    specs = toolbox.specs(context)
    results = await toolbox.run(calls, context)  # JSON texts, one for each call
    """

    def __init__(
        self,
        providers: Sequence[ToolProvider],
        metrics: Metrics,
        *,
        timeout_s: float | None = None,
        override: ToolOverride | None = None,
        offers_all: bool = True,
        guards: Guards = NO_GUARDS,
    ) -> None:
        """Takes the providers, in the order of precedence for tools of the same name.

        timeout_s: longest time of one call, unless its ToolSpec has another; None: TOOL_TIMEOUT_S.
        override: may answer in place of a tool, also of one of a client's MCP servers.
        guards: refuse calls of tools that only some people may use.
        offers_all: False to offer a model only the tools that the conversation may need.
        """
        self._catalogues = ToolCatalogue(providers)
        self._metrics, self._override = metrics, override
        self._offers_all, self._guards = offers_all, guards
        self._timeout_s = TOOL_TIMEOUT_S if timeout_s is None else timeout_s

    def specs(self, context: ToolContext, allowed: Collection[str] | None = None) -> list[ToolSpec]:
        """Returns the tools that a session may use. allowed: names of these tools; None: all."""
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
        """Returns the tools among `specs` to offer (see `selection.relevant_tools`)."""
        if self._offers_all:
            return specs
        return relevant_tools(
            specs, messages, language, needs_home=needs_home, context_tokens=context_tokens
        )

    def names(self, context: ToolContext) -> tuple[str, ...]:
        """Returns the names of all present tools. Those of MCP servers may change at any time."""
        return tuple(self._catalogues.get(context))

    def may_run_early(self, call: ToolCall, context: ToolContext) -> bool:
        """Returns True if the call changes nothing, so that it may run before the turn is
        confirmed.

        A call of an unknown tool counts too, because it would be refused. One of a guarded tool
        does not: only the whole turn says who asks.
        """
        tool = self._catalogues.get(context).get(call.name)
        if tool is None:
            return True
        return tool.spec.is_read_only and self._guards.tools.isdisjoint((call.name, tool.name))

    async def run(
        self,
        calls: Sequence[ToolCall],
        context: ToolContext,
        allowed: Collection[str] | None = None,
        *,
        client_tools: Mapping[str, Tool] = NO_TOOLS,
        on_result: Callable[[ToolCall, str], None] = lambda *_: None,
    ) -> list[str]:
        """Runs calls at the same time and returns one result as JSON for each, in order.

        It never fails: the error of a tool is a result, too.

        allowed: names of the tools that may be called; None: all.
        client_tools: tools of this session alone, by name; they are always allowed.
        on_result: called with each result as soon as its call is over.
        """
        slots = asyncio.Semaphore(MAX_PARALLEL)
        # A copy: `may_run_early` was just asked about these tools, and providers may change theirs
        # at any time.
        tools = {**self._catalogues.get(context), **client_tools}

        async def run_call(call: ToolCall) -> str:
            is_allowed = allowed is None or call.name in allowed or call.name in client_tools
            async with slots:
                tool = tools.get(call.name) if is_allowed else None
                result = await self._run(tool, call, context)
            on_result(call, result)
            return result

        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(run_call(call), name=f"tool-{call.name}") for call in calls
            ]
        return [task.result() for task in running]

    async def _run(self, tool: Tool | None, call: ToolCall, context: ToolContext) -> str:
        if tool is None:
            outcome = ToolOutcome({"message": f"no tool {call.name!r}"}, error="no_such_tool")
            return self._outcome_text(call, outcome)
        if self._override is not None and (result := self._override(call, tool)) is not None:
            return result
        now = asyncio.get_running_loop().time
        began_at, label = now(), "cancelled"
        try:
            outcome = await self._outcome(tool, call, context)
            result = self._outcome_text(call, outcome)
            label = _METRIC_OUTCOMES.get(outcome.error, "failed")
        except Exception as error:
            # Providers may be written by others. A bug in one, or in its result, costs only this
            # call.
            logger.error("! tool %s failed: %s", call.name, chain_of(error))
            label, result = "failed", self._outcome_text(call, ToolOutcome({}, error="tool_failed"))
        finally:
            self._metrics.observe("earshot_tool_seconds", now() - began_at, outcome=label)
        return result

    async def _outcome(self, tool: Tool, call: ToolCall, context: ToolContext) -> ToolOutcome:
        timeout_s = self._timeout_s if tool.spec.timeout_s is None else tool.spec.timeout_s
        refusal = await self._guards.refuse_tool((call.name, tool.name), context)
        if refusal is not None:
            return refusal
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

    def _outcome_text(self, call: ToolCall, outcome: ToolOutcome) -> str:
        text = as_json(outcome)
        if outcome.error is not None:
            self._metrics.count("earshot_tool_errors", code=outcome.error)
            logger.info("! tool %s: %s", call.name, outcome.error)
        return text
