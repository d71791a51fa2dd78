"""State of the home at one moment. Encoded as JSON it is the `earshot.home` event."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol

import msgspec

AttributeValue = int | float | str

OnOff = Literal["on", "off"]


class AreaState(msgspec.Struct, frozen=True):
    """An area of the home."""

    id: str
    name: str


class EntityState(msgspec.Struct, frozen=True):
    """A device of the home, as it is now."""

    id: str
    name: str
    area: str
    kind: str
    state: str
    "One of on, off, open, closed, playing, paused, heat, locked, unlocked."
    attributes: dict[str, AttributeValue]
    "Attributes: brightness, position, volume and speed 0 to 100; temperatures in degrees Celsius."
    device_class: str = ""


class ShoppingListItem(msgspec.Struct, frozen=True):
    """An item of the shopping list; `done` when it is ticked off."""

    id: str
    text: str
    done: bool = False


class TimerState(msgspec.Struct, frozen=True):
    """A timer at the moment of the snapshot."""

    id: str
    name: str
    "Name of the timer. Empty: it has none."
    conversation_id: str
    duration_s: float
    "Duration as it was set, with time that was added or taken later."
    remaining_s: float
    "Time left at the moment of the snapshot."
    state: Literal["running", "paused", "ringing"]


HomeReachability = Literal["here", "away", "refused"]
"""Reachability of the system behind the home. away: it cannot be reached, and the last known state
is shown. refused: the same, and it is not tried again."""


class HomeState(msgspec.Struct, frozen=True):
    """The whole home at one moment."""

    revision: int
    "Number that grows with every change."
    areas: tuple[AreaState, ...]
    entities: tuple[EntityState, ...]
    shopping_list: tuple[ShoppingListItem, ...]
    timers: tuple[TimerState, ...]
    reach: HomeReachability = "here"


class HomeFeed(Protocol):
    """Home whose changes can be watched."""

    def watch(self, language: str | None = None) -> AsyncGenerator[HomeState, None]:
        """Yields the present state, then the state after each change. A slow reader gets only the
        latest."""
        ...


class HomeSource(HomeFeed, Protocol):
    """Home that can be watched, and whose present state can be read."""

    def snapshot(self, language: str | None = None) -> HomeState:
        """Returns the present state, with names in `language`."""
        ...


class HomeButtons(Protocol):
    """The things of a home that a page can act on, each by its id."""

    async def switch(self, entity_id: str, state: OnOff) -> None:
        """Switches a device. Raises NotFound, or Conflict not_switchable."""
        ...

    def tick(self, item_id: str, *, is_done: bool) -> None:
        """Ticks an item off the shopping list, or puts it on again. Raises NotFound."""
        ...

    def cancel_timer(self, timer_id: str) -> None:
        """Cancels a timer. Raises NotFound."""
        ...
