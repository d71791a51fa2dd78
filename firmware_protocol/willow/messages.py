"""Every message of Willow's `/ws`, both ways. `reference/wis.md` section 2.3; the firmware's
`was.c`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a connection."""

    hostname: str
    "`willow-` and the MAC's hex digits."
    hw_type: str
    "`ESP32-S3-BOX-3` and its like: which firmware it takes."
    mac: str
    "Lower case, colons."


@dataclass(frozen=True, slots=True)
class Goodbye:
    """It restarts."""

    hostname: str
    hw_type: str
    mac: str


@dataclass(frozen=True, slots=True)
class GetConfig:
    """It has no configuration, or a broken one."""


@dataclass(frozen=True, slots=True)
class WakeStart:
    """It heard the wake word, and listens."""

    volume_db: float | None = None
    "How loud; None: not said, as firmware without the measurement does."


@dataclass(frozen=True, slots=True)
class WakeEnd:
    """It stopped listening."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What the inference server heard, to be acted on (`was_mode`)."""

    text: str
    language: str = ""
    "Empty: the inference server did not say."


@dataclass(frozen=True, slots=True)
class NotifyDone:
    """A notification was played to its end, or dismissed on the display."""

    id: int


@dataclass(frozen=True, slots=True)
class UnknownMessage:
    """Of newer firmware; it means nothing here."""

    names: tuple[str, ...]
    "Its keys, shortened."


FromDevice: TypeAlias = (
    Hello | Goodbye | GetConfig | WakeStart | WakeEnd | Endpoint | NotifyDone | UnknownMessage
)


@dataclass(frozen=True, slots=True)
class WakeResult:
    """Whether this device is to go on listening. It does so until told otherwise."""

    won: bool


@dataclass(frozen=True, slots=True)
class EndpointResult:
    """What came of an Endpoint; shown, and spoken or told by a chime."""

    ok: bool
    speech: str
    "Empty: the firmware says `Success` or `Error` itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Show and play something. What is None is left to the firmware."""

    id: int
    "1 is the firmware's own (identify): it is never reported as done."
    text: str | None = None
    audio_url: str | None = None
    repeat: int | None = None
    "Times; firmware: 1. A second lies between them."
    volume: int | None = None
    "0 to 100; firmware: 90."
    backlight: bool | None = None
    backlight_max: bool | None = None
    strobe_period_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CancelNotify:
    """Stop this notification, if it is the one that is being played."""

    id: int


@dataclass(frozen=True, slots=True)
class Identify:
    """Blink and chime five times."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Reboot now."""


@dataclass(frozen=True, slots=True)
class OtaStart:
    """Fetch this image, write it to the other partition and boot it."""

    ota_url: str


@dataclass(frozen=True, slots=True)
class ConfigMessage:
    """The device's whole configuration: it writes it down and reboots in 3 to 6 s."""

    values: Mapping[str, Scalar] = field(repr=False)
    "May hold secrets."


@dataclass(frozen=True, slots=True)
class NvsMessage:
    """Where its WAS and its Wi-Fi are: it writes that down and reboots."""

    was_url: str = ""
    "Empty: stays."
    wifi_ssid: str = ""
    wifi_psk: str = field(default="", repr=False)


ToDevice: TypeAlias = (
    WakeResult
    | EndpointResult
    | Notify
    | CancelNotify
    | Identify
    | Restart
    | OtaStart
    | ConfigMessage
    | NvsMessage
)
