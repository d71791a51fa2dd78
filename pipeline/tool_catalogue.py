"""Which tool a name means, when several sources have tools."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from core.ports import ToolContext, ToolProvider, ToolSpec
from pipeline.tool_arguments import ArgumentCheck

logger = logging.getLogger(__name__)

MAX_KNOWN = 32
"Catalogues kept: one for each language and state of the sources that was lately in use."


@dataclass(frozen=True)
class Tool:
    """One tool, under the name that models know."""

    spec: ToolSpec
    provider: ToolProvider
    name: str
    "What its provider calls it."

    @cached_property
    def arguments(self) -> ArgumentCheck:
        """Made at its first call: most tools are never called."""
        return ArgumentCheck(self.spec.parameters)


@dataclass(frozen=True, slots=True)
class _Known:
    told: tuple[Sequence[ToolSpec], ...]
    "What the providers told; held, so that no other object gets its identity."
    tools: Mapping[str, Tool]


class Catalogues:
    """The tools of all providers. What they told is looked at again only when it is new."""

    def __init__(self, providers: Sequence[ToolProvider]) -> None:
        self._providers = providers
        self._known: dict[tuple[int, ...], _Known] = {}
        self._hidden: set[str] = set()
        "Names whose collision has been logged."

    def get(self, context: ToolContext) -> Mapping[str, Tool]:
        """By the name that models know, in the order of the providers."""
        told = tuple(provider.tools(context) for provider in self._providers)
        key = tuple(id(specs) for specs in told)
        known = self._known.get(key)
        if known is None:
            while len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[key] = _Known(told, self._named(told))
        return known.tools

    def _named(self, told: Sequence[Sequence[ToolSpec]]) -> Mapping[str, Tool]:
        """The first provider's tool keeps its name."""
        tools: dict[str, Tool] = {}
        for provider, specs in zip(self._providers, told, strict=True):
            for spec in specs:
                name = spec.name
                if name in tools:
                    name = spec.fallback_name
                    self._tell(spec.name, name if name not in tools else "")
                if name and name not in tools:
                    tools[name] = Tool(replace(spec, name=name), provider, spec.name)
        return tools

    def _tell(self, name: str, other: str) -> None:
        if name not in self._hidden:
            self._hidden.add(name)
            what = f"the second one is called {other}" if other else "the second one is left out"
            logger.warning("two tools are called %s: %s", name, what)
