"""Small Protocols through which a lower folder reaches what a higher one has; wired by server/."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def wall(self) -> datetime:
        """Local date and time, time zone included."""
        ...


class Metrics(Protocol):
    """Counters and histograms. Labels have few values: never a session or a call id."""

    def count(self, name: str, value: float = 1, /, **labels: str) -> None: ...

    def observe(self, name: str, seconds: float, /, **labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...


class TraceSink(Protocol):
    """Takes one record of a session's trace; JSONL on disk when asked for."""

    def write(self, record: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class DeviceLocation:
    """Where somebody speaks; empty: not known."""

    area: str = ""
    "The room's name."
    device_id: str = ""
    "The device that hears, as the directory calls it."


UNKNOWN_LOCATION = DeviceLocation()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """On whose behalf a tool runs."""

    conversation_id: str
    language: str
    place: DeviceLocation = UNKNOWN_LOCATION


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool did."""

    data: Mapping[str, Any]
    "JSON-able result for the model."
    error: str | None = None
    "A stable code when it could not be done (`no_such_device`, ...)."


@dataclass(frozen=True, slots=True)
class HomeDescription:
    """What a tool understands whole sentences about: its one argument `text` takes them as they
    were said."""

    areas: tuple[str, ...] = ()
    "Names of areas."
    devices: tuple[tuple[str, str], ...] = ()
    "Kind (light, cover, ...) and name."
    is_asking: bool = False
    "It has asked back: the next sentence is for it."


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as its provider declares it and a model sees it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    "JSON Schema of the arguments; `enum`s carry the names that exist (areas, devices)."
    is_read_only: bool = False
    "May run before the turn is confirmed."
    timeout_s: float | None = None
    "How long a call may take; None: as long as tools do."
    checks_arguments: bool = False
    "Its provider checks them itself: more leniently than the schema, or with codes of its own."
    fallback_name: str = ""
    "What it is called when another tool has its name already; empty: the other one hides it."
    is_clients: bool = False
    "The client itself declared it, or its server: never left out."
    house: HomeDescription | None = None
    "Of the tool that is told what is said about the house; not shown to models."


class ToolProvider(Protocol):
    """A source of tools: built-in skills, Home Assistant, a device's own, an MCP server."""

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        """Asked every turn: the same object as before says that nothing has changed."""
        ...

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        """`name` as in the spec. Cancelled when the user interrupts or it takes too long. Raises
        EarshotError: its code and message become the result."""
        ...


class Announcer(Protocol):
    """Says something unasked (a timer rings) on whatever session the conversation has open."""

    async def announce(self, conversation_id: str, text: str) -> bool:
        """False when nobody is there to hear it."""
        ...
