"""Firmware updates of boards: from the server's folder, on request or at their start."""

import logging
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from core.errors import RequestError
from devices.xiaozhi.firmware import version_in
from devices.xiaozhi.ota_check import is_newer
from devices.xiaozhi.settings import XiaozhiSettings
from tests.devices.xiaozhi.servers import LOOPBACK, Scene, Server, against
from tests.server.http.harness import error_of

pytestmark = pytest.mark.live

BOARD = "bread-compact-wifi"
IMAGE = b"\xe9new" + bytes(5000)


def scene_of(root: Path, *, offers: bool = False) -> Scene:
    for version, data in {"2.5.0": IMAGE, "2.4.0": b"old"}.items():
        (root / version).mkdir(parents=True)
        (root / version / f"{BOARD}.bin").write_bytes(data)
    (root.parent / "secret.bin").write_bytes(b"secret")
    settings = XiaozhiSettings(networks=LOOPBACK, folder=root, offers_firmware=offers)
    return Scene(settings=settings)


def test_a_connected_board_fetches_the_servers_image(tmp_path: Path) -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        await board.turn("one")  # it has told its tools meanwhile
        (device_id,) = server.scene.presence.ids()
        live = server.scene.presence.find(device_id)
        assert live is not None
        for count, version in enumerate(("", "2.4.0"), start=1):
            assert await live.update(version)
            await board.fetched(count)  # two downloads at once may end in either order
        assert not await live.update("9.9")
        assert board.images == [IMAGE, b"old"]
        with pytest.raises(RequestError) as error:
            await live.update("http://evil/x.bin")
        assert error.value.code == "firmware_url_refused"
        with pytest.raises(RequestError, match="version"):
            await live.update("../..")
        await board.hang_up()

    against(act, scene_of(tmp_path / "firmware"))


def test_a_starting_board_is_updated_only_if_configured(
    tmp_path: Path,
) -> None:
    async def act(server: Server) -> None:
        board = server.board()
        await board.boot()
        assert board.images == ([IMAGE] if server.scene.settings.offers_firmware else [])
        newest = server.board(version="2.5.0")
        await newest.boot()
        assert newest.images == []

    scene = scene_of(tmp_path / "firmware")
    against(act, scene)
    offers = replace(scene.settings, offers_firmware=True)
    against(act, replace(scene, settings=offers))


def test_a_pre_release_is_not_offered_and_hides_no_release(tmp_path: Path) -> None:
    root = tmp_path / "firmware"
    scene = scene_of(root, offers=True)
    for version in ("2.6.0-rc.1", "v3.0.0", "nightly"):
        (root / version).mkdir()
        (root / version / f"{BOARD}.bin").write_bytes(b"early")

    async def act(server: Server) -> None:
        board = server.board()
        _, told = await board.check_in()
        assert told["firmware"]["version"] == "2.5.0"
        assert board.images == [IMAGE]
        early = server.board(version="2.5.0-rc.1", mac="a1:b2:c3:d4:e5:00")
        _, told = await early.check_in()
        assert told["firmware"]["version"] == "2.5.0"
        later = server.board(version="2.6.0-rc.1", mac="a1:b2:c3:d4:e5:01")
        _, told = await later.check_in()
        assert "firmware" not in told

    against(act, scene)


def application(version: str) -> bytes:
    """Returns the header of an ESP-IDF application of this version."""
    about = bytes.fromhex("3254cdab") + bytes(12) + version.encode().ljust(32, b"\0")
    return b"\xe9".ljust(32, b"\0") + about + bytes(500)


def test_an_image_of_another_version_than_its_folder_is_not_offered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "firmware"
    scene = scene_of(root, offers=True)
    for version, own in {"2.7.0": "2.4.2\x1b", "2.6.0": "2.6.0"}.items():
        (root / version).mkdir()
        (root / version / f"{BOARD}.bin").write_bytes(application(own))

    async def act(server: Server) -> None:
        board = server.board()
        for _ in range(2):  # its line is written once
            _, told = await board.check_in()
            assert told["firmware"]["version"] == "2.6.0"
        assert application("2.6.0") in board.images

    against(act, scene)
    (line,) = [one.getMessage() for one in caplog.records if "at every start" in one.getMessage()]
    assert "2.7.0" in line
    assert "2.4.2?" in line


@pytest.mark.parametrize("start", [b"", b"\xe9", b"\xe9" + bytes(78), b"\xea" + bytes(100)])
def test_a_file_that_is_not_an_application_has_no_version(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "x.bin").write_bytes(start)
    assert version_in(tmp_path / "x.bin") == ""
    assert version_in(tmp_path / "gone.bin") == ""


def test_an_unapproved_board_is_offered_no_firmware(tmp_path: Path) -> None:
    async def act(server: Server) -> None:
        server.scene.directory.approves = False
        board = server.board()
        _, told = await board.check_in()
        assert told["firmware"] == {"version": "2.4.2", "url": ""}

    against(act, scene_of(tmp_path / "firmware", offers=True))


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"2.5.0/{BOARD}.bin", 200, ""),
        (f"2.6.0/{BOARD}.bin", 404, "firmware_not_found"),
        ("..%2f../secret.bin", 400, "invalid_value"),
        ("2.5.0/..%2f..%2fsecret.bin", 400, "invalid_value"),
    ],
)
def test_files_are_served_only_from_their_folder(
    path: str, status: int, code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(server: Server) -> None:
        url = f"/xiaozhi/ota/firmware/{path}"
        async with server.client.get(url) as response:
            assert response.status == status
            if code:
                assert (await error_of(response))["code"] == code
            else:
                assert response.headers["X-Checksum-SHA256"] == sha256(IMAGE).hexdigest()
                assert await response.read() == IMAGE
        async with server.client.get(url, headers={"X-Forwarded-For": "10.0.0.1"}) as response:
            assert (response.status, (await error_of(response))["code"]) == (
                403,
                "forbidden_network",
            )

    against(act, scene_of(tmp_path / "firmware"))
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(lines) == (code == "invalid_value")
    assert not [one for one in lines if "is not a valid name" not in one or "secret" in one]


@pytest.mark.parametrize(
    ("version", "than", "is_it"),
    [
        ("2.10.0", "2.9.9", True),
        ("2.4.2", "2.4.2", False),
        ("2.4", "2.4.2", False),
        ("2.4.2-rc1", "2.4.1", False),
        ("2.5.0", "", False),
        ("v3", "2.4.1", False),
        ("2.5.0", "2.5.0-rc.1", True),
        ("2.5.0", "2.5.1-rc1", False),
        ("2.5.0", "2.4.0-rc.x", False),
        ("2.5.0", "v2.4", False),
        ("2.5.0", "2.4.9999999999", False),
        ("٣", "2.4.1", False),
    ],
)
def test_only_version_numbers_that_a_board_can_parse_are_newer(
    version: str, than: str, is_it: bool
) -> None:
    assert is_newer(version, than) is is_it
