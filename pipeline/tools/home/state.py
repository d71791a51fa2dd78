"""State of the home at one moment. Its JSON is the content of the `earshot.home` event."""

from typing import Literal

import msgspec

AttributeValue = int | float | str

OnOff = Literal["on", "off"]


class AreaState(msgspec.Struct, frozen=True):
    """An area of the home."""

    id: str
    name: str


class EntityState(msgspec.Struct, frozen=True):
    """A device of the home."""

    id: str
    name: str
    area: str
    "Id of its area."
    kind: str
    "An `EntityKind`."
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
    "Name of the timer; empty: it has none."
    conversation_id: str
    duration_s: float
    "Duration of the timer, with time that was added or removed later."
    remaining_s: float
    "Time left at the moment of the snapshot."
    state: Literal["running", "paused", "ringing"]


HomeReachability = Literal["here", "away", "refused"]
"""State of the connection to the system that the home mirrors. here: connected, or there is no such
system. away: it cannot be reached, and the home shows the last known state. refused: the same, and
no further attempt is made."""


class HomeState(msgspec.Struct, frozen=True):
    """The whole home at one moment."""

    revision: int
    "Number that grows with every change."
    areas: tuple[AreaState, ...]
    entities: tuple[EntityState, ...]
    shopping_list: tuple[ShoppingListItem, ...]
    timers: tuple[TimerState, ...]
    reach: HomeReachability = "here"
