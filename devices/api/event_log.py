"""The last things that happened on each device, in memory: `earshot devices logs`. No words."""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from core.ports import Clock
from devices.presence import DeviceEventKind

MAX_PER_DEVICE = 100

MAX_DEVICES = 200
"A full journal is some 20 MB; the devices longest without an entry go first."


class DeviceLogEntry(Struct, frozen=True, omit_defaults=True):
    """One thing that happened."""

    at: str
    "ISO 8601, of the server's clock."
    what: DeviceEventKind
    code: str = ""
    "Of an error, stable."
    timing: Mapping[str, float] | None = None
    "Of a turn: moment -> ms from the end of speech."


class DeviceEventLog:
    """The `Witness` of `Presence`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, deque[DeviceLogEntry]] = OrderedDict()

    def __call__(
        self,
        device_id: str,
        what: DeviceEventKind,
        *,
        code: str = "",
        timing: Mapping[str, float] | None = None,
    ) -> None:
        at = self._clock.wall().isoformat(timespec="milliseconds")
        kept = self._kept.setdefault(device_id, deque(maxlen=MAX_PER_DEVICE))
        kept.append(DeviceLogEntry(at, what, code, dict(timing) if timing is not None else None))
        self._kept.move_to_end(device_id)
        if len(self._kept) > MAX_DEVICES:
            self._kept.popitem(last=False)

    def of(self, device_id: str) -> Sequence[DeviceLogEntry]:
        """The oldest first."""
        return tuple(self._kept.get(device_id, ()))

    def forget(self, device_id: str) -> None:
        self._kept.pop(device_id, None)
