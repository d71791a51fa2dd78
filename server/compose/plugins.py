"""Creates and checks the tools and doors of other packages that the configuration names. A plugin
that is installed but not named is imported only to check that it works. It gets no tool call and no
route: installing a package must not open a door or act in a house by itself."""

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiohttp.web import UrlDispatcher
from msgspec import Struct

from core.errors import ConfigError, EarshotError
from core.http.routes import Route
from core.packages.plugins import Group, Plugin, find_plugins, missing_members
from core.ports import ToolContext, ToolProvider
from engines.registry import module_of, read_settings, refused
from server.config import Config
from server.config.sections.tools import ToolsConfig
from web.openapi import document
from web.plugin_doors import DoorServices, PluginDoor, RunsInBackground

logger = logging.getLogger(__name__)

SECTIONS: Mapping[Group, str] = {"earshot.tools": "tools.plugins", "earshot.doors": "doors"}
"Section of the configuration that names the plugins of a group and holds their settings."

BUILT_IN_DOORS = (
    "conversations",
    "devices",
    "esphome",
    "ingrain",
    "keys",
    "kserve",
    "live",
    "llama.cpp",
    "mcp",
    "models",
    "ollama",
    "openai",
    "page",
    "realtime",
    "server",
    "settings",
    "speakers",
    "telephone",
    "whip",
    "willow",
    "wyoming",
    "xiaozhi",
)
"Names that a door of another package must not have."

_PARAMETER = re.compile(r"\{[^{}]*\}")
"Path parameter such as `{name}`."


@dataclass(frozen=True, slots=True)
class ChosenPlugin:
    """Plugin that the configuration names: imported, with its settings read."""

    plugin: Plugin
    section: str
    "Section of the configuration, such as `doors.NAME`."
    settings: Struct
    "Settings from the configuration, checked by the plugin's own type."
    module: Any
    "The plugin's module. Its `create` makes the door or the tools."

    @property
    def label(self) -> str:
        """Name for messages: the section and the package."""
        return f"{self.section} ({self.plugin.origin})"

    def create(self, protocol: type, *arguments: object) -> Any:
        """Calls the module's `create` with the settings and checks the result. `protocol`: class
        whose members the result must have. Raises ConfigError, whatever the package's code raises.
        """
        try:
            instance = self.module.create(self.settings, *arguments)
        except EarshotError as error:
            raise ConfigError(f"{self.label}: {error}") from error
        except Exception as error:
            logger.error("! %s does not start", self.label, exc_info=error)
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{self.label} does not start: {reason}") from error
        if missing := missing_members(instance, protocol):
            reason = f"what it creates is no {protocol.__name__}"
            raise ConfigError(f"{self.label}: {reason}: it has no {', '.join(missing)}")
        return instance


@dataclass(frozen=True, slots=True)
class OpenedDoor:
    """Door of another package, ready to be mounted."""

    label: str
    "Name for messages: the section and the package."
    name: str
    "Name of the plugin, which is also the tag of its routes in the API's documentation."
    routes: tuple[Route, ...]
    background: RunsInBackground | None
    "The door, if it has work that runs while the server runs; None if it has none."


def choose_plugins(group: Group, tables: Mapping[str, Mapping[str, Any]]) -> list[ChosenPlugin]:
    """Imports the plugins that the configuration names. Blocking. `tables`: plugin name ->
    settings. Raises ConfigError for a name that no package has, a broken package, or wrong
    settings."""
    installed = _installed_plugins(group)
    chosen = []
    for name, options in tables.items():
        section = f"{SECTIONS[group]}.{name}"
        plugin = installed.get(name)
        if plugin is None:
            available = ", ".join(installed) or "none"
            raise ConfigError(
                f"{section}: no installed package provides {name!r}; there are: {available}"
            )
        label = f"{section} ({plugin.origin})"
        try:
            module = module_of(plugin)
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from error
        settings = read_settings(module.Settings, options, where=label)
        chosen.append(ChosenPlugin(plugin, section, settings, module))
    return chosen


def create_tools(
    config: ToolsConfig, reserved_names: Collection[str] = ()
) -> dict[str, ToolProvider]:
    """Creates the tools of other packages, by their label in messages. Blocking. `reserved_names`:
    names of built-in tools. Raises ConfigError, also if a plugin uses one of these names."""
    providers: dict[str, ToolProvider] = {}
    for plugin in choose_plugins("earshot.tools", config.plugins):
        provider: ToolProvider = plugin.create(ToolProvider)
        try:
            names = [spec.name for spec in provider.tools(ToolContext("", "en"))]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{plugin.label} does not list its tools: {reason}") from error
        if clashes := sorted({*names} & {*reserved_names}):
            clashing_names = ", ".join(clashes)
            raise ConfigError(
                f"{plugin.label}: these tools are built in, rename yours: {clashing_names}"
            )
        providers[plugin.label] = provider
    return providers


def open_plugin_doors(chosen: Sequence[ChosenPlugin], services: DoorServices) -> list[OpenedDoor]:
    """Creates the doors of other packages that the configuration names. Raises ConfigError."""
    doors = []
    for plugin in chosen:
        door = plugin.create(PluginDoor, services)
        routes = tuple(door.routes)
        for route in routes:
            if not isinstance(route, Route):
                raise ConfigError(f"{plugin.label}: {route!r} is not a core.http.routes.Route")
        name = plugin.plugin.name
        routes = tuple(replace(route, tag=name) for route in routes)
        try:  # a route that cannot be described would break the page of the whole API
            document(routes, title="", version="", description="")
            for route in routes:
                UrlDispatcher().add_route(route.method, route.path, route.handler)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{plugin.label}: its routes cannot be mounted: {reason}") from error
        background = door if isinstance(door, RunsInBackground) else None
        doors.append(OpenedDoor(plugin.label, name, routes, background))
    return doors


def plugin_routes(own_routes: Sequence[Route], doors: Sequence[OpenedDoor]) -> tuple[Route, ...]:
    """Returns the routes of other packages, to be mounted after our own. Raises ConfigError for a
    route that exists already."""
    owners = {_operation(route): "Earshot itself" for route in own_routes}
    routes: list[Route] = []
    for door in doors:
        for route in door.routes:
            owner = owners.setdefault(_operation(route), door.label)
            if owner != door.label:
                clash = f"{route.method} {route.path} is answered by {owner}"
                raise ConfigError(f"{door.label}: {clash}: choose another path")
        routes += door.routes
    return tuple(routes)


def unused_plugins(config: Config) -> Iterator[tuple[bool, str]]:
    """Yields (is it usable, sentence for the operator) for each unused plugin and each refused
    engine. An unused plugin is installed but not named in the configuration. Blocking."""
    for sentence in refused():
        yield False, sentence
    tables = {"earshot.tools": config.tools.plugins, "earshot.doors": config.doors}
    for group, section in SECTIONS.items():
        kind = group.removeprefix("earshot.").removesuffix("s")
        for name, plugin in _installed_plugins(group).items():
            if name in tables[group]:
                continue
            label = f"{kind} {name} of {plugin.origin}"
            try:
                module_of(plugin)
            except ConfigError as error:
                yield False, f"{label} cannot be used: {error}"
            else:
                yield True, f"{label} is installed and not used; [{section}.{name}] turns it on"


def log_unused_plugins(config: Config) -> None:
    """Logs the installed plugins that the configuration does not name. Blocking."""
    for is_usable, sentence in unused_plugins(config):
        if is_usable:
            logger.info("%s", sentence)
        else:
            logger.warning("! %s", sentence)


def _installed_plugins(group: Group) -> Mapping[str, Plugin]:
    """Returns the plugins of a group by name. Blocking."""
    return find_plugins(group, BUILT_IN_DOORS if group == "earshot.doors" else ())


def _operation(route: Route) -> tuple[str, str]:
    """Returns method and path, without the names of path parameters."""
    return route.method, _PARAMETER.sub("{}", route.path)
