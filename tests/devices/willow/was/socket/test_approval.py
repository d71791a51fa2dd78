"""Which devices are served, and what closes a socket."""

import json
import logging
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from firmware_protocol.willow.decode import MAX_MESSAGE_BYTES
from tests.devices.willow.was.fake_directory import Known
from tests.devices.willow.was.servers import SPEECH, Scene, Server, against, mac_of
from tests.devices.willow.was.simulated_device import fetch
from tests.server.http.harness import KEY, error_of

pytestmark = pytest.mark.live

HELLO = {"hostname": "willow-1", "hw_type": "ESP32-S3-BOX", "mac_addr": [2, 2, 3, 4, 5, 6]}
NOTHING: dict[str, Any] = {"config": None, "nvs": None, "messages": [], "notified": []}


def got(device: Any) -> dict[str, Any]:
    return {name: getattr(device, name) for name in NOTHING}


def test_a_new_device_gets_nothing_until_it_is_approved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def act(server: Server) -> None:
        device = await server.device()
        await server.until(lambda: server.known.devices)
        await device.wake()
        await device.send({"cmd": "endpoint", "data": {"text": "one"}})
        url = f"{server.url}/api/willow"
        async with device._client.post(url, data=SPEECH) as response:  # type: ignore[union-attr]
            assert response.status == 401
        for path in ("/api/tts?text=one", "/api/ota?version=1&platform=BOX", "/api/asset"):
            assert (await fetch(f"{server.url}{path}", device.address))[0] == 401
        said = {"hostname": device.hostname}
        for action in ("restart", "identify", "notify"):
            path = f"/api/client?action={action}"
            asked = await server.client.post(path, json={**said, "data": {}})
            assert asked.status in (400, 404)
        nvs = {"WIFI": {"SSID": "home", "PSK": "correct horse"}}
        await server.client.post("/api/config?type=nvs&apply=true", json=nvs)
        await device.reboot()
        await server.until(lambda: len(server.known.contacts) == 2)
        assert (got(device), server.presence.ids()) == (NOTHING, ())
        server.known.change(mac_of(device), standing="approved")
        await device.configured()
        assert (await device.speak(SPEECH)).ok is True
        assert device.nvs is None

    against(act, Scene(known=Known("new")))
    lines = [one.getMessage() for one in caplog.records if "not served" in one.getMessage()]
    who = "willow-84fce6000001 (dev_0, 84:fc:e6:00:00:01)"
    assert lines == [f"! willow: {who} is new; it is not served until it is approved"]
    assert "horse" not in caplog.text


def test_a_blocked_device_is_closed_and_then_ignored() -> None:
    async def act(server: Server) -> None:
        device, other = await server.device(1), await server.device(2)
        server.known.change(mac_of(device), standing="blocked")
        await device.until(lambda: device.close_code)
        assert device.close_code == 1008
        status, *_ = await fetch(f"{server.url}/api/tts?text=one", device.address)
        assert status == 401
        seen = len(device.messages)
        await device.off()
        await device.boot()
        await server.until(lambda: len(server.known.contacts) == 3)
        await device.send({"cmd": "get_config"})
        assert (await other.speak(SPEECH)).ok is True
        assert (len(device.messages), server.presence.ids()) == (seen, ("dev_1",))

    against(act)


def test_a_local_device_gives_no_access_if_this_machine_needs_the_key() -> None:
    """Its address could be that of a forwarder for any client."""

    async def act(server: Server) -> None:
        device = await server.device()
        for path in ("/api/tts?text=one", "/api/ota?version=1&platform=BOX"):
            assert (await fetch(f"{server.url}{path}", device.address))[0] == 401
        await device.off()
        await server.until(lambda: not server.door.connected_devices.all())
        assert (await fetch(f"{server.url}/api/tts?text=one", device.address))[0] == 401

    against(act, Scene(trusts_this_machine=False))


@pytest.mark.parametrize("how", ["blocked", "forgotten"])
def test_the_address_of_a_device_rejected_while_off_is_forgotten(how: str) -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        await device.off()
        await server.until(lambda: not server.door.connected_devices.all())
        status, *_ = await fetch(f"{server.url}/api/tts?text=one", device.address)
        assert status == 200  # it hangs up before it fetches
        if how == "blocked":
            server.known.change(mac_of(device), standing="blocked")
        else:
            server.known.forget(mac_of(device))
        await server.until(lambda: not server.door.connected_devices.departed_ids)
        status, *_ = await fetch(f"{server.url}/api/tts?text=one", device.address)
        assert status == 401

    against(act)


def test_a_forgotten_device_must_register_again() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        assert (await device.speak(SPEECH)).ok is True
        server.known.forget(mac_of(device))
        await device.until(lambda: device.close_code)
        assert (device.close_code, server.presence.ids()) == (1008, ())
        door = server.door
        assert (
            door.commands._queues,
            door.wake_words._latest,
            server.wake_arbiter._arbitration._levels,
        ) == (
            {},
            {},
            {},
        )

    against(act)


def test_the_newer_of_two_sockets_replaces_the_older() -> None:
    async def act(server: Server) -> None:
        old, new = await server.device(1), await server.device(1)
        await old.until(lambda: old.close_code)
        assert old.close_code == 1008
        assert (await new.speak(SPEECH)).ok is True
        assert (len(server.known.devices), old.results()) == (1, [])

    against(act)


def test_commands_for_a_connected_device() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        live = server.presence.find("dev_0")
        assert live is not None
        assert await live.restart()
        await device.until(lambda: device.messages[-1] == {"cmd": "restart"})
        await live.close()
        await device.until(lambda: device.close_code)
        assert device.close_code == 1008

    against(act)


async def _closed_by(server: Server, *frames: str | bytes, hello: bool = True) -> tuple[int, str]:
    """Returns the close code and its reason."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with server.stranger.ws_connect("/ws", headers=headers) as ws:
        if hello:
            await ws.send_str(json.dumps({"hello": HELLO}))
        for frame in frames:
            with suppress(ConnectionError):  # it may be refused before it was sent to its end
                await (ws.send_bytes(frame) if isinstance(frame, bytes) else ws.send_str(frame))
        while (message := await ws.receive()).type == aiohttp.WSMsgType.TEXT:
            pass
        return ws.close_code or 0, str(message.extra or "")


@pytest.mark.parametrize(
    ("frames", "code", "reason", "error"),
    [
        (["{"], 1002, "malformed_message", "malformed_message"),
        (["[]"], 1002, "malformed_message", "malformed_message"),
        (['{"wake_start":7}'], 1002, "malformed_message", "malformed_message"),
        ([b"\x00\x01"], 1002, "protocol_error", "protocol_error"),
        (['{"cmd":"' + "x" * 10_000_000 + '"}'], 1009, "", "too_large"),
        (['{"cmd":"' + "x" * MAX_MESSAGE_BYTES + '"}'], 1009, "", "too_large"),
        (
            [json.dumps({"hello": {**HELLO, "mac_addr": [9, 9, 9, 9, 9, 9]}})],
            1002,
            "protocol_error",
            "protocol_error",
        ),
    ],
    ids=["cut", "list", "field", "binary", "10 MB", "16 KB", "another device"],
)
def test_a_malformed_message_closes_only_its_socket(
    frames: list[str | bytes],
    code: int,
    reason: str,
    error: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def act(server: Server) -> None:
        device = await server.device()
        before = dict(server.known.values)
        closed = await _closed_by(server, *frames)
        # Who still sends megabytes may find the connection reset before it reads why.
        assert closed == (code, reason) or (closed[0] == 1006 and len(frames[0]) > 1_000_000)
        assert {key: value for key, value in server.known.values.items() if key in before} == before
        assert (await device.speak(SPEECH)).ok is True

    against(act)
    lines = [one.getMessage() for one in caplog.records]
    assert [line for line in lines if f"({error})" in line] == lines
    assert len(lines) == 1
    assert len(lines[0]) < 300


def test_a_socket_begins_with_hello() -> None:
    async def act(server: Server) -> None:
        closed = await _closed_by(server, '{"cmd":"get_config"}', hello=False)
        assert closed == (1002, "protocol_error")
        plain = await server.client.get("/ws")
        assert (await error_of(plain))["code"] == "websocket_expected"

    against(act)


def test_unknown_messages_of_newer_firmware_are_counted_and_ignored() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        await device.send({"response_end": {}})
        assert (await device.speak(SPEECH)).ok is True
        assert server.counts.counts["earshot_willow_unknown_messages"] == 1

    against(act)


def test_addresses_outside_the_named_networks_need_the_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(server: Server) -> None:
        for _ in range(2):
            with pytest.raises(aiohttp.WSServerHandshakeError) as error:
                await server.stranger.ws_connect("/ws")
            assert error.value.status == 401

    against(act, Scene(networks=()))
    assert caplog.text.count("because it is not in an allowed network") == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"X-Forwarded-For": "203.0.113.7"},
        {"Via": "1.1 proxy"},
        {"CF-Connecting-IP": "203.0.113.7"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_a_page_and_a_proxy_need_the_key_on_a_device_path(headers: dict[str, str]) -> None:
    async def act(server: Server) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await server.stranger.ws_connect("/ws", headers=headers)
        assert error.value.status == 401

    against(act)


def test_a_name_alone_does_not_identify_a_device() -> None:
    """An address without a device needs the key, whatever name it sends; with the key it is only
    transcribed."""

    async def act(server: Server) -> None:
        device = await server.device()
        said = {"device": "dev_0"}
        refused = await server.stranger.post("/api/willow", params=said, data=SPEECH)
        assert refused.status == 401
        headers = {"x-willow-id": device.hostname}
        heard = await server.client.post("/api/willow", params=said, data=SPEECH, headers=headers)
        assert (await heard.json())["text"] == "one two"
        assert (device.results(), server.scene.inference.llm.asked) == ([], [])

    against(act)


def test_two_devices_behind_one_address_have_different_urls() -> None:
    async def act(server: Server) -> None:
        first = await server.device(1)
        second = await server.device(2, boots=False)
        second.address = first.address
        await second.boot()
        await second.configured()
        assert (await second.speak(SPEECH)).ok is True
        assert (len(first.results()), len(second.results())) == (0, 1)
        assert second.config is not None
        second.config = {**second.config, "wis_url": f"{server.url}/api/willow"}
        turn = await second.speak(SPEECH)  # whose it is is not clear: the device carries the words
        assert (turn.ok, len(first.results()), len(second.results())) == (True, 0, 2)

    against(act)
