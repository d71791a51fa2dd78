"""The HTTP API of devices behind the real error handling: JSON, events and refusals."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec
import pytest
from aiohttp import ClientResponse

from core.http import streaming
from devices.api import door as door_file
from devices.fleet.directory import DeviceProfile
from devices.fleet.ota import FirmwareFolder
from devices.fleet.pairing import RegistrySettings
from devices.registry.database import open_database
from devices.registry.registry import DeviceRegistry
from server.http.auth import AccessGate
from tests.devices.api.fakes import FakeLive
from tests.devices.api.scenes import scene
from tests.devices.registry.harness import contact
from tests.server.http.harness import KEY, error_of

pytestmark = pytest.mark.live


def test_a_device_is_described_as_json(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            assert await here.ask("GET", "devices") == (200, {"devices": []})
            new = await here.registry.check_in(contact("aa:01", board="box", firmware="2.0"))
            expected = {
                "id": new.id,
                "kind": "xiaozhi",
                "hardware_id": "aa:01",
                "name": "box aa01",
                "area": "",
                "standing": "new",
                "board": "box",
                "firmware": "2.0",
                "address": "192.168.1.7",
                "last_seen": "2026-03-01T12:00:00Z",
                "pairing_code": new.pairing_code,
                "has_new_identity": False,
                "profile": {
                    "voice": "",
                    "language": "",
                    "speed": None,
                    "asr": "",
                    "instructions": "",
                    "answer_temperature": None,
                    "tools": None,
                    "echo": "",
                    "barge_in": "",
                    "wake_word": "",
                    "volume": None,
                },
                "is_connected": False,
                "doing": None,
                "timing": None,
                "waiting": 0,
                "controls": None,
            }
            assert await here.ask("GET", "devices") == (200, {"devices": [expected]})
            approved = expected | {"standing": "approved", "pairing_code": ""}
            asked = {"code": new.pairing_code}
            assert await here.ask("POST", "devices/pair", asked) == (200, approved)
            live = FakeLive(activity="speaking", timing={"playout_start": 600.5})
            with here.presence.connected(new.id, live):
                seen = {"is_connected": True, "doing": "speaking", "timing": live.timing}
                assert await here.ask("GET", f"devices/{new.id}") == (200, approved | seen)

    asyncio.run(main())


def test_an_edit_changes_only_the_given_fields(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            path = f"devices/{(await here.new()).id}"
            asked = {
                "name": " Küche\n",
                "area": "kitchen",
                "profile": {"volume": 3, "tools": ["a"]},
            }
            status, told = await here.ask("POST", path, asked)
            assert (status, told["name"], told["area"]) == (200, "Küche", "kitchen")
            _, told = await here.ask("POST", path, {"profile": {"voice": "v", "tools": None}})
            profile = told["profile"]
            assert (profile["volume"], profile["voice"], profile["tools"]) == (3, "v", None)
            _, told = await here.ask("POST", path, {"area": "", "profile": {"volume": None}})
            assert (told["name"], told["area"], told["profile"]["volume"]) == ("Küche", "", None)
            assert (await here.ask("POST", path, {}))[1] == told

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "body", "param", "allowed"),
    [
        ("devices/dev_1", {"name": 3}, "name", "`str`"),
        ("devices/dev_1", {"name": ""}, "name", ">= 1"),
        ("devices/dev_1", {"name": " "}, "name", "1 to 64"),
        ("devices/dev_1", {"name": 65 * "a"}, "name", "<= 64"),
        ("devices/dev_1", {"area": None}, "area", "`str`"),
        ("devices/dev_1", {"colour": "red"}, "colour", "name, area, profile"),
        ("devices/dev_1", {"profile": {"volume": 101}}, "profile.volume", "<= 100"),
        ("devices/dev_1", {"profile": {"volume": True}}, "profile.volume", "`int | null`"),
        ("devices/dev_1", {"profile": {"language": "German"}}, "profile.language", "[a-z]{2,3}"),
        ("devices/dev_1", {"profile": {"tools": [1]}}, "profile.tools[0]", "`str`"),
        (
            "devices/dev_1",
            {"profile": {"echo": "loud"}},
            "profile.echo",
            "Invalid enum value 'loud'",
        ),
        ("devices/dev_1", {"profile": {"loudness": 1}}, "profile.loudness", "voice, language"),
        ("devices/dev_1", [], "", "`object`"),
        ("devices/pair", {}, "code", "missing required"),
        ("devices/pair", {"code": "12"}, "code", "6 digits"),
        ("devices/dev_1/notify", {"text": ""}, "text", ">= 1"),
        ("devices/dev_1/notify", {"text": "a", "audio_url": "file:///x"}, "audio_url", "https?"),
        ("areas/kitchen/notify", {"text": 1001 * "a"}, "text", "<= 1000"),
        ("devices/dev_1/update", {"firmware": 1}, "firmware", "`str`"),
    ],
)
def test_a_wrong_field_is_named_with_the_allowed_values(
    tmp_path: Path, path: str, body: Any, param: str, allowed: str
) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            status, error = await here.ask("POST", path, body)
            assert (status, error["code"], error["param"] or "") == (400, "invalid_value", param)
            assert allowed in error["message"]

    asyncio.run(main())


def test_an_impossible_profile_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            path = f"devices/{(await here.new()).id}"
            asked = {"name": "it", "profile": {"language": "xx"}}
            status, error = await here.ask("POST", path, asked)
            assert (status, error["code"], error["param"]) == (
                400,
                "unsupported_language",
                "profile",
            )
            assert (await here.ask("GET", path))[1]["name"] != "it"
            assert (await here.ask("POST", path, {"profile": {"language": "de"}}))[0] == 200

    asyncio.run(main())


def test_a_body_that_is_not_json_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            for body in (b"{", b"\xff", b"name=x"):
                answer = await here.client.post("/v1/devices/dev_1", data=body)
                assert (await error_of(answer))["code"] == "invalid_json"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/log"),
        ("POST", ""),
        ("DELETE", ""),
        *(("POST", f"/{one}") for one in ("approve", "block", "restart", "update")),
    ],
)
def test_an_unknown_device_is_404(tmp_path: Path, method: str, path: str) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            status, error = await here.ask(
                method, f"devices/dev_1{path}", {} if path == "" else None
            )
            assert (status, error["code"]) == (404, "device_not_found")

    asyncio.run(main())


def test_a_wrong_code_is_refused_and_guesses_are_delayed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device = await here.new()
            wrong = {"code": f"{(int(device.pairing_code) + 1) % 10**6:06d}"}
            for _ in range(5):
                status, error = await here.ask("POST", "devices/pair", wrong)
                assert (status, error["code"]) == (404, "pairing_code_unknown")
            async with here.client.post("/v1/devices/pair", json=wrong) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (429, "61")
            here.clock.seconds += 61
            asked = {"code": device.pairing_code}
            assert (await here.ask("POST", "devices/pair", asked))[0] == 200
            caplog.clear()
            status, error = await here.ask("POST", "devices/pair", asked)
            assert (status, error["code"]) == (409, "pairing_code_used")
            (line,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
            assert line.getMessage() == "! devices: an approval was refused: pairing_code_used"
            assert device.pairing_code not in caplog.text

    asyncio.run(main())


def test_an_approval_names_the_identity_that_the_user_saw(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device = await here.new()
            path, wrong = f"devices/{device.id}/approve", f"{int(device.pairing_code) ^ 1:06d}"
            for body, code in (({}, "needed"), ({"code": wrong}, "unknown")):
                status, error = await here.ask("POST", path, body)
                assert (status, error["code"]) == (409, f"pairing_code_{code}")
            here.clock.go_on(timedelta(minutes=10))
            said = {"code": device.pairing_code}
            status, error = await here.ask("POST", path, said)
            assert (status, error["code"]) == (409, "pairing_code_expired")
            said = {"code": (await here.new()).pairing_code}
            status, told = await here.ask("POST", path, said)
            assert (status, told["standing"]) == (200, "approved")

    asyncio.run(main())


@pytest.mark.parametrize("end", ["block", "forget", "replace", "name", "claim"])
def test_a_device_that_another_server_blocks_is_disconnected(tmp_path: Path, end: str) -> None:
    """Another server makes the change in the same database."""

    async def main() -> None:
        async with scene(tmp_path) as here, asyncio.TaskGroup() as tasks:
            known = contact("aa:01", "127.0.0.1")
            device = await here.registry.check_in(replace(known, identity=b"1" * 32))
            other = replace(known, identity=b"2" * 32, address="192.168.1.9")
            live, beside = FakeLive(), FakeLive()
            running = tasks.create_task(here.door.run())
            await here.registry.all_devices()  # it has looked, and found nobody
            with (
                here.presence.connected(device.id, live, device.identity),
                here.presence.connected((await here.new("aa:02", "127.0.0.1")).id, beside),
            ):
                match end:
                    case "block":
                        await here.registry.block(device.id)
                    case "forget":
                        await here.registry.forget(device.id)
                    case "replace":
                        claim = await here.registry.check_in(other)
                        await here.registry.approve(device.id, claim.pairing_code)
                    case "name":
                        await here.registry.edit(device.id, name="Küche")
                    case _:
                        await here.registry.check_in(other)
                for _ in range(3):
                    await (
                        here.registry.all_devices()
                    )  # one call after the other: it has looked again
                is_over = end in ("block", "forget", "replace")
                assert (bool(live.told), beside.told) == (is_over, [])
            running.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("end", ["block", "forget"])
def test_a_blocked_or_forgotten_device_is_disconnected(tmp_path: Path, end: str) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device, live = await here.new(), FakeLive(hears=False)
            await here.registry.approve(device.id, device.pairing_code)
            await here.ask("POST", f"devices/{device.id}/notify", {"text": "hello"})
            with here.presence.connected(device.id, live):
                if end == "block":
                    status, told = await here.ask("POST", f"devices/{device.id}/block")
                    assert (status, told["standing"], told["waiting"]) == (200, "blocked", 0)
                else:
                    assert await here.ask("DELETE", f"devices/{device.id}") == (204, None)
            assert live.told == ["close"]
            assert here.announcements.waiting_by_device() == {}

    asyncio.run(main())


def test_a_notice_is_played_or_queued_and_the_response_says_which(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device, live, notice = await here.new(), FakeLive(), {"text": "dinner"}
            path = f"devices/{device.id}/notify"
            status, error = await here.ask("POST", path, notice)
            assert (status, error["code"]) == (409, "device_not_approved")
            await here.registry.approve(device.id, device.pairing_code)
            assert await here.ask("POST", path, notice) == (200, {"is_heard": False})
            assert (await here.ask("GET", f"devices/{device.id}"))[1]["waiting"] == 1
            with here.presence.connected(device.id, live):
                assert await here.ask("POST", path, notice) == (200, {"is_heard": True})
            assert live.heard == ["dinner"]

    asyncio.run(main())


def test_home_assistant_cannot_play_notices(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            lan = contact("192.168.1.7", kind="wyoming")
            device = await here.registry.check_in(lan)
            await here.registry.approve(device.id)
            await here.registry.edit(device.id, area="office")
            for path in (f"devices/{device.id}/notify", "areas/office/notify"):
                status, error = await here.ask("POST", path, {"text": "x"})
                assert (status, error["code"]) in {(409, "not_supported"), (404, "area_not_found")}

    asyncio.run(main())


def test_a_notice_may_be_sent_to_an_area(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device, live = await here.new(), FakeLive()
            await here.registry.approve(device.id, device.pairing_code)
            await here.registry.edit(device.id, area="Living room")
            with here.presence.connected(device.id, live):
                told = await here.ask("POST", "areas/living%20room/notify", {"text": "dinner"})
            assert (told, live.heard) == ((200, {"devices": [device.id]}), ["dinner"])
            told = await here.ask("POST", "areas/living%20room/notify", {"text": "dinner"})
            assert told == (200, {"devices": []})
            assert (await here.ask("GET", f"devices/{device.id}"))[1]["waiting"] == 1
            status, error = await here.ask("POST", "areas/bath/notify", {"text": "dinner"})
            assert (status, error["code"]) == (404, "area_not_found")
            assert "Living room" in error["message"]

    asyncio.run(main())


def test_devices_are_restarted_and_updated_if_they_support_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device, live = await here.new(), FakeLive()
            path = f"devices/{device.id}"
            for action in ("restart", "update"):
                status, error = await here.ask("POST", f"{path}/{action}")
                assert (status, error["code"]) == (409, "device_away")
            with here.presence.connected(device.id, live):
                assert await here.ask("POST", f"{path}/restart") == (200, {"id": device.id})
                asked = {"firmware": "2.1"}
                assert await here.ask("POST", f"{path}/update", asked) == (200, {"id": device.id})
                assert live.told == ["restart", "update 2.1"]
                live.does = False
                status, error = await here.ask("POST", f"{path}/restart")
                assert (status, error["code"]) == (409, "not_supported")

    asyncio.run(main())


def test_firmware_is_listed_and_a_missing_image_is_named(tmp_path: Path) -> None:
    root = tmp_path / "firmware"

    async def main() -> None:
        async with scene(tmp_path, images={"xiaozhi": FirmwareFolder(root)}) as here:
            device, live = await here.new(), FakeLive()
            path = f"devices/{device.id}"
            status, told = await here.ask("GET", f"{path}/firmware")
            assert (status, told["images"]) == (200, [])
            assert told["place"] == f"{root}/VERSION/BOARD.bin"
            with here.presence.connected(device.id, live):
                status, error = await here.ask("POST", f"{path}/update")
                assert (status, error["code"]) == (404, "firmware_not_found")
                assert told["place"] in error["message"]
                for name in ("2.5.0", "2.4.0"):
                    (root / name).mkdir(parents=True)
                    (root / name / "box.bin").write_bytes(b"\xe9")
                await here.registry.check_in(contact("aa:01", board="box"))
                _, told = await here.ask("GET", f"{path}/firmware")
                assert [one["version"] for one in told["images"]] == ["2.5.0", "2.4.0"]
                assert (told["images"][0]["size_bytes"], len(told["images"][0]["sha256"])) == (
                    1,
                    64,
                )
                assert (await here.ask("POST", f"{path}/update"))[0] == 200
                for asked, code in (("http://x/y.bin", "firmware_url_refused"), ("1", "firmware_")):
                    status, error = await here.ask("POST", f"{path}/update", {"firmware": asked})
                    assert (status >= 400, error["code"].startswith(code)) == (True, True)
                assert live.told == ["update "]

    asyncio.run(main())


def test_the_log_of_a_device_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            device = await here.new()
            with here.presence.connected(device.id, FakeLive(timing={"a": 1.5})):
                here.presence.note_turn(device.id)
                here.presence.note_error(device.id, "engine_failed")
                at = "2026-03-01T12:00:00.000+00:00"
                entries = [
                    {"at": at, "what": "connected"},
                    {"at": at, "what": "turn", "timing": {"a": 1.5}},
                    {"at": at, "what": "error", "code": "engine_failed"},
                ]
                told = await here.ask("GET", f"devices/{device.id}/log")
                assert told == (200, {"entries": entries})

    asyncio.run(main())


async def _event(answer: ClientResponse) -> list[dict[str, Any]]:
    """Returns the next list of devices."""
    while (line := await answer.content.readline()) != b"event: devices\n":
        assert line in {b": still here\n", b"\n"}
    data = (await answer.content.readline()).removeprefix(b"data: ")
    assert await answer.content.readline() == b"\n"
    devices: list[dict[str, Any]] = msgspec.json.decode(data)["devices"]
    return devices


def test_watchers_see_every_kind_of_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_file, "SETTLE_S", 0)

    async def main() -> None:
        async with scene(tmp_path) as here, here.client.get("/v1/devices/events") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert await _event(answer) == []
            device = await here.new()
            assert [one["standing"] for one in await _event(answer)] == ["new"]
            await here.registry.approve(device.id, device.pairing_code)
            assert [one["standing"] for one in await _event(answer)] == ["approved"]
            await here.ask("POST", f"devices/{device.id}/notify", {"text": "x"})
            assert [one["waiting"] for one in await _event(answer)] == [1]
            live = FakeLive()
            with here.presence.connected(device.id, live):
                assert [one["doing"] for one in await _event(answer)] == ["idle"]
                live.activity = "listening"
                here.presence.note_change()
                assert [one["doing"] for one in await _event(answer)] == ["listening"]
            assert [one["is_connected"] for one in await _event(answer)] == [False]
            await here.registry.forget(device.id)
            assert await _event(answer) == []

    asyncio.run(main())


def test_an_idle_watch_gets_heartbeats_and_changes_of_other_servers(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            scene(tmp_path, heartbeat_s=0.02) as here,
            here.client.get("/v1/devices/events") as answer,
        ):
            assert await _event(answer) == []
            assert await answer.content.readline() == b": still here\n"
            async with open_database(f"sqlite:///{tmp_path}/devices.db") as other:
                there = DeviceRegistry(other, here.clock, RegistrySettings())
                await there.check_in(contact("bb:01"))
            assert [one["hardware_id"] for one in await _event(answer)] == ["bb:01"]

    asyncio.run(main())


def test_a_page_that_reads_nothing_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "STALL_S", 0.05)
    monkeypatch.setattr(door_file, "SETTLE_S", 0)
    monkeypatch.setattr(door_file, "MAX_WATCHERS", 1)

    async def main() -> None:
        async with scene(tmp_path) as here, here.client.get("/v1/devices/events") as answer:
            assert await _event(answer) == []
            long = DeviceProfile(instructions=10_000 * "a")
            ids = [(await here.new(f"aa:{number}")).id for number in range(50)]
            for one in ids:  # half a megabyte at once
                await here.registry.edit(one, profile=lambda _: long)
            status = 503
            while status == 503:  # while what nobody reads finds room in sockets
                await here.registry.edit(ids[0], area=token_hex(8))
                async with here.client.get("/v1/devices/events") as other:
                    status = other.status
            assert status == 200

    asyncio.run(main())


def test_the_number_of_watchers_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_file, "MAX_WATCHERS", 1)

    async def main() -> None:
        async with scene(tmp_path) as here, here.client.get("/v1/devices/events") as first:
            assert await _event(first) == []
            status, error = await here.ask("GET", "devices/events")
            assert (status, error["code"]) == (503, "too_many_watchers")

    asyncio.run(main())


def test_nothing_is_served_without_the_key(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path, gate=AccessGate(is_local=False, key=KEY)) as here:
            for method, path in (
                ("GET", "devices"),
                ("POST", "devices/pair"),
                ("GET", "devices/x"),
            ):
                assert (await here.ask(method, path))[0] == 401
            bearer = {"Authorization": f"Bearer {KEY}"}
            async with here.client.get("/v1/devices", headers=bearer) as answer:
                assert answer.status == 200

    asyncio.run(main())


def test_a_failed_database_gives_an_error_response(tmp_path: Path) -> None:
    (tmp_path / "devices.db").mkdir()

    async def main() -> None:
        async with scene(tmp_path) as here:
            for path in ("devices", "devices/events"):
                status, error = await here.ask("GET", path)
                assert (status, error["code"]) == (503, "storage_failed")

    asyncio.run(main())
