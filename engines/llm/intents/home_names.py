"""What a grammar needs to know of the home, read from the enums of the tools it is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.ports import ToolSpec

INTENT = "Hass"
"How the names of tools begin that sentences are known for."


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
    "HassVacuumReturnToBase",
    "HassVacuumStart",
)
"What is said about a house, and told to the tool that takes whole sentences if there is one."


@dataclass(frozen=True, slots=True)
class HomeNames:
    """Hashable, so that grammars can be remembered by it."""

    tools: tuple[str, ...]
    areas: tuple[str, ...]
    devices: tuple[tuple[str, str], ...]
    "(domain, name); the domain is empty when the schema does not group names."
    house: str = ""
    "Name of the tool that is told whole sentences about the house; empty: there is none."


def names_of(tools: Sequence[ToolSpec]) -> HomeNames:
    """Tool names, area names and device names. Devices are grouped by `anyOf` with `title`s.

    Of Home Assistant's intents alone: whatever else there is comes and goes, and a grammar is
    loaded for each of these answers. Where a tool takes whole sentences, they are what it says.
    """
    told = next((tool for tool in tools if tool.house is not None), None)
    if told is not None and told.house is not None:
        # Those of servers, which come and go, have a name to fall back on.
        own = (tool for tool in tools if not tool.fallback_name)
        others = {tool.name for tool in own if tool.name.startswith(INTENT)}
        known = tuple(sorted(others.union(HOUSE_INTENTS)))
        return HomeNames(known, told.house.areas, told.house.devices, told.name)
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
