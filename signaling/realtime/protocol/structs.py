"""Base class and helpers for the JSON objects of clients."""

from typing import TypeAlias, TypeVar

from msgspec import Struct, UnsetType

T = TypeVar("T")
OptionalField: TypeAlias = T | UnsetType | None
"Field that a client may leave out. UNSET: the key was not sent; None: it was sent as null."


class StrictStruct(Struct, frozen=True, forbid_unknown_fields=True):
    """JSON object in which unknown keys are errors."""


def updated_value(sent: OptionalField[T], current: T, cleared: T) -> T:
    """Returns the new value of a field: a missing key keeps `current`, null gives `cleared`."""
    if isinstance(sent, UnsetType):
        return current
    return cleared if sent is None else sent


def sent_object(sent: OptionalField[T]) -> T | None:
    """Returns the value, or None if the key was not sent."""
    return None if isinstance(sent, UnsetType) else sent
