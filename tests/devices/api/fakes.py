"""A fake connected device, fake conversations and fake rooms."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from core.errors import EarshotError, RequestError
from core.ports import UNKNOWN_LOCATION, DeviceLocation
from devices.fleet.directory import Device, DeviceDirectory
from devices.fleet.presence import DeviceActivity, DeviceNotification
from pipeline.conversation.conversation import Conversations


@dataclass
class FakeLive:
    """A connected device. `hears`: whether it plays a notice; an error is raised."""

    hears: bool | EarshotError = True
    does: bool = True
    "What it is told to (restart, update)."
    activity: DeviceActivity = "idle"
    timing: Mapping[str, float] | None = None
    heard: list[str] = field(default_factory=list)
    notices: list[DeviceNotification] = field(default_factory=list)
    "The announcements that it played, each of them whole."
    told: list[str] = field(default_factory=list)
    is_stuck: bool = False

    async def notify(self, notice: DeviceNotification) -> bool:
        if self.is_stuck:
            await asyncio.Event().wait()
        if isinstance(self.hears, EarshotError):
            raise self.hears
        if self.hears:
            self.heard.append(notice.text)
            self.notices.append(notice)
        return self.hears

    async def restart(self) -> bool:
        self.told.append("restart")
        return self.does

    async def update(self, firmware: str) -> bool:
        self.told.append(f"update {firmware}")
        return self.does

    async def close(self) -> None:
        self.told.append("close")


@dataclass
class FakeTalks(Conversations):
    """Conversations. `is_open`: a client of it plays announcements."""

    is_open: bool = False
    places: dict[str, DeviceLocation] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)

    async def announce(self, conversation_id: str, text: str) -> bool:
        if self.is_open:
            self.heard.append(text)
        return self.is_open

    def place_of(self, conversation_id: str) -> DeviceLocation:
        return self.places.get(conversation_id, UNKNOWN_LOCATION)


@dataclass
class FakeRooms:
    """A device directory of which only the areas are known."""

    ids: dict[str, list[str]] = field(default_factory=dict)
    fails: EarshotError | None = None

    async def in_area(self, area: str) -> Sequence[Device]:
        if self.fails:
            raise self.fails
        return [device(one) for one in self.ids.get(area, [])]

    def as_directory(self) -> DeviceDirectory:
        return cast("DeviceDirectory", self)


def german_notices(notice: DeviceNotification) -> None:
    """A check of announcements: the server speaks German only, with one voice."""
    if notice.language not in ("", "de"):
        raise RequestError("there is: de", code="unsupported_language", param="language")
    if notice.voice not in ("", "anna"):
        raise RequestError("there is: anna", code="voice_not_found", param="voice")


def device(device_id: str = "dev_1") -> Device:
    return Device(
        id=device_id, kind="xiaozhi", hardware_id=device_id, name=device_id, standing="approved"
    )
