"""Log of the last events of each device, in memory, for `earshot devices logs`. It has no words of
users."""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from core.ports import Clock
from devices.fleet.presence import DeviceEventKind

MAX_PER_DEVICE = 100

MAX_DEVICES = 200
"""Limit on devices with a log; a full log is some 20 MB. The device whose last event is oldest goes
first."""


class DeviceLogEntry(Struct, frozen=True, omit_defaults=True):
    """One event of a device."""

    at: str
    "Time by the server's clock, in ISO 8601."
    what: DeviceEventKind
    code: str = ""
    "Stable code of an error; empty for other events."
    timing: Mapping[str, float] | None = None
    "Marks of a turn: moment -> ms from the end of speech. None for other events."


class DeviceEventLog:
    """Keeps the events of all devices; the `DeviceEventSink` of `Presence`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logs: OrderedDict[str, deque[DeviceLogEntry]] = OrderedDict()

    def __call__(
        self,
        device_id: str,
        kind: DeviceEventKind,
        *,
        code: str = "",
        timing: Mapping[str, float] | None = None,
    ) -> None:
        at = self._clock.wall().isoformat(timespec="milliseconds")
        log = self._logs.setdefault(device_id, deque(maxlen=MAX_PER_DEVICE))
        log.append(DeviceLogEntry(at, kind, code, dict(timing) if timing is not None else None))
        self._logs.move_to_end(device_id)
        if len(self._logs) > MAX_DEVICES:
            self._logs.popitem(last=False)

    def entries_of(self, device_id: str) -> Sequence[DeviceLogEntry]:
        """Returns the entries of a device, the oldest first."""
        return tuple(self._logs.get(device_id, ()))

    def forget(self, device_id: str) -> None:
        """Drops the log of a device."""
        self._logs.pop(device_id, None)
