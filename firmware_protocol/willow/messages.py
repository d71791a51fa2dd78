"""All messages of Willow's `/ws` in both directions.

Source: `was.c` of Willow's firmware (https://github.com/HeyWillow/willow).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a connection: the device's identity."""

    hostname: str
    "`willow-` and the hex digits of the MAC address."
    hw_type: str
    "Name of the board, such as `ESP32-S3-BOX-3`, which decides on the firmware."
    mac: str
    "MAC address, lower case with colons."


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The device restarts."""

    hostname: str
    hw_type: str
    mac: str


@dataclass(frozen=True, slots=True)
class GetConfig:
    """The device asks for its configuration, because it has none or a broken one."""


@dataclass(frozen=True, slots=True)
class WakeStart:
    """The device has detected the wake word, and listens."""

    volume_db: float | None = None
    "Loudness of the wake word; None: unknown, from firmware that does not measure it."


@dataclass(frozen=True, slots=True)
class WakeEnd:
    """The device has stopped listening."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The transcript from the inference server, to be carried out by WAS (`was_mode`)."""

    text: str
    language: str = ""
    "Language from the inference server; empty: unknown."


@dataclass(frozen=True, slots=True)
class NotifyDone:
    """A notification was played to its end, or dismissed on the display."""

    id: int


@dataclass(frozen=True, slots=True)
class UnknownMessage:
    """An unknown message, perhaps from newer firmware."""

    names: tuple[str, ...]
    "Keys of the message, shortened, for a log line."


FromDevice: TypeAlias = (
    Hello | Goodbye | GetConfig | WakeStart | WakeEnd | Endpoint | NotifyDone | UnknownMessage
)


@dataclass(frozen=True, slots=True)
class WakeResult:
    """Result of the arbitration between devices that detected the same wake word.

    A device listens until it gets a `won` that is False.
    """

    won: bool


@dataclass(frozen=True, slots=True)
class EndpointResult:
    """Answer to an Endpoint; the device shows it, and speaks it or plays a chime."""

    ok: bool
    speech: str
    "Text of the answer; empty: the firmware itself says `Success` or `Error`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Command to show and play a notification. For None the firmware's default applies."""

    id: int
    "Number of the notification. 1 is the firmware's own (identify), and is never reported as done."
    text: str | None = None
    audio_url: str | None = None
    repeat: int | None = None
    "Number of times that the sound is played, with pauses of 1 s; default 1."
    volume: int | None = None
    "Volume, 0 to 100; default 90."
    backlight: bool | None = None
    backlight_max: bool | None = None
    strobe_period_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CancelNotify:
    """Command to stop a notification, if it is being played."""

    id: int


@dataclass(frozen=True, slots=True)
class Identify:
    """Command to blink and chime five times."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Command to reboot now."""


@dataclass(frozen=True, slots=True)
class OtaStart:
    """Command to fetch a firmware image, write it to the other partition and boot it."""

    ota_url: str


@dataclass(frozen=True, slots=True)
class ConfigMessage:
    """The whole configuration of a device, which stores it and reboots within 3 to 6 s."""

    values: Mapping[str, Scalar] = field(repr=False)
    "Values by name; they may include secrets, so they are not in the repr."


@dataclass(frozen=True, slots=True)
class NvsMessage:
    """Addresses of WAS and Wi-Fi, which the device stores before it reboots."""

    was_url: str = ""
    "Address of WAS; empty, also in the other fields: unchanged."
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
