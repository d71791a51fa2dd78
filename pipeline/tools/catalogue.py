"""Names of tools, when several providers have tools."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from core.errors import chain_of
from core.ports import ToolContext, ToolProvider, ToolSpec
from pipeline.tools.arguments import ArgumentCheck

logger = logging.getLogger(__name__)

MAX_TOOLS = 128
"""Most tools of all providers together. OpenAI's API takes no more in one request, and a model
reads each of them again in every turn."""

SHOWN_NAMES = 8
"Most names in one log line."

MAX_KNOWN = 32
"Most catalogues kept: one for each language and state of the providers lately in use."


@dataclass(frozen=True)
class Tool:
    """A tool under the name that models see, and the provider that runs it."""

    spec: ToolSpec
    provider: ToolProvider
    name: str
    "Name that the provider uses."

    @cached_property
    def arguments(self) -> ArgumentCheck:
        """Check of the arguments. Made at the first call: most tools are never called."""
        return ArgumentCheck(self.spec.parameters)


@dataclass(frozen=True, slots=True)
class _ToolSnapshot:
    told: tuple[Sequence[ToolSpec], ...]
    "Tools of each provider. Kept here so that no other object can get their `id`, the cache's key."
    tools: Mapping[str, Tool]


class ToolCatalogue:
    """The tools of all providers. Recomputed only when a provider returns another sequence."""

    def __init__(self, providers: Sequence[ToolProvider]) -> None:
        self._providers = providers
        self._known: dict[tuple[int, ...], _ToolSnapshot] = {}
        self._hidden: set[str] = set()
        "Names of tools and providers whose problem has been logged."
        self._left_out: tuple[str, ...] = ()
        "Tools beyond the limit, as they were logged last."

    def get(self, context: ToolContext) -> Mapping[str, Tool]:
        """Returns the tools by the name that models see, in the order of the providers."""
        told = tuple(self._told(provider, context) for provider in self._providers)
        key = tuple(id(specs) for specs in told)
        known = self._known.get(key)
        if known is None:
            while len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[key] = _ToolSnapshot(told, self._named(told))
        return known.tools

    def _told(self, provider: ToolProvider, context: ToolContext) -> Sequence[ToolSpec]:
        """Returns a provider's tools, or none if it fails."""
        try:
            return provider.tools(context)
        # providers may be written by others; a bug in one must not cost the others' tools
        except Exception as bug:
            name = type(provider).__name__
            if name not in self._hidden:
                self._hidden.add(name)
                logger.error("! tools of %s are left out: %s", name, chain_of(bug))
            return ()

    def _named(self, told: Sequence[Sequence[ToolSpec]]) -> Mapping[str, Tool]:
        """Names the tools. The first provider's keeps its name; tools beyond the limit are left
        out."""
        tools: dict[str, Tool] = {}
        left_out: list[str] = []
        for provider, specs in zip(self._providers, told, strict=True):
            for spec in specs:
                name = spec.name
                if name in tools:
                    name = spec.fallback_name
                    self._tell(spec.name, name if name not in tools else "")
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

    def _tell(self, name: str, other: str) -> None:
        if name not in self._hidden:
            self._hidden.add(name)
            what = f"the second one is called {other}" if other else "the second one is left out"
            logger.warning("two tools have the name %s: %s", name, what)
