"""Names of a home's tools, areas and devices, read from the enums of the tools' schemas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.ports import ToolSpec

INTENT = "Hass"
"Prefix of the names of tools for which there are sentence templates."

UNDO = "HassUndo"
"Name of the tool that restores the state before a change."

HOUSE_INTENTS = (
    "HassClimateGetTemperature",
    "HassClimateSetTemperature",
    "HassFanSetSpeed",
    "HassGetState",
    "HassLawnMowerDock",
    "HassLawnMowerStartMowing",
    "HassLightSet",
    "HassMediaNext",
    "HassMediaPause",
    "HassMediaPlayerMute",
    "HassMediaPlayerUnmute",
    "HassMediaPrevious",
    "HassMediaUnpause",
    "HassSetPosition",
    "HassSetVolume",
    "HassSetVolumeRelative",
    "HassTurnOff",
    "HassTurnOn",
    UNDO,
    "HassVacuumReturnToBase",
    "HassVacuumStart",
)
"Intents about a house. They go to the tool that takes whole sentences, if there is one."


@dataclass(frozen=True, slots=True)
class HomeNames:
    """The names that a grammar is built from. Hashable, so that grammars can be cached by it."""

    tools: tuple[str, ...]
    areas: tuple[str, ...]
    devices: tuple[tuple[str, str], ...]
    "(domain, name); the domain is empty when the schema does not group names."
    house: str = ""
    "Name of the tool that takes whole sentences about the house; empty: there is none."


def names_of(tools: Sequence[ToolSpec]) -> HomeNames:
    """Returns the names of the tools for Home Assistant's intents, and of areas and devices.

    Other tools are ignored: they come and go, and each different result loads another grammar.
    Devices are grouped by `anyOf` with `title`s in the schema. If a tool takes whole sentences, its
    `house` lists the areas and devices.
    """
    house_tool = next((tool for tool in tools if tool.house is not None), None)
    if house_tool is not None and house_tool.house is not None:
        # Tools of MCP servers come and go. They are those with a `fallback_name`.
        own = (tool for tool in tools if not tool.fallback_name)
        others = {tool.name for tool in own if tool.name.startswith(INTENT)}
        known = tuple(sorted(others.union(HOUSE_INTENTS)))
        return HomeNames(known, house_tool.house.areas, house_tool.house.devices, house_tool.name)
    mine = [tool for tool in tools if tool.name.startswith(INTENT)]
    areas: dict[str, None] = {}
    devices: dict[tuple[str, str], None] = {}
    for tool in mine:
        properties: Mapping[str, Any] = tool.parameters.get("properties", {})
        areas.update(dict.fromkeys(properties.get("area", {}).get("enum", ())))
        name = properties.get("name", {})
        for group in (name, *name.get("anyOf", ())):
            domain = group.get("title", "")
            devices.update(dict.fromkeys((domain, own) for own in group.get("enum", ())))
    return HomeNames(tuple(sorted(tool.name for tool in mine)), tuple(areas), tuple(devices))
