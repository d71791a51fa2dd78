"""Settings of a connected device over HTTP: changes reach it, and a profile that has its own."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from devices.fleet.directory import DeviceProfile
from devices.fleet.presence import ControlChanges, DeviceControls, DeviceWakeWord
from tests.devices.api.fakes import FakeLive
from tests.devices.api.scenes import scene

pytestmark = pytest.mark.live

NABU = DeviceWakeWord(id="okay_nabu", words="Okay Nabu", is_active=True)


@dataclass
class SettableLive(FakeLive):
    """A connected device with a volume and a wake word."""

    controls: DeviceControls = field(
        default_factory=lambda: DeviceControls(volume=50, wake_words=(NABU,), max_wake_words=1)
    )
    changes: list[ControlChanges] = field(default_factory=list)

    async def control(self, changes: ControlChanges) -> None:
        self.changes.append(changes)
        if changes.volume is not None:
            self.controls = replace(self.controls, volume=changes.volume)


def test_a_change_reaches_the_device_and_a_profile_that_would_undo_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device, live = await here.new(), SettableLive()
            path = f"devices/{device.id}"
            with here.presence.connected(device.id, live):
                shown = (await here.ask("GET", path))[1]["controls"]
                assert (shown["volume"], shown["is_muted"]) == (50, None)
                assert shown["wake_words"] == [
                    {"id": "okay_nabu", "words": "Okay Nabu", "is_active": True}
                ]
                assert (await here.ask("POST", f"{path}/controls", {"volume": 70}))[0] == 200
                assert (await here.registry.by_id(device.id)).profile.volume is None
                own = DeviceProfile(volume=20, wake_word="Okay Nabu")
                await here.registry.edit(device.id, profile=lambda _: own)
                both = {"volume": 60, "wake_words": ["hey_jarvis"], "switches": {"beep": True}}
                status, now = await here.ask("POST", f"{path}/controls", both)
                assert (status, now["volume"]) == (200, 60)
                profile = (await here.registry.by_id(device.id)).profile
                assert (profile.volume, profile.wake_word) == (60, "hey_jarvis")
            assert live.changes == [
                ControlChanges(volume=70),
                ControlChanges(volume=60, wake_words=("hey_jarvis",), switches={"beep": True}),
            ]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("live", "body", "status", "code"),
    [
        (None, {"volume": 5}, 409, "device_away"),
        (FakeLive(), {"volume": 5}, 409, "not_supported"),
        (SettableLive(), {"volume": 101}, 400, "invalid_value"),
        (SettableLive(), {"wake_words": []}, 400, "invalid_value"),
        (SettableLive(), {"loudness": 5}, 400, "invalid_value"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tmp_path: Path, live: FakeLive | None, body: dict[str, Any], status: int, code: str
) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device = await here.new()
            path = f"devices/{device.id}/controls"
            if live is None:
                found, error = await here.ask("POST", path, body)
            else:
                with here.presence.connected(device.id, live):
                    found, error = await here.ask("POST", path, body)
            assert (found, error["code"]) == (status, code)

    asyncio.run(main())
