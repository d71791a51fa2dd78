"""Small Protocols through which a lower folder reaches what a higher one implements; connected in
server/."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from core.conversation.speakers import HeardVoice, SpeakerMatch


class Clock(Protocol):
    """Source of time. Tests replace it."""

    def now(self) -> float:
        """Returns monotonic seconds."""
        ...

    def wall(self) -> datetime:
        """Returns local date and time, with time zone."""
        ...


class Metrics(Protocol):
    """Counters and histograms. Labels have few values: never the id of a session or a call."""

    def count(self, name: str, value: float = 1, /, **labels: str) -> None:
        """Adds `value` to a counter."""
        ...

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Adds a duration to a histogram."""
        ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Sets a gauge to `value`."""
        ...


class WorkGuard(Protocol):
    """Runs work so that a bug in it is logged and ends that work only, not its neighbours."""

    async def __call__(self, work: Awaitable[None], name: str) -> None: ...


class TraceSink(Protocol):
    """Takes the records of a session's trace; writes JSONL to disk if it is switched on."""

    def write(self, record: Mapping[str, object]) -> None:
        """Takes one record."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceLocation:
    """Place where the user speaks. A field that is not known is empty."""

    area: str = ""
    "Name of the room."
    device_id: str = ""
    "Id in the device directory of the device with the microphone."
    caller: str = ""
    "Name or number of the person on the telephone."
    caller_id: str = ""
    """Id of the person of the house whose number the caller has. The telephone network says so, and
    may be wrong: it gives answers the person's settings, and opens nothing."""


UNKNOWN_LOCATION = DeviceLocation()


@dataclass(frozen=True, slots=True)
class SpeakerConfirmation:
    """Result of the strict comparison of a turn's voice."""

    speaker: SpeakerMatch | None = None
    "Person who spoke all of it; None: a guest, several people, any doubt, or no voice."
    is_owners: bool = False
    """True if the person belongs to the server's own key, and not to a named key, whose holder
    chooses the names."""
    spoken_codes: frozenset[str] = frozenset()
    "Names of the guards whose codes were said."


async def _no_voice() -> HeardVoice | None:
    return None


async def _nobody() -> SpeakerConfirmation:
    return SpeakerConfirmation()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Conversation, language, place and person for which a tool runs."""

    conversation_id: str
    language: str
    place: DeviceLocation = UNKNOWN_LOCATION
    speaker: SpeakerMatch | None = None
    """Person who asks, recognised by the voice; None: a guest, written words, or the server knows
    no voice."""
    confirm_speaker: Callable[[], Awaitable[SpeakerConfirmation]] = field(
        default=_nobody, compare=False, repr=False
    )
    """Compares the voice once more, with all of the turn's sound and a stricter threshold, for
    actions that only some people may do."""
    hear_voice: Callable[[], Awaitable[HeardVoice | None]] = field(
        default=_no_voice, compare=False, repr=False
    )
    """Returns the voice of the turn, so that it can be learned; None: too little speech, or
    none."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """Result of a tool call."""

    data: Mapping[str, Any]
    "Result for the model, as values that JSON can hold."
    error: str | None = None
    "Stable code when it could not be done (`no_such_device`, ...)."


@dataclass(frozen=True, slots=True)
class HomeDescription:
    """Names that a home tool understands. Such a tool has one argument `text`, which takes whole
    sentences as they were spoken."""

    areas: tuple[str, ...] = ()
    "Names of areas."
    devices: tuple[tuple[str, str], ...] = ()
    "Kind (light, cover, ...) and name of each device."
    is_asking: bool = False
    "True if the tool asked the user a question, so that the next sentence is its answer."


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """Declaration of a tool by its provider, as a model sees it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    "JSON Schema of the arguments; each `enum` holds the names that exist (areas, devices)."
    is_read_only: bool = False
    "True if the tool changes nothing, so that it may run before the turn is confirmed."
    timeout_s: float | None = None
    "Longest time of a call in seconds; None: the limit of all tools."
    checks_arguments: bool = False
    """True if the provider checks the arguments itself: more leniently than the schema, or with its
    own error codes."""
    fallback_name: str = ""
    "Name of the tool when another tool already has `name`; empty: the other tool hides this one."
    is_clients: bool = False
    "True if the client or its MCP server declared the tool, so that it is never left out."
    house: HomeDescription | None = None
    "Set for the home tool that takes whole sentences; not shown to models."


class ToolProvider(Protocol):
    """A source of tools: built-in skills, Home Assistant, a device, an MCP server."""

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        """Returns the tools; called every turn. Returning the same object as before means that
        nothing has changed."""
        ...

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        """Runs a tool. `name`: as in its spec. Cancelled when the user interrupts or the call takes
        too long. Raises EarshotError, whose code and message become the result."""
        ...


class Announcer(Protocol):
    """Speaks something unasked, such as a timer that rings, on an open session of a
    conversation."""

    async def announce(self, conversation_id: str, text: str) -> bool:
        """Speaks `text`. Returns False when no session can."""
        ...
