"""What the door does unasked while the server runs: it ends nothing but who is unwelcome."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.devices.api.fakes import FakeLive
from tests.devices.api.test_door import scene


def test_a_profile_of_a_newer_version_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two servers of two versions share a database while one of them is brought up to date."""
    kept = '{"echo": "newer-words", "volume": 3}'

    async def main() -> None:
        async with scene(tmp_path) as here, asyncio.TaskGroup() as tasks:
            device, live = await here.new("aa:01", "127.0.0.1"), FakeLive(hears=False)
            await here.registry.edit(device.id, area="kitchen")
            work = (here.door.run(), here.announcements.run())
            running = [tasks.create_task(one) for one in work]
            await here.registry._database.run(
                lambda one: one.execute(text("UPDATE devices SET profile = :kept"), {"kept": kept})
            )
            with here.presence.here(device.id, live):
                await here.ask("POST", "areas/kitchen/notify", {"text": "dinner"})
                live.hears = True
                here.presence.note_change()
                while not live.heard:
                    await here.registry.everyone()
                changed = here.registry.changed()
                await here.registry.edit(device.id, name="Küche")
                assert changed.is_set()
                for _ in range(3):
                    await here.registry.everyone()
            assert [one.done() for one in running] == [False, False]
            _, told = await here.ask("GET", f"devices/{device.id}")
            assert (told["profile"]["echo"], told["profile"]["volume"]) == ("", 3)
            for one in running:
                one.cancel()

    asyncio.run(main())
    assert caplog.text.count("its echo is not known here") == 1
    assert "newer-words" not in caplog.text
