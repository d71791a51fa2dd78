"""JSON bodies of the HTTP API of the devices, requests and responses. docs/devices.md shows
them."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from devices.fleet.directory import (
    ApprovalState,
    Device,
    DeviceKind,
    DeviceProfile,
    ProfileT,
    SessionBargeIn,
    SessionEcho,
)
from devices.fleet.presence import (
    ConnectedDevice,
    ControllableDevice,
    DeviceActivity,
    DeviceControls,
)
from devices.registry.sanitize import MAX_NAME_CHARS

MAX_NOTICE_CHARS = 1000
"About a minute of speech."

MAX_URL_CHARS = 2000


class DeviceView(Struct, frozen=True):
    """A device as the registry knows it, and its present state."""

    id: str
    kind: DeviceKind
    hardware_id: str
    name: str
    area: str
    "Empty: no area is set."
    standing: ApprovalState
    board: str
    firmware: str
    address: str
    last_seen: datetime | None
    "Time of its last contact, to the minute; ISO 8601 in UTC."
    pairing_code: str
    """Code that a device shows while it waits for approval; empty once the device is approved or
    blocked."""
    has_new_identity: bool
    """An approved device came back with another identity: it was reset, or another device uses its
    hardware id. `approve` and `pair` then approve the newcomer."""
    profile: DeviceProfile
    is_connected: bool
    doing: DeviceActivity | None
    "None: it is not connected."
    timing: Mapping[str, float] | None
    """Marks of its last turn: moment -> ms from the end of speech. None: no turn yet, or not
    connected."""
    waiting: int
    "Number of announcements that it plays at its next contact."
    controls: DeviceControls | None
    "Its own settings. None: it is not connected, or its kind has none that can be changed here."


class DeviceList(Struct, frozen=True):
    """All known devices."""

    devices: list[DeviceView]
    "The longest known first."


class AnswerProfileEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a profile. Fields that are not given stay; an empty or null value means the
    setting that would hold without the profile."""

    voice: Annotated[str, Meta(max_length=128)] | UnsetType = UNSET
    language: Annotated[str, Meta(pattern="^([a-z]{2,3})?$")] | UnsetType = UNSET
    speed: Annotated[float, Meta(ge=0.25, le=1.5)] | UnsetType | None = UNSET
    instructions: Annotated[str, Meta(max_length=10_000)] | UnsetType = UNSET

    def apply_to(self, profile: ProfileT) -> ProfileT:
        """Returns `profile` with these changes."""
        given = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not UNSET
        }
        return msgspec.convert({**msgspec.to_builtins(profile), **given}, type(profile))


class PersonProfileEdit(AnswerProfileEdit, frozen=True, forbid_unknown_fields=True):
    """Changes of the profile of a person."""

    volume: Annotated[int, Meta(ge=0, le=100)] | UnsetType | None = UNSET
    follow_voice: bool | UnsetType = UNSET


class SessionProfileEdit(AnswerProfileEdit, frozen=True, forbid_unknown_fields=True):
    """Changes of the profile of sessions. Fields that are not given stay; an empty or null value
    means the server's setting."""

    asr: Annotated[str, Meta(max_length=128)] | UnsetType = UNSET
    answer_temperature: Annotated[float, Meta(ge=0, le=2)] | UnsetType | None = UNSET
    tools: Annotated[list[str], Meta(max_length=200)] | UnsetType | None = UNSET
    echo: SessionEcho | UnsetType = UNSET
    barge_in: SessionBargeIn | UnsetType = UNSET


class ProfileEdit(SessionProfileEdit, frozen=True, forbid_unknown_fields=True):
    """Changes of a device's profile."""

    wake_word: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | UnsetType = UNSET
    volume: Annotated[int, Meta(ge=0, le=100)] | UnsetType | None = UNSET


class DeviceEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a device. Fields that are not given stay."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)] | UnsetType = UNSET
    area: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | UnsetType = UNSET
    profile: ProfileEdit | UnsetType = UNSET


class PairRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Approval of the device that shows this code."""

    code: str
    "Six digits; spaces and dashes do not matter."


class ApproveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Approval of a device by its id."""

    code: str = ""
    "The `pairing_code` that the device shows; empty where it shows none."


class SpokenText(Struct, frozen=True, forbid_unknown_fields=True):
    """A text that a device speaks."""

    text: Annotated[str, Meta(min_length=1, max_length=MAX_NOTICE_CHARS)]
    voice: Annotated[str, Meta(max_length=128)] = ""
    "A voice of the server; empty: that of the device."
    language: Annotated[str, Meta(pattern="^([a-z]{2,3})?$")] = ""
    "Language of the text, in ISO 639-1; empty: that of the device."


class SpokenNotice(SpokenText, frozen=True, forbid_unknown_fields=True):
    """A text that a device speaks, or a sound that it plays."""

    audio_url: Annotated[str, Meta(pattern="^(https?://.*)?$", max_length=MAX_URL_CHARS)] = ""
    "Played in place of the spoken text, by devices that fetch sound themselves."


class NotificationRequest(SpokenNotice, frozen=True, forbid_unknown_fields=True):
    """An announcement."""

    starts_conversation: bool = False
    "True: the device listens afterwards, if its kind can be told to."


class FirmwareUpdateRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Firmware update of a device."""

    firmware: Annotated[str, Meta(max_length=MAX_URL_CHARS)] = ""
    "A version that the server has for this board; empty: the newest it has."


class FirmwareImage(Struct, frozen=True):
    """One firmware image that the server has."""

    version: str
    size_bytes: int
    sha256: str
    "Hex digits, lower case."


class FirmwareList(Struct, frozen=True):
    """The firmware that the server has for a device."""

    images: list[FirmwareImage]
    "For this device's board, the newest version first."
    place: str
    "Folder for further images; empty: devices of this kind get no firmware from this server."


class NotificationResult(Struct, frozen=True):
    """Result of an announcement on one device."""

    is_heard: bool
    "False: it waits until the device connects, at most 15 minutes."


class AreaNotificationResult(Struct, frozen=True):
    """Result of an announcement in an area."""

    devices: list[str]
    "Ids of the devices that play it; empty: the first that connects within 15 minutes will."


class DeviceActionResult(Struct, frozen=True):
    """The device accepted the command."""

    id: str


def view_of(device: Device, live: ConnectedDevice | None, waiting: int) -> DeviceView:
    """Returns the view of a device. live: its connection, None if it has none. waiting:
    announcements for it."""
    return DeviceView(
        **{name: getattr(device, name) for name in _SHARED_FIELDS},
        is_connected=live is not None,
        doing=live.activity if live else None,
        timing=live.timing if live else None,
        waiting=waiting,
        controls=live.controls if isinstance(live, ControllableDevice) else None,
    )


_SHARED_FIELDS = tuple(column.name for column in fields(Device) if column.name != "identity")
