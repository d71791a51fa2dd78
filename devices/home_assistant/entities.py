"""Mirrors Home Assistant's entities on the page: those of kinds that the page draws, in their
areas, live."""

from collections.abc import Mapping
from typing import get_args

from devices.home_assistant.protocol import SubscriptionEvent
from devices.home_assistant.registries import HomeAssistantEntity, HomeAssistantHouse
from devices.home_assistant.websocket import HomeAssistantWebSocket
from pipeline.tools.home import AreaConfig, EntityConfig, Home, HomeConfig, HomeEntity
from pipeline.tools.home.config import MAX_AREAS, MAX_ENTITIES, EntityKind
from pipeline.tools.home.state import AttributeValue

KINDS = get_args(EntityKind)

NOWHERE = AreaConfig(
    "no_area",
    {"en": ("elsewhere",), "de": ("anderswo",), "fr": ("ailleurs",), "es": ("otros lugares",)},
)
"Area for entities that are in none. If Home Assistant has an area with this id, that one is used."

MAX_NUMBER = 10_000
"Limit of an attribute, positive or negative: percentages, volumes and temperatures are smaller."

STATES: Mapping[str, Mapping[str, str]] = {
    "cover": {"open": "open", "opening": "open", "closed": "closed", "closing": "closed"},
    "lock": {
        "locked": "locked",
        "unlocked": "unlocked",
        "unlocking": "unlocked",
        "open": "unlocked",
    },
    "media_player": {"playing": "playing", "buffering": "playing", "off": "off", "standby": "off"},
    "climate": {"off": "off"},
}
"""Home Assistant's state -> Earshot's, where they differ. States that are missing here map to
`DEFAULT_STATES`."""

DEFAULT_STATES = {"cover": "closed", "lock": "locked", "media_player": "paused", "climate": "heat"}

ATTRIBUTES: Mapping[str, tuple[tuple[str, str, float], ...]] = {
    "light": (("brightness", "brightness", 100 / 255),),
    "fan": (("percentage", "speed", 1),),
    "cover": (("current_position", "position", 1),),
    "climate": (
        ("temperature", "target_temperature", 1),
        ("current_temperature", "current_temperature", 1),
    ),
    "media_player": (("volume_level", "volume", 100),),
}
"Kind -> Home Assistant's attribute, Earshot's attribute, and the factor between them."


class EntityMirror:
    """Keeps a `Home` equal to Home Assistant. Nothing else may change the devices of that home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._websocket: HomeAssistantWebSocket | None = None
        self._subscription: int | None = None
        self._shown: tuple[HomeAssistantEntity, ...] | None = None

    def states(self) -> tuple[HomeEntity, ...]:
        """Returns the states of all entities that are shown."""
        return self._home.entities()

    async def show(self, house: HomeAssistantHouse, websocket: HomeAssistantWebSocket) -> None:
        """Shows the entities of the house, and subscribes to their states. Does nothing if neither
        the house nor the connection has changed.

        Raises HomeAssistantCommandError, HomeAssistantUnreachable, and ConfigError for a house that
        cannot be drawn.
        """
        shown = tuple(entity for entity in house.entities if entity.domain in KINDS)[:MAX_ENTITIES]
        if websocket is self._websocket and shown == self._shown:
            return
        if websocket is self._websocket and self._subscription is not None:
            await websocket.call("unsubscribe_events", subscription=self._subscription)
        self._websocket, self._subscription, self._shown = websocket, None, ()
        self._home.configure(as_home_config(house, shown))
        self._shown = shown
        ids = [entity.id for entity in shown]
        # Without ids it would subscribe to the states of all entities.
        self._subscription = (
            await websocket.subscribe("subscribe_entities", entity_ids=ids) if ids else None
        )

    def take(self, event: SubscriptionEvent) -> None:
        """Applies states of entities, in the short form of `subscribe_entities`: `a` has new
        entities, `c` has changes with the new values under `+`."""
        for entity_id, state in _tables(event.event.get("a")).items():
            self._update(entity_id, state)
        for entity_id, change in _tables(event.event.get("c")).items():
            self._update(entity_id, _tables(change).get("+", {}))

    def _update(self, entity_id: str, update: object) -> None:
        kind = entity_id.partition(".")[0]
        known = self._shown or ()
        if not isinstance(update, dict) or not any(entity.id == entity_id for entity in known):
            return
        state = update.get("s")
        ours = _state(kind, state) if isinstance(state, str) else None
        self._home.update(entity_id, ours, **_attributes(kind, update.get("a")))


def as_home_config(house: HomeAssistantHouse, shown: tuple[HomeAssistantEntity, ...]) -> HomeConfig:
    """Converts the house to a `HomeConfig`. Names go under `en`, whatever their language is."""
    areas = [AreaConfig(area.id, {"en": area.names}) for area in house.areas[: MAX_AREAS - 1]]
    known = {area.id for area in areas}
    if NOWHERE.id not in known and any(entity.area not in known for entity in shown):
        areas.append(NOWHERE)
    return HomeConfig(
        tuple(areas),
        tuple(
            EntityConfig(
                entity.id,
                entity.area if entity.area in known else NOWHERE.id,
                entity.domain,  # type: ignore[arg-type]  # of KINDS
                {"en": entity.names},
                entity.device_class,
            )
            for entity in shown
        ),
    )


def _state(kind: str, home_assistant_state: str) -> str:
    if kind not in DEFAULT_STATES:
        return "on" if home_assistant_state == "on" else "off"
    return STATES[kind].get(home_assistant_state, DEFAULT_STATES[kind])


def _attributes(kind: str, update: object) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for theirs, ours, factor in ATTRIBUTES.get(kind, ()):
        value = _tables(update).get(theirs)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if abs(value) <= MAX_NUMBER:
            found[ours] = round(value * factor, 1) if kind == "climate" else round(value * factor)
    return found


def _tables(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
