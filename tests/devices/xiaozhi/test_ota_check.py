"""`/xiaozhi/ota/`: the response to the check-in of a starting board."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import WSServerHandshakeError

from core.errors import RequestError
from devices.fleet.directory import Device
from devices.xiaozhi.audio import PACKET_MS, RATE_HZ
from devices.xiaozhi.ota_check import check_in_reply, claims_of, hardware_id_of
from devices.xiaozhi.settings import XiaozhiSettings
from firmware_protocol.xiaozhi.state_machine import DialogueSettings
from server.config.sections.xiaozhi import XiaozhiConfig
from server.http.auth import AccessGate
from tests.devices.xiaozhi.servers import LOOPBACK, MemoryDirectory, Scene, Server, against
from tests.server.http.harness import KEY, error_of

pytestmark = pytest.mark.live

MAC = "a1:b2:c3:d4:e5:f6"
HEADERS = {"Device-Id": MAC}
PATH = "/xiaozhi/ota/"
DEVICE = Device(
    id="dev_1", kind="xiaozhi", hardware_id=MAC, name="x", standing="new", pairing_code="123456"
)


async def in_chunks(body: bytes) -> AsyncIterator[bytes]:
    """Sends a body without a Content-Length."""
    yield body


async def refused(response: Any) -> tuple[int, str]:
    return response.status, (await error_of(response))["code"]


def told(device: Device, firmware: str = "2.4.2", token: str = "") -> dict[str, Any]:
    now = datetime(2026, 11, 19, 12, tzinfo=timezone(timedelta(hours=1)))
    answer = check_in_reply(device, firmware, now, "ws://h:8080/xiaozhi/v1/", token)
    found: dict[str, Any] = json.loads(msgspec.json.encode(answer))
    return found


def test_an_approved_board_gets_only_the_url_to_connect_to() -> None:
    assert told(replace(DEVICE, standing="approved"), token="secret") == {
        "server_time": {"timestamp": 1795086000000, "timezone_offset": 60},
        "websocket": {"url": "ws://h:8080/xiaozhi/v1/", "token": "secret", "version": 1},
        "firmware": {"version": "2.4.2", "url": ""},
    }


def test_a_new_board_shows_its_code_and_polls() -> None:
    answer = told(DEVICE, token="secret")
    assert set(answer) == {"server_time", "firmware", "activation", "websocket"}
    assert answer["websocket"]["token"] == "secret"
    assert "websocket" not in told(DEVICE)
    shown = answer["activation"]
    assert (shown["code"], len(shown["challenge"])) == ("123456", 32)
    assert "123456" in shown["message"]


@pytest.mark.parametrize("firmware", ["", "2.4.2-beta", "v2", "2..4", "9" * 20, "2.4.2\n", "٣"])
def test_a_version_that_would_stop_a_board_is_not_repeated(firmware: str) -> None:
    assert "firmware" not in told(DEVICE, firmware)


@pytest.mark.parametrize("mac", ["A1:B2:C3:D4:E5:F6", f" {MAC} "])
def test_a_mac_may_have_upper_and_lower_case(mac: str) -> None:
    assert hardware_id_of({"Device-Id": mac}) == MAC


@pytest.mark.parametrize("mac", ["", "a1b2c3d4e5f6", MAC[:-3], f"{MAC}:00", f"x{MAC[1:]}"])
def test_an_invalid_mac_is_refused(mac: str) -> None:
    with pytest.raises(RequestError, match="Device-Id"):
        hardware_id_of({"Device-Id": mac})


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"application":7,"board":[]}', b"[" * 30_000]
)
def test_a_body_without_details_is_accepted(body: bytes) -> None:
    headers = HEADERS | {"User-Agent": "lichuang/2.4.1", "Accept-Language": "zh-CN"}
    contact = claims_of(headers, body, "10.0.0.7")
    assert (contact.board, contact.firmware, contact.language) == ("lichuang", "2.4.1", "zh")
    assert (contact.hardware_id, contact.address) == (MAC, "10.0.0.7")


def test_texts_from_a_board_are_shortened_and_made_printable() -> None:
    board = {"board": {"name": "\x1b[31m" + "x" * 999, "type": "a\nb"}}
    contact = claims_of(HEADERS, json.dumps(board).encode(), "10.0.0.7")
    assert (len(contact.name), contact.board) == (64, "ab")


def test_new_boards_wait_until_they_are_approved() -> None:
    async def act(server: Server) -> None:
        directory = server.scene.directory
        board = server.board()
        status, answer = await board.check_in()
        assert (status, answer["activation"]["code"]) == (200, "123456")
        assert set(answer["websocket"]) == {"url", "token", "version"}
        await board.open(listens=False)
        assert (await board.text("alert"))["message"] == "123456"
        activate = f"{PATH}activate"
        async with server.client.post(activate, data=b"{}", headers=HEADERS) as response:
            assert response.status == 202
        directory.approve(MAC)
        await board.closed.wait()
        await board.hang_up()
        await board.open()  # clients on computers do not check in again
        assert await board.turn("one") == ("one", ["you said one."])
        await board.hang_up()

    against(act, Scene(directory=MemoryDirectory(approves=False)))


def test_neither_a_code_nor_a_replayed_activation_gives_a_key() -> None:
    """The response describes the state and contains nothing with which a board could connect."""

    async def act(server: Server) -> None:
        board = server.board()
        await board.check_in()
        code = server.scene.directory.known[MAC].pairing_code
        given = dict(server.scene.directory.tokens)
        headers = board.headers() | {"Authorization": f"Bearer {code}"}
        async with server.client.get("/xiaozhi/v1/", headers=headers) as response:
            assert response.status == 401
        server.scene.directory.approve(MAC)
        body = {"algorithm": "hmac-sha256", "challenge": "old", "hmac": "00", "code": code}
        for _ in range(2):
            async with server.client.post(
                f"{PATH}activate", json=body, headers=HEADERS
            ) as replayed:
                assert (replayed.status, await replayed.text()) == (200, "{}")
        assert server.scene.directory.tokens == given

    against(act, Scene(directory=MemoryDirectory(approves=False)))


def test_the_response_depends_on_the_standing_of_the_device() -> None:
    async def act(server: Server) -> None:
        post = server.client.post
        async with server.client.get(PATH) as response:
            assert (response.status, "Earshot" in await response.text()) == (200, True)
        async with post(PATH) as response:
            assert (response.status, (await error_of(response))["param"]) == (400, "Device-Id")
        async with post(f"{PATH}activate", headers=HEADERS) as response:
            assert (response.status, (await error_of(response))["code"]) == (
                404,
                "device_not_found",
            )
        for body in (b"x" * 40_000, in_chunks(b"x" * 40_000)):
            async with post(PATH, headers=HEADERS, data=body) as response:
                assert await refused(response) == (413, "too_large")
        for name in ("X-Forwarded-For", "Via", "CF-Connecting-IP", "Tailscale-User-Login"):
            async with post(PATH, headers=HEADERS | {name: "10.0.0.9"}) as response:
                assert (await error_of(response))["code"] == "forbidden_network"
        assert server.scene.directory.known == {}
        async with post(PATH, headers=HEADERS) as response:
            url = (await response.json())["websocket"]["url"]
        port = server.client._base_url.port if server.client._base_url else 0
        assert url == f"ws://127.0.0.1:{port}/xiaozhi/v1/"
        async with post(PATH, headers=HEADERS | {"Host": "localhost"}) as response:
            assert (await response.json())["websocket"][
                "url"
            ] == f"ws://localhost:{port}/xiaozhi/v1/"
        server.scene.directory.change(MAC, standing="blocked")
        for path in (PATH, f"{PATH}activate"):
            async with post(path, headers=HEADERS) as response:
                assert (response.status, (await error_of(response))["code"]) == (
                    403,
                    "device_blocked",
                )

    against(act)


def test_clients_of_other_networks_are_refused() -> None:
    async def act(server: Server) -> None:
        for path in (PATH, f"{PATH}activate"):
            async with server.client.post(path, headers=HEADERS) as response:
                assert (response.status, (await error_of(response))["code"]) == (
                    403,
                    "forbidden_network",
                )
        assert server.scene.directory.known == {}

    settings = XiaozhiSettings(networks=(ip_network("10.0.0.0/8"),))
    against(act, Scene(settings=settings))


def test_a_board_needs_no_server_key_and_its_key_gives_no_other_access() -> None:
    async def act(server: Server) -> None:
        board = await server.ready()
        assert await board.turn("one") == ("one", ["you said one."])
        await board.hang_up()
        headers = {"Authorization": f"Bearer {board.flash['token']}"}
        async with server.client.get("/v1/models", headers=headers) as response:
            assert response.status == 401

    against(act, Scene(gate=AccessGate(is_local=False, key=KEY)))


def test_a_configured_url_is_sent_to_boards() -> None:
    async def act(server: Server) -> None:
        _, answer = await server.board().check_in()
        assert answer["websocket"]["url"] == "wss://earshot.example/xiaozhi/v1/"

    settings = XiaozhiSettings(networks=LOOPBACK, url="wss://earshot.example/xiaozhi/v1/")
    against(act, Scene(settings=settings))


def test_configured_settings_are_sent_to_boards() -> None:
    config = XiaozhiConfig(networks=("192.168.1.0/24",), max_silence_s=30, max_turn_s=15)
    settings = config.as_settings("/var/earshot", XiaozhiSettings(networks=()).initial_settings)
    usual = replace(settings.initial_settings(), wake_word="alexa")
    woken = config.as_settings("", lambda: usual)
    assert woken.initial_settings().wake_word == ""
    assert (settings.folder, settings.offers_firmware) == (
        Path("/var/earshot/xiaozhi/firmware"),
        False,
    )
    assert (
        XiaozhiConfig(firmware="at_start")
        .as_settings("", settings.initial_settings)
        .offers_firmware
    )
    assert ip_network("192.168.1.0/24") in settings.networks
    assert ip_network("127.0.0.0/8") in settings.networks
    assert settings.dialogue == replace(DialogueSettings(), max_silence_s=30, max_turn_s=15)


def test_audio_is_sent_as_announced_in_our_hello() -> None:
    """Also for a board that sends no parameters: the firmware's own defaults."""
    downlink = DialogueSettings().downlink
    assert (downlink.sample_rate, downlink.frame_duration) == (RATE_HZ, PACKET_MS) == (24_000, 60)


def test_a_browser_client_is_approved_by_code_and_connects_by_query() -> None:
    """Never automatically, not even on this machine, where a browser may run any page."""

    async def act(server: Server) -> None:
        client, directory = server.client, server.scene.directory
        site = HEADERS | {"Client-Id": "page-1", "Origin": "http://test.example"}
        async with client.post(PATH, json={}, headers=site) as response:
            assert response.headers["Access-Control-Allow-Origin"] == site["Origin"]
            answer = await response.json()
        assert directory.contacts[-1].address == ""
        directory.approve(MAC)
        async with client.post(f"{PATH}activate", data=b"{}", headers=site) as response:
            assert (response.status, response.headers["Vary"]) == (200, "Origin")
        query = {
            "device-id": MAC,
            "client-id": "page-1",
            "authorization": f"Bearer {answer['websocket']['token']}",
        }
        origin = {"Origin": site["Origin"]}
        async with client.ws_connect("/xiaozhi/v1/", params=query, headers=origin) as ws:
            await ws.send_json({"type": "hello", "version": 1, "transport": "websocket"})
            assert (await ws.receive_json())["type"] == "hello"
        for wrong in ({**query, "device-id": "00:00:00:00:00:00"}, {"device-id": MAC}):
            with pytest.raises(WSServerHandshakeError, match="401"):
                await client.ws_connect("/xiaozhi/v1/", params=wrong, headers=origin)

    against(act, Scene(directory=MemoryDirectory(approves=False)))
