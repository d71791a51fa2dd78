"""Plugins: what other installed packages add to Earshot, as their metadata declares it.

A package names its engines, tools and doors as entry points, in the groups `earshot.engines`,
`earshot.tools` and `earshot.doors`. Only this module reads that metadata. A package's code is
imported only by `Plugin.load`.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

from core.errors import ConfigError, chain_of

if TYPE_CHECKING:
    from importlib.metadata import Distribution

logger = logging.getLogger(__name__)

Group = Literal["earshot.engines", "earshot.tools", "earshot.doors"]

BUILT_IN = "built in"
"Origin of the parts of Earshot itself."

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}(\.[a-z][a-z0-9_]{0,31})?")
"""Names of entry points. They are keys of the configuration and parts of `EARSHOT_*` variables,
which do not distinguish case. Names of engines have two parts: `asr.NAME`."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of an installed package."""

    group: Group
    name: str
    package: str
    "Name of the distribution, as pip lists it."
    version: str
    target: str
    "Object to import: `module`, or `module:object`."
    problem: str = ""
    "Reason why its name cannot be used; empty if it can."

    @property
    def origin(self) -> str:
        """Package and version, for people."""
        return f"{self.package} {self.version}"

    def load(self) -> object:
        """Imports and returns what the entry point names.

        Raises ConfigError for anything that the package's code raises. Blocking.
        """
        from importlib.metadata import EntryPoint  # its import takes a worker process 30 ms

        if self.problem:
            raise ConfigError(self.problem)
        try:
            return EntryPoint(self.name, self.target, self.group).load()
        except (Exception, SystemExit) as error:  # importing runs any code of the package
            logger.debug("%s: %s", self.origin, chain_of(error))
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{self.target} cannot be imported: {reason}") from error


def find_plugins(group: Group, built_in: Collection[str] = ()) -> Mapping[str, Plugin]:
    """Returns the entry points of a group by name, in the order of the names. `built_in`: names
    that Earshot itself uses; a plugin with such a name is listed with a `problem`."""
    found: dict[str, Plugin] = {}
    for plugin in _declared():
        if plugin.group != group:
            continue
        name, first = plugin.name, found.get(plugin.name)
        if first is not None:
            origins = f"{first.origin} and {plugin.origin}"
            plugin = replace(first, problem=f"{origins} both add {name!r}: uninstall one of them")
        elif name in built_in:
            plugin = replace(plugin, problem=f"{name!r} is built in: the package has to rename it")
        elif not NAME.fullmatch(name):
            problem = f"{name!r} is no name: small letters, digits and _, at most 32, are allowed"
            plugin = replace(plugin, problem=problem)
        found[name] = plugin
    return found


def forget_plugins() -> None:
    """Makes the next call read the metadata again. Otherwise a process reads it once: packages that
    are installed while it runs count after its next start."""
    _declared.cache_clear()


def missing_members(value: object, protocol: type) -> list[str]:
    """Returns the public members of a Protocol that an object lacks, sorted."""
    methods = [name for name in vars(protocol) if not name.startswith("_")]
    members = {*protocol.__annotations__, *methods}
    return sorted(name for name in members if not hasattr(value, name))


@cache
def _declared() -> tuple[Plugin, ...]:
    """Returns the entry points of all three groups, by name and package. Takes 50 ms where 150
    packages are installed."""
    from importlib.metadata import distributions

    found: dict[tuple[str, str, str], Plugin] = {}
    for distribution in distributions():
        for plugin in _of(distribution):
            # The same package may be in two folders of `sys.path`: the first one is imported.
            found.setdefault((plugin.group, plugin.name, plugin.package), plugin)
    return tuple(found[key] for key in sorted(found))


def _of(distribution: "Distribution") -> Iterator[Plugin]:
    """Yields the entry points for Earshot that one distribution declares."""
    try:
        # Few packages have entry points for Earshot. This check is faster than parsing all others.
        if "earshot." not in (distribution.read_text("entry_points.txt") or ""):
            return
        package, version = distribution.metadata["Name"], distribution.version
        for entry in distribution.entry_points:
            match entry.group:
                case "earshot.engines" | "earshot.tools" | "earshot.doors" as group:
                    yield Plugin(group, entry.name, package, version, entry.value)
                case _:
                    pass
    except (OSError, TypeError, ValueError, KeyError) as error:
        logger.warning("! the metadata of a package cannot be read: %s: %s", distribution, error)
