"""The home that voice commands control: one shared object that skills change and pages watch.

It is the demo home of the configuration, or a copy of the home that Home Assistant controls.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from core.conversation.ids import new_id
from core.errors import ConfigError
from pipeline.tools.home.config import EntityConfig, EntityKind, HomeConfig
from pipeline.tools.home.state import (
    AreaState,
    AttributeValue,
    EntityState,
    HomeReachability,
    HomeState,
    ShoppingListItem,
    TimerState,
)

MAX_LIST_ITEMS = 100
"Most items of the shopping list. Each change sends the whole list."
MAX_ITEM_CHARS = 80
"Most characters of an item: more than any spoken product name has."

STATES: Mapping[EntityKind, tuple[str, ...]] = {
    "light": ("off", "on"),
    "switch": ("off", "on"),
    "fan": ("off", "on"),
    "cover": ("closed", "open"),
    "climate": ("heat", "off"),
    "media_player": ("paused", "playing", "off"),
    "lock": ("locked", "unlocked"),
}
"States of each kind of device. The first one is the state at the start."

ATTRIBUTES: Mapping[EntityKind, Mapping[str, AttributeValue]] = {
    "light": {"brightness": 100, "color": "white"},
    "switch": {},
    "fan": {"speed": 50},
    "cover": {"position": 0},
    "climate": {"target_temperature": 20.0, "current_temperature": 20.0},
    "media_player": {"volume": 40, "track": 1},
    "lock": {},
}
"Attributes of each kind of device at the start."


@dataclass(frozen=True, slots=True)
class HomeEntity:
    """A device with its present state."""

    config: EntityConfig
    state: str
    attributes: Mapping[str, AttributeValue]

    def name(self, language: str) -> str:
        """Returns the first name in `language` (see `names_in`)."""
        return names_in(self.config.names, language)[0]


class Home:
    """Areas, devices, timers and the shopping list of a home.

        home = Home(default_home(), language="en")
        home.update("light.kitchen", "on", brightness=40)
        async for state in home.watch():  # the latest state after each change

    Changes are synchronous. language: ISO 639-1 code of the names in snapshots by default.
    """

    def __init__(self, config: HomeConfig, *, language: str = "en") -> None:
        self.config = config
        self.revision = 1
        "Number that grows with each change."
        self._language = language
        self._entities = {entity.id: _initial_entity(entity) for entity in config.entities}
        self._items: dict[str, ShoppingListItem] = {}
        self._timers: Callable[[], Iterable[TimerState]] = tuple
        self._reach: HomeReachability = "here"
        self._changed = asyncio.Event()

    def copy(self) -> "Home":
        """Returns a home of the same devices in the same states, which nobody watches."""
        home = Home(self.config, language=self._language)
        home._entities = dict(self._entities)
        return home

    def snapshot(self, language: str | None = None) -> HomeState:
        """Returns the present state of the home. language: of the names; None: the default."""
        language = language or self._language
        return HomeState(
            revision=self.revision,
            areas=tuple(
                AreaState(area.id, _title(names_in(area.names, language)[0]))
                for area in self.config.areas
            ),
            entities=tuple(_entity_state(entity, language) for entity in self._entities.values()),
            shopping_list=tuple(self._items.values()),
            timers=tuple(self._timers()),
            reach=self._reach,
        )

    async def watch(self, language: str | None = None) -> AsyncGenerator[HomeState, None]:
        """Yields the present state, then the state after each change.

        A slow reader misses states, but always gets the latest. language: as for `snapshot`.
        """
        seen = 0
        while True:
            seen = await self._later_revision(seen)
            yield self.snapshot(language)

    async def watch_timers(self) -> AsyncGenerator[tuple[TimerState, ...], None]:
        """Yields the present timers, then the timers after each change of the home."""
        seen = 0
        while True:
            seen = await self._later_revision(seen)
            yield tuple(self._timers())

    async def _later_revision(self, seen: int) -> int:
        """Waits until the revision is not `seen` any more, and returns it."""
        if seen == self.revision:
            await self._changed.wait()
        return self.revision

    def entities(self) -> tuple[HomeEntity, ...]:
        """Returns all devices."""
        return tuple(self._entities.values())

    def entity(self, entity_id: str) -> HomeEntity:
        """Returns the device with this id. Raises KeyError."""
        return self._entities[entity_id]

    def area_name(self, area_id: str, language: str) -> str:
        """Returns the area's name in `language`, or the id itself if the area is unknown."""
        areas = (area for area in self.config.areas if area.id == area_id)
        return next((names_in(area.names, language)[0] for area in areas), area_id)

    def update(
        self, entity_id: str, state: str | None = None, **attributes: AttributeValue
    ) -> HomeEntity:
        """Sets the state and attributes of a device, and returns the device.

        state: one of STATES for its kind; None: unchanged.

        Raises KeyError for an unknown id, ValueError for a state that its kind does not have.
        """
        old = self._entities[entity_id]
        if state is not None and state not in STATES[old.config.kind]:
            raise ValueError(f"{old.config.kind} has no state {state!r}")
        new = HomeEntity(old.config, state or old.state, {**old.attributes, **attributes})
        if new != old:
            self._entities[entity_id] = new
            self.touch()
        return new

    def add_item(self, text: str) -> ShoppingListItem | None:
        """Adds an item to the shopping list, unless it is there, and returns it.

        None: the list is full.
        """
        text = " ".join(text.split())[:MAX_ITEM_CHARS]
        for item in self._items.values():
            if item.text.casefold() == text.casefold() and not item.done:
                return item
        if len(self._items) >= MAX_LIST_ITEMS:
            self._drop_oldest_done()
        if len(self._items) >= MAX_LIST_ITEMS:
            return None
        item = ShoppingListItem(new_id("item"), text)
        self._items[item.id] = item
        self.touch()
        return item

    def complete_item(self, text: str) -> ShoppingListItem | None:
        """Ticks an item off the shopping list by its text.

        Returns the item, or None if it is not on the list.
        """
        wanted = " ".join(text.split()).casefold()
        for item in self._items.values():
            if item.text.casefold() == wanted and not item.done:
                return self.tick(item.id)
        return None

    def tick(self, item_id: str, *, is_done: bool = True) -> ShoppingListItem | None:
        """Ticks an item off the shopping list, or puts it on again.

        Returns the item, or None for an unknown id.
        """
        item = self._items.get(item_id)
        if item is None or item.done == is_done:
            return item
        changed = ShoppingListItem(item.id, item.text, done=is_done)
        self._items[item_id] = changed
        self.touch()
        return changed

    def open_items(self) -> tuple[ShoppingListItem, ...]:
        """Returns the items that are still to be bought."""
        return tuple(item for item in self._items.values() if not item.done)

    def configure(self, config: HomeConfig) -> None:
        """Replaces areas and devices. Devices in both configurations keep their state."""
        kept = self._entities
        self.config = config
        self._entities = {
            entity.id: replace(kept[entity.id], config=entity)
            if entity.id in kept
            else _initial_entity(entity)
            for entity in config.entities
        }
        self.touch()

    def show_reach(self, reach: HomeReachability) -> None:
        """Sets whether the system that this home mirrors can be reached."""
        if reach != self._reach:
            self._reach = reach
            self.touch()

    def show_timers(self, timers: Callable[[], Iterable[TimerState]]) -> None:
        """Includes timers in snapshots.

        timers: returns the present timers. Its owner calls `touch` when they change.
        """
        self._timers = timers

    def touch(self) -> None:
        """Wakes the watchers, because something in the snapshot has changed."""
        self.revision += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _drop_oldest_done(self) -> None:
        for item in self._items.values():
            if item.done:
                del self._items[item.id]
                return


def names_in(names: Mapping[str, tuple[str, ...]], language: str) -> tuple[str, ...]:
    """Returns the names in `language`, else the English ones, else those in any language."""
    return (
        names.get(language) or names.get("en") or next(group for group in names.values() if group)
    )


def _initial_entity(config: EntityConfig) -> HomeEntity:
    states = STATES[config.kind]
    state = config.state or states[0]
    if state not in states:
        raise ConfigError(
            f"home.entities: {config.id!r} cannot be {state!r}; "
            f"a {config.kind} is {' or '.join(states)}"
        )
    return HomeEntity(config, state, {**ATTRIBUTES[config.kind], **config.attributes})


def _entity_state(entity: HomeEntity, language: str) -> EntityState:
    return EntityState(
        id=entity.config.id,
        name=_title(entity.name(language)),
        area=entity.config.area,
        kind=entity.config.kind,
        state=entity.state,
        attributes=dict(entity.attributes),
        device_class=entity.config.device_class,
    )


def _title(name: str) -> str:
    return name[:1].upper() + name[1:]
