"""Maps commands to Home Assistant's services, for sentences that it does not understand. Pure.

Only entities that are surely exposed are touched, and never locks and alarms: for those Home
Assistant's own rules decide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devices.home_assistant.registries import HomeAssistantEntity, HomeAssistantHouse
from pipeline.tools.home import HomeEntity

MAX_TARGETS = 50
"A command for more entities is probably a misunderstanding."

LIGHT_STEP = 25
'Percent by which "brighter" and "dim" change a light.'

EVERYTHING = ("light", "switch", "fan", "media_player")
"""Kinds that "everything" means: no doors and locks, and no heating, which may protect from
frost."""

DataBuilder = Callable[[Mapping[str, Any]], dict[str, Any] | None]
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
    data: DataBuilder = lambda slots: {}


def _number(slot: str, name: str, scale: float = 1) -> DataBuilder:
    def data(slots: Mapping[str, object]) -> dict[str, Any] | None:
        value = slots.get(slot)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return {name: value * scale}

    return data


def _light(slots: Mapping[str, object]) -> dict[str, Any] | None:
    step = {"up": LIGHT_STEP, "down": -LIGHT_STEP}.get(str(slots.get("brightness_step")))
    if step is not None:
        return {"brightness_step_pct": step}
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


def service_calls(
    house: HomeAssistantHouse, intent: str, slots: Mapping[str, Any]
) -> list[ServiceCall]:
    """Returns one service call per domain that the command is about.

    The result is empty when the target is unclear or may not be controlled in this way. A command
    without a name needs an area, and a command without a domain needs a name, unless it is for
    everything.
    """
    rules = SERVICES.get(intent, {})
    targets = [
        entity
        for entity in _targets(house, slots)
        if entity.domain in rules and entity.is_surely_exposed
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


def restoring_calls(before: Sequence[HomeEntity]) -> list[ServiceCall]:
    """Returns the service calls that give entities the state that they had before a change.

    Properties that Earshot does not know, such as a light's color, are left as they are.
    """
    calls: list[ServiceCall] = []
    for entity in before:
        kind, entity_id = entity.config.kind, entity.config.id
        for service, data in _restoring_services(kind, entity.state, entity.attributes):
            calls.append(ServiceCall(kind, service, {**data, "entity_id": [entity_id]}))
    return calls


def _restoring_services(
    kind: str, state: str, attributes: Mapping[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """Returns (service, data) for one entity."""
    match kind, state:
        case "cover", _:
            position = attributes.get("position", 0)
            if 0 < position < 100:
                return [("set_cover_position", {"position": position})]
            return [("open_cover" if state == "open" else "close_cover", {})]
        case "climate", _:
            return [("set_temperature", {"temperature": attributes["target_temperature"]})]
        case _, "off":
            return [("turn_off", {})]
        case "light", _:
            return [("turn_on", {"brightness_pct": attributes.get("brightness", 100)})]
        case "media_player", _:
            return [("media_play" if state == "playing" else "media_pause", {})]
        case _:
            return [("turn_on", {})]


def _targets(house: HomeAssistantHouse, slots: Mapping[str, Any]) -> Sequence[HomeAssistantEntity]:
    named = {key: slots[key] for key in ("name", "area") if isinstance(slots.get(key), str)}
    if not named and slots.get("everywhere") is not True:
        return ()
    found: Sequence[HomeAssistantEntity] = house.entities
    if "area" in named:
        area = house.area(named["area"])
        found = [entity for entity in found if area is not None and entity.area == area.id]
    if "name" in named:
        wanted = named["name"].casefold()
        found = [entity for entity in found if wanted in map(str.casefold, entity.names)]
    if domain := slots.get("domain"):
        found = [entity for entity in found if entity.domain == domain]
    elif slots.get("everywhere") is True:
        found = [entity for entity in found if entity.domain in EVERYTHING]
    elif "name" not in named:
        return ()
    if device_class := slots.get("device_class"):
        found = [entity for entity in found if entity.device_class == device_class]
    return found
