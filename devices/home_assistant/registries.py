"""Reads entities, areas and their names from Home Assistant's registries. Pure.

Only entities that are exposed to Assist count: users cannot ask for the others, so recognition must
not expect their names.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from devices.home_assistant.errors import HomeAssistantCommandError, HomeAssistantUnreachable
from devices.home_assistant.websocket import HomeAssistantWebSocket

MAX_ENTITIES = 2000
"""Limit of the exposed entities that are known by name: each sentence is matched against all of
them."""

MAX_AREAS = 300
MAX_NAME_CHARS = 80
"Limit of a name; longer names are not spoken."

MAX_ALIASES = 10
"Limit of the aliases of one entity or area."

ASSISTANT = "conversation"
"Name of Assist, Home Assistant's voice assistant, in the settings that expose entities to it."

USUALLY_EXPOSED = frozenset(
    {
        *("climate", "cover", "fan", "humidifier", "light", "media_player", "scene", "switch"),
        *("todo", "vacuum", "water_heater"),
    }
)
"Domains that Home Assistant exposes by default. It decides when it is first asked about an entity."

CONTROLLED = USUALLY_EXPOSED | {
    *("alarm_control_panel", "button", "input_boolean", "lawn_mower", "lock", "script", "siren"),
    "valve",
}
"Domains that people give commands to. Others are only asked about, and rarely by name."


@dataclass(frozen=True, slots=True)
class HomeAssistantEntity:
    """An entity that is exposed to Assist."""

    id: str
    domain: str
    names: tuple[str, ...]
    "The name that is shown, then the aliases."
    area: str = ""
    "Id of its area, or of its device's area; empty: it has none."
    device_class: str = ""
    is_surely_exposed: bool = True
    "True: surely exposed. False: probably, but Home Assistant has not decided yet."


@dataclass(frozen=True, slots=True)
class HomeAssistantArea:
    """An area and its names."""

    id: str
    names: tuple[str, ...]

    def spoken_name(self, name: str) -> str:
        """Returns `name` if it is a name of this area, else the name that is shown."""
        return name if name.casefold() in map(str.casefold, self.names) else self.names[0]


@dataclass(frozen=True, slots=True)
class HomeAssistantHouse:
    """All entities, areas and floors that users can name. Equal houses have the same names."""

    entities: tuple[HomeAssistantEntity, ...] = ()
    areas: tuple[HomeAssistantArea, ...] = ()
    floors: tuple[str, ...] = ()
    "Names of the floors, with aliases."
    left_out: int = 0
    "Number of exposed entities beyond MAX_ENTITIES."

    def area(self, name: str) -> HomeAssistantArea | None:
        """Returns the area with this name, alias or id; None: there is none."""
        wanted = name.casefold()
        for area in self.areas:
            if wanted == area.id.casefold() or wanted in map(str.casefold, area.names):
                return area
        return None

    def keywords(self, limit: int) -> tuple[str, ...]:
        """Returns at most `limit` names that recognition should expect. Areas come first: most
        sentences have one."""
        named = [area.names for area in self.areas] + [entity.names for entity in self.entities]
        firsts = [names[0] for names in named]
        others = [name for names in named for name in names[1:]]
        return tuple(dict.fromkeys((*firsts, *self.floors, *others)))[:limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySnapshot:
    """Answers of Home Assistant's registries; each may be missing or malformed."""

    states: object
    "Result of `get_states`."
    entries: object
    """Result of `config/entity_registry/get_entries`: entity id -> its entry with aliases and
    options."""
    devices: object
    areas: object
    floors: object
    exposed: object
    "Result of `homeassistant/expose_entity/list`; None when the token's user may not ask."


def build_house(snapshot: RegistrySnapshot) -> HomeAssistantHouse:
    """Builds the house from the answers of the registries."""
    areas = tuple(_areas(snapshot.areas))
    known = {area.id for area in areas}
    devices = _tables(snapshot.devices)
    device_areas = {_text(device.get("id")): _text(device.get("area_id")) for device in devices}
    device_areas.pop("", None)
    entries = snapshot.entries if isinstance(snapshot.entries, Mapping) else {}
    found: list[HomeAssistantEntity] = []
    for state in _tables(snapshot.states):
        entity_id = state.get("entity_id")
        if not isinstance(entity_id, str):
            continue
        entry = _table(entries.get(entity_id))
        decision = _decision(entity_id, entry, snapshot.exposed)
        attributes = _table(state.get("attributes"))
        names = _names(attributes.get("friendly_name"), entry.get("aliases"))
        if not names or not (
            _is_exposed_by_default(entity_id, entry) if decision is None else decision
        ):
            continue
        area = _text(entry.get("area_id")) or device_areas.get(_text(entry.get("device_id")), "")
        found.append(
            HomeAssistantEntity(
                entity_id,
                entity_id.partition(".")[0],
                names,
                area if area in known else "",
                _text(attributes.get("device_class")),
                decision is True,
            )
        )
    # Entities that can be switched go first: sensors are many and rarely named.
    found.sort(key=lambda entity: (entity.domain not in CONTROLLED, entity.id))
    floors = tuple(n for floor in _tables(snapshot.floors) for n in _names_of(floor))[:MAX_AREAS]
    return HomeAssistantHouse(
        tuple(found[:MAX_ENTITIES]), areas, floors, max(0, len(found) - MAX_ENTITIES)
    )


def candidate_ids(states: object, exposed: object) -> list[str]:
    """Returns ids of the entities whose registry entries are worth reading: those that may be
    exposed."""
    ids = (state.get("entity_id") for state in _tables(states))
    known = [entity_id for entity_id in ids if isinstance(entity_id, str)]
    likely = CONTROLLED if exposed is None else USUALLY_EXPOSED
    return [
        entity_id
        for entity_id in known
        if _is_listed(entity_id, exposed) or entity_id.partition(".")[0] in likely
    ]


def _is_listed(entity_id: str, exposed: object) -> bool:
    """Returns True if the list of exposed entities has this one.

    For other entities the list does not say whether Home Assistant has decided.
    """
    switches = _table(_table(exposed).get("exposed_entities")).get(entity_id)
    return _table(switches).get(ASSISTANT) is True


def _decision(entity_id: str, entry: Mapping[str, object], exposed: object) -> bool | None:
    """Returns whether Home Assistant exposes the entity; None: it has not decided yet."""
    if _is_listed(entity_id, exposed):
        return True
    option = _table(_table(entry.get("options")).get(ASSISTANT)).get("should_expose")
    return option if isinstance(option, bool) else None


def _is_exposed_by_default(entity_id: str, entry: Mapping[str, object]) -> bool:
    """Returns whether Home Assistant would expose the entity by default."""
    is_hidden = entry.get("entity_category") or entry.get("hidden_by")
    return not is_hidden and entity_id.partition(".")[0] in USUALLY_EXPOSED


def _areas(value: object) -> Iterable[HomeAssistantArea]:
    for entry in _tables(value)[:MAX_AREAS]:
        area_id, names = entry.get("area_id"), _names_of(entry)
        if isinstance(area_id, str) and names:
            yield HomeAssistantArea(area_id, names)


def _names_of(entry: Mapping[str, object]) -> tuple[str, ...]:
    return _names(entry.get("name"), entry.get("aliases"))


def _names(name: object, aliases: object) -> tuple[str, ...]:
    """Returns the shown name, then the aliases, which come in any order and are sorted here."""
    others = (
        [alias for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []
    )
    names = [" ".join(text.split()) for text in (name, *sorted(others)) if isinstance(text, str)]
    spoken = (text for text in names if 0 < len(text) <= MAX_NAME_CHARS)
    return tuple(dict.fromkeys(spoken))[: 1 + MAX_ALIASES]


def _tables(value: object) -> list[Mapping[str, object]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# Reads the house from a connected Home Assistant.

logger = logging.getLogger(__name__)

CHANGES = (
    "area_registry_updated",
    "device_registry_updated",
    "entity_registry_updated",
    "floor_registry_updated",
)
"Events after which names may have changed."

TIMEOUT_S = 30.0
"Limit for one list: a small computer with thousands of entities takes seconds."

ENTRIES_AT_ONCE = 500
"Registry entries per request: more would block Home Assistant's own event loop."


async def fetch(websocket: HomeAssistantWebSocket) -> HomeAssistantHouse:
    """Reads all exposed entities, with names. Raises HomeAssistantUnreachable."""
    states = await _ask(websocket, "get_states")
    exposed = await _ask(websocket, "homeassistant/expose_entity/list")
    entries: dict[str, object] = {}
    wanted = candidate_ids(states, exposed)
    for at in range(0, len(wanted), ENTRIES_AT_ONCE):
        some = wanted[at : at + ENTRIES_AT_ONCE]
        answer = await _ask(websocket, "config/entity_registry/get_entries", entity_ids=some)
        entries |= answer if isinstance(answer, dict) else {}
    snapshot = RegistrySnapshot(
        states=states,
        entries=entries,
        devices=await _ask(websocket, "config/device_registry/list"),
        areas=await _ask(websocket, "config/area_registry/list"),
        floors=await _ask(websocket, "config/floor_registry/list"),
        exposed=exposed,
    )
    # 5 000 states take a tenth of a second, too long for the event loop.
    return await asyncio.to_thread(build_house, snapshot)


async def subscribe(websocket: HomeAssistantWebSocket) -> None:
    """Subscribes to changes, as far as the token's user may. Raises HomeAssistantUnreachable."""
    for kind in CHANGES:
        await _ask(websocket, "subscribe_events", event_type=kind)


async def _ask(websocket: HomeAssistantWebSocket, kind: str, **fields: object) -> object:
    """Returns the answer; None when Home Assistant does not know the command or does not permit
    it."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await websocket.call(kind, **fields)
    except HomeAssistantCommandError as error:
        logger.debug("< home assistant: %s: %s", kind, error)
        return None
    except TimeoutError:
        raise HomeAssistantUnreachable(f"no answer to {kind} within {TIMEOUT_S:g} s") from None
