"""Maps commands to Home Assistant's services, for sentences that it does not understand. Pure.

Only entities that are surely exposed are touched, and never locks and alarms: for those Home
Assistant's own rules decide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devices.home_assistant.registries import HomeAssistantEntity, HomeAssistantHouse

MAX_TARGETS = 50
"A command for more entities is probably a misunderstanding."

Data = Callable[[Mapping[str, Any]], dict[str, Any] | None]
"Function from slots to the service's data; None: the slots do not say enough."


@dataclass(frozen=True, slots=True)
class ServiceCall:
    """One call of a service of Home Assistant."""

    domain: str
    service: str
    data: dict[str, Any]
    "Contains `entity_id`, a list."


@dataclass(frozen=True, slots=True)
class _ServiceRule:
    service: str
    data: Data = lambda slots: {}


def _number(slot: str, name: str, scale: float = 1) -> Data:
    def data(slots: Mapping[str, Any]) -> dict[str, Any] | None:
        value = slots.get(slot)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return {name: value * scale}

    return data


def _light(slots: Mapping[str, Any]) -> dict[str, Any] | None:
    brightness, color = _number("brightness", "brightness_pct")(slots), slots.get("color")
    named = {"color_name": color} if isinstance(color, str) and color else {}
    return {**(brightness or {}), **named} or None


_TURNED_ON = {
    **dict.fromkeys(
        ("climate", "fan", "humidifier", "input_boolean", "light", "media_player", "switch"),
        _ServiceRule("turn_on"),
    ),
    "cover": _ServiceRule("open_cover"),
    "scene": _ServiceRule("turn_on"),
    "script": _ServiceRule("turn_on"),
    "valve": _ServiceRule("open_valve"),
    "vacuum": _ServiceRule("start"),
}
_TURNED_OFF = {
    **{
        domain: _ServiceRule("turn_off")
        for domain, rule in _TURNED_ON.items()
        if rule.service == "turn_on"
    },
    "cover": _ServiceRule("close_cover"),
    "valve": _ServiceRule("close_valve"),
    "vacuum": _ServiceRule("return_to_base"),
}
del _TURNED_OFF["scene"]

SERVICES: Mapping[str, Mapping[str, _ServiceRule]] = {
    "HassTurnOn": _TURNED_ON,
    "HassTurnOff": _TURNED_OFF,
    "HassLightSet": {"light": _ServiceRule("turn_on", _light)},
    "HassSetPosition": {
        "cover": _ServiceRule("set_cover_position", _number("position", "position"))
    },
    "HassFanSetSpeed": {"fan": _ServiceRule("set_percentage", _number("percentage", "percentage"))},
    "HassClimateSetTemperature": {
        "climate": _ServiceRule("set_temperature", _number("temperature", "temperature"))
    },
    "HassMediaPause": {"media_player": _ServiceRule("media_pause")},
    "HassMediaUnpause": {"media_player": _ServiceRule("media_play")},
    "HassMediaNext": {"media_player": _ServiceRule("media_next_track")},
    "HassMediaPrevious": {"media_player": _ServiceRule("media_previous_track")},
    "HassSetVolume": {
        "media_player": _ServiceRule("volume_set", _number("volume_level", "volume_level", 0.01))
    },
    "HassVacuumStart": {"vacuum": _ServiceRule("start")},
    "HassVacuumReturnToBase": {"vacuum": _ServiceRule("return_to_base")},
}
"Intent -> domain -> the service to call."


def plan(house: HomeAssistantHouse, intent: str, slots: Mapping[str, Any]) -> list[ServiceCall]:
    """Returns one service call per domain that the command is about.

    The result is empty when the target is unclear or may not be controlled in this way. A command
    without a name needs an area, and a command without a domain needs a name.
    """
    rules = SERVICES.get(intent, {})
    targets = [
        one for one in _targets(house, slots) if one.domain in rules and one.is_surely_exposed
    ]
    calls: dict[str, ServiceCall] = {}
    for entity in targets[:MAX_TARGETS]:
        rule = rules[entity.domain]
        data = rule.data(slots)
        if data is None:
            return []
        new = ServiceCall(entity.domain, rule.service, {**data, "entity_id": []})
        calls.setdefault(entity.domain, new).data["entity_id"].append(entity.id)
    return list(calls.values())


def _targets(house: HomeAssistantHouse, slots: Mapping[str, Any]) -> Sequence[HomeAssistantEntity]:
    named = {key: slots[key] for key in ("name", "area") if isinstance(slots.get(key), str)}
    if not named:
        return ()
    found: Sequence[HomeAssistantEntity] = house.entities
    if "area" in named:
        area = house.area(named["area"])
        found = [one for one in found if area is not None and one.area == area.id]
    if "name" in named:
        wanted = named["name"].casefold()
        found = [one for one in found if wanted in map(str.casefold, one.names)]
    if domain := slots.get("domain"):
        found = [one for one in found if one.domain == domain]
    elif "name" not in named:
        return ()
    if device_class := slots.get("device_class"):
        found = [one for one in found if one.device_class == device_class]
    return found
