"""Names of a home's tools, areas and devices, read from the enums of the tools' schemas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.ports import ToolSpec

INTENT_PREFIX = "Hass"
"Prefix of the names of tools that have sentence templates."

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
"Intents about devices. They go to the house tool if there is one (see `IntentsLlm`)."


@dataclass(frozen=True, slots=True)
class HomeNames:
    """Names that a grammar is built from. Hashable, because it is the key of the grammar cache."""

    tools: tuple[str, ...]
    areas: tuple[str, ...]
    devices: tuple[tuple[str, str], ...]
    "(domain, name); the domain is empty if the schema does not group names by domain."
    house: str = ""
    "Name of the house tool (see `IntentsLlm`); empty: there is none."


def names_of(tools: Sequence[ToolSpec]) -> HomeNames:
    """Returns the names of the tools for Home Assistant's intents, and of areas and devices.

    Other tools are ignored, because each new result makes another grammar necessary. Areas and
    devices come from `ToolSpec.house`, or else from the schemas: `anyOf` with a `title` for each
    domain, and `enum` with the names.
    """
    house_tool = next((tool for tool in tools if tool.house is not None), None)
    if house_tool is not None and house_tool.house is not None:
        # Tools of MCP servers, which have a `fallback_name`, may appear and disappear at any time.
        built_in = (tool for tool in tools if not tool.fallback_name)
        others = {tool.name for tool in built_in if tool.name.startswith(INTENT_PREFIX)}
        tool_names = tuple(sorted(others.union(HOUSE_INTENTS)))
        house = house_tool.house
        return HomeNames(tool_names, house.areas, house.devices, house_tool.name)
    home_tools = [tool for tool in tools if tool.name.startswith(INTENT_PREFIX)]
    areas: dict[str, None] = {}
    devices: dict[tuple[str, str], None] = {}
    for tool in home_tools:
        properties: Mapping[str, Any] = tool.parameters.get("properties", {})
        areas.update(dict.fromkeys(properties.get("area", {}).get("enum", ())))
        name = properties.get("name", {})
        for group in (name, *name.get("anyOf", ())):
            domain = group.get("title", "")
            devices.update(dict.fromkeys((domain, device) for device in group.get("enum", ())))
    return HomeNames(tuple(sorted(tool.name for tool in home_tools)), tuple(areas), tuple(devices))
