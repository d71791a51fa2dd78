"""Specifications of the device tools. Their schemas list the names in the home."""

from collections import defaultdict
from typing import Any

from core.ports import ToolSpec
from pipeline.tools.home import Home, names_in
from pipeline.tools.skills.arguments import choice_schema, number_schema, text_schema, tool

MIN_TARGET_C = 5
"Lowest target temperature: frost protection of a usual thermostat."
MAX_TARGET_C = 35
"Highest target temperature: a higher one is a mistake."
COLORS = (
    "white",
    "red",
    "orange",
    "yellow",
    "green",
    "blue",
    "purple",
    "pink",
    "brown",
    "turquoise",
)
PLAYER = ("media_player",)
"Kinds that the media tools act on."
_CHANGES = {
    "type": "array",
    "items": {"type": "string"},
    "description": "The values `undo` of the results of the calls to take back",
}


def device_specs(home: Home, language: str) -> tuple[ToolSpec, ...]:
    """Returns the device tools, with all names of areas and devices of this home in `language`."""
    names = _TargetSchemas(home, language)
    return (*_switch_specs(names), *_set_specs(names), *_ask_specs(names), *_media_specs(names))


class _TargetSchemas:
    """Makes the schemas of a tool's targets: device names grouped by kind, and areas."""

    def __init__(self, home: Home, language: str) -> None:
        self._kinds: dict[str, list[str]] = defaultdict(list)
        self._classes: dict[str, list[str]] = defaultdict(list)
        for entity in home.entities():
            config = entity.config
            self._kinds[config.kind] += names_in(config.names, language)
            if config.device_class:
                self._classes[config.kind].append(config.device_class)
        self._areas = [
            name for area in home.config.areas for name in names_in(area.names, language)
        ]

    def target(self, *kinds: str) -> dict[str, dict[str, Any]]:
        """Returns the schemas of a tool's targets. kinds: kinds that it acts on; none: all."""
        present = [kind for kind in kinds or tuple(self._kinds) if self._kinds.get(kind)]
        groups = [
            {"title": kind, "enum": list(dict.fromkeys(self._kinds[kind]))} for kind in present
        ]
        classes = [name for kind in present for name in self._classes.get(kind, ())]
        schemas: dict[str, dict[str, object]] = {
            "name": {
                "type": "string",
                "description": "Name of one device, grouped by domain",
                "anyOf": groups,
            },
            "area": choice_schema("Name of a room or area", list(dict.fromkeys(self._areas))),
            "domain": choice_schema("Kind of device, for all of that kind in an area", present),
        }
        if classes:
            schemas["device_class"] = choice_schema(
                "Finer kind of device", sorted(dict.fromkeys(classes))
            )
        return schemas


def _switch_specs(names: _TargetSchemas) -> tuple[ToolSpec, ...]:
    everywhere = {
        "type": "boolean",
        "description": "All of that kind in the whole home; without a kind: all lights, switches, "
        "fans and players",
    }
    target = {**names.target(), "everywhere": everywhere}
    return (
        tool("HassTurnOn", "Turns on a device, opens a cover, locks a lock", target),
        tool("HassTurnOff", "Turns off a device, closes a cover, unlocks a lock", target),
        tool(
            "HassUndo",
            "Takes back changes of devices: restores their former state",
            {"changes": _CHANGES},
            required=("changes",),
        ),
    )


def _set_specs(names: _TargetSchemas) -> tuple[ToolSpec, ...]:
    percent = number_schema("Percent", 0, 100)
    degrees = number_schema("Degrees Celsius", MIN_TARGET_C, MAX_TARGET_C)
    return (
        tool(
            "HassLightSet",
            "Sets the brightness or the color of lights",
            {
                **names.target("light"),
                "brightness": percent,
                "brightness_step": choice_schema("Brighter or darker", ("up", "down")),
                "color": choice_schema("", COLORS),
            },
        ),
        tool(
            "HassSetPosition",
            "Moves a cover to a position, 0 is closed",
            {**names.target("cover"), "position": percent},
            required=("position",),
        ),
        tool(
            "HassFanSetSpeed",
            "Sets the speed of a fan",
            {**names.target("fan"), "percentage": percent},
            required=("percentage",),
        ),
        tool(
            "HassClimateSetTemperature",
            "Sets the target temperature of a heater or of an area",
            {**names.target("climate"), "temperature": degrees},
            required=("temperature",),
        ),
    )


def _ask_specs(names: _TargetSchemas) -> tuple[ToolSpec, ...]:
    return (
        tool(
            "HassClimateGetTemperature",
            "Tells the current and the target temperature",
            names.target("climate"),
            is_read_only=True,
        ),
        tool(
            "HassGetState",
            "Tells which devices are in a state, or in which state a device is",
            {
                **names.target(),
                "state": text_schema("on, off, open, closed, locked, unlocked, ..."),
            },
            is_read_only=True,
        ),
    )


def _media_specs(names: _TargetSchemas) -> tuple[ToolSpec, ...]:
    player = names.target(*PLAYER)
    volume = number_schema("Percent", 0, 100)
    step = {"description": "up, down, or a change in percent", "type": ["string", "number"]}
    return (
        tool("HassMediaPause", "Pauses what plays", player),
        tool("HassMediaUnpause", "Plays, or goes on playing", player),
        tool("HassMediaNext", "Skips to the next track", player),
        tool("HassMediaPrevious", "Goes back to the previous track", player),
        tool(
            "HassSetVolume",
            "Sets the volume",
            {**player, "volume_level": volume},
            required=("volume_level",),
        ),
        tool(
            "HassSetVolumeRelative",
            "Makes it louder or quieter",
            {**player, "volume_step": step},
            required=("volume_step",),
        ),
    )
