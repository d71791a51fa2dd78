"""What every JSON object of a client is made of."""

from typing import TypeAlias, TypeVar

from msgspec import Struct, UnsetType

T = TypeVar("T")
OptionalField: TypeAlias = T | UnsetType | None
"UNSET: the client did not send this key."


class StrictStruct(Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object in which every key must be known."""


def updated_value(sent: OptionalField[T], current: T, cleared: T) -> T:
    """The value in effect: not sent keeps the current one, null takes it back."""
    if isinstance(sent, UnsetType):
        return current
    return cleared if sent is None else sent


def sent_object(sent: OptionalField[T]) -> T | None:
    return None if isinstance(sent, UnsetType) else sent
