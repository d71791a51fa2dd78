"""What the home looks like at one moment; encoded as JSON this is `earshot.home`."""

from typing import Literal

import msgspec

AttributeValue = int | float | str


class AreaState(msgspec.Struct, frozen=True):
    id: str
    name: str


class EntityState(msgspec.Struct, frozen=True):
    id: str
    name: str
    area: str
    kind: str
    state: str
    "on, off, open, closed, playing, paused, heat, locked, unlocked."
    attributes: dict[str, AttributeValue]
    "brightness, position, volume and speed 0 to 100; temperatures in degrees Celsius."
    device_class: str = ""


class ShoppingListItem(msgspec.Struct, frozen=True):
    id: str
    text: str
    done: bool = False


class TimerState(msgspec.Struct, frozen=True):
    id: str
    name: str
    "Empty when the timer has no name."
    conversation_id: str
    duration_s: float
    "As it was set; time added or taken later counts."
    remaining_s: float
    "At the moment of the snapshot."
    state: Literal["running", "paused", "ringing"]


HomeReachability = Literal["here", "away", "refused"]
"""away: the house behind it cannot be reached, and all is as it was last; refused: nor will it be
tried again."""


class HomeState(msgspec.Struct, frozen=True):
    revision: int
    "Grows with every change."
    areas: tuple[AreaState, ...]
    entities: tuple[EntityState, ...]
    shopping_list: tuple[ShoppingListItem, ...]
    timers: tuple[TimerState, ...]
    reach: HomeReachability = "here"
