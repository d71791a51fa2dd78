"""WAS's REST API needs the key, shows no secret, and serves files only from their folders."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from devices.willow.was.device_config import MASK
from tests.devices.willow.was.servers import (
    IMAGE,
    SECRETS,
    Scene,
    Server,
    against,
    files,
    mac_of,
    post,
)
from tests.devices.willow.was.simulated_device import fetch
from tests.server.http.harness import error_of

pytestmark = pytest.mark.live

CONFIG = {
    "hass_host": "ha.lan",
    "hass_token": SECRETS[0],
    "mqtt_password": SECRETS[2],
    "rest_auth_pass": SECRETS[3],
    "wake_word": "hilexin",
}
NVS = {
    "WAS": {"URL": "ws://192.168.1.2:8502/ws"},
    "WIFI": {"SSID": "home", "PSK": SECRETS[1]},
}

GETS = (
    "/api/client",
    *(
        f"/api/config?type={kind}{more}"
        for kind in ("config", "nvs", "ha_url", "ha_token", "multinet", "was", "tz")
        for more in ("", "&default=true", "&hostname=dev_0")
    ),
    "/api/info",
    "/api/release?type=was",
    "/api/release?type=willow",
    *(f"/api/status?type={kind}" for kind in ("asyncio_tasks", "connmgr", "notify_queue")),
)


def test_no_response_contains_a_secret_and_masks_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        assert (await post(server, "/api/config?type=config&apply=true", CONFIG))[0] == 200
        assert (await post(server, "/api/config?type=nvs&apply=true", NVS))[0] == 200
        await post(server, "/api/config?type=was&apply=false", {"api_key": SECRETS[0]})
        await device.until(lambda: device.nvs)
        assert device.nvs == NVS
        for path in GETS:
            response = await server.client.get(path)
            assert response.status == 200, path
            text = await response.text()
            assert not [secret for secret in SECRETS if secret in text], path
        shown = await (await server.client.get("/api/config?type=config")).json()
        assert (shown["hass_token"], shown["hass_host"]) == (MASK, "ha.lan")
        nvs = await (await server.client.get("/api/config?type=nvs")).json()
        assert nvs == {**NVS, "WIFI": {"SSID": "home", "PSK": MASK}}
        await post(server, "/api/config?type=config&apply=false", shown)
        await post(server, "/api/config?type=nvs&apply=true", nvs)
        assert (await server.door.store.config())["hass_token"] == SECRETS[0]
        await device.until(lambda: sum("nvs" in one for one in device.messages) == 2)
        assert device.nvs == NVS
        wrong = await server.client.post("/api/config?type=nvs", json={"WIFI": {"PSK": "short-1"}})
        assert (await error_of(wrong))["param"] == "WIFI.PSK"

    against(act, Scene(sends_secrets=True))
    assert not [secret for secret in (*SECRETS, "short-1") if secret in caplog.text]


def test_devices_get_secrets_only_if_configured() -> None:
    """A client that sends the MAC of an approved device counts as that device."""

    async def act(server: Server) -> None:
        device = await server.device()
        status, answer = await post(server, "/api/config?type=nvs&apply=true", NVS)
        assert (status, answer["error"]["code"]) == (409, "secrets_not_sent")
        own = {**CONFIG, "was_mode": False}
        assert (await post(server, "/api/config?type=config&apply=true", own))[0] == 200
        await device.until(lambda: device.config and device.config["was_mode"] is False)
        assert device.nvs is None
        assert not [one for one in SECRETS if one in str(device.messages)]

    against(act)


def test_a_device_gets_only_the_tokens_that_it_needs() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        await post(server, "/api/config?type=config&apply=true", CONFIG)
        await device.until(lambda: device.config and device.config["wake_word"] == "hilexin")
        assert not [one for one in SECRETS if one in json.dumps(device.config)]

    against(act)


@pytest.mark.parametrize("path", [*GETS, "/api/ota?version=0.4.2&platform=ESP32-S3-BOX-3"])
def test_every_request_needs_the_key(path: str, tmp_path: Path) -> None:
    async def act(server: Server) -> None:
        assert (await server.stranger.get(path)).status == 401

    against(act, files(tmp_path))


def test_changes_need_the_key_also_from_a_device() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        for path in (
            "client?action=restart",
            "config?type=nvs&apply=true",
            "release?action=delete",
        ):
            url = f"{server.url}/api/{path}"
            async with device._client.post(url, json={}) as response:  # type: ignore[union-attr]
                assert response.status == 401
        assert (await fetch(f"{server.url}/api/config?type=nvs", device.address))[0] == 401

    against(act)


def test_each_device_gets_its_own_configuration_when_it_changes() -> None:
    async def act(server: Server) -> None:
        first, second = await server.device(1), await server.device(2)
        path = f"/api/config?type=config&apply=true&hostname={first.hostname}"
        assert (await post(server, path, {"speaker_volume": 5}))[0] == 200
        await first.until(lambda: first.config and first.config["speaker_volume"] == 5)
        everybody = "/api/config?type=config&apply=true"
        await post(server, everybody, {"speaker_volume": 90, "vad_timeout": 200})
        await second.until(lambda: second.config and second.config["speaker_volume"] == 90)
        assert first.config is not None
        assert (first.config["speaker_volume"], first.config["vad_timeout"]) == (5, 200)
        shown = await server.client.get(f"/api/config?type=config&hostname={first.hostname}")
        assert (await shown.json())["speaker_volume"] == 5
        pushed = len([one for one in first.messages if "config" in one])
        await first.reboot()
        await first.send({"notify_done": 5})
        await post(server, "/api/client?action=identify", {"hostname": first.hostname})
        await first.until(lambda: first.identified)
        assert len([one for one in first.messages if "config" in one]) == pushed
        first.config = None  # somebody erased it
        await first.reboot()
        await first.configured()
        server.known.change(mac_of(first), name="Kitchen box")
        clients = await (await server.client.get("/api/client")).json()
        assert [one["label"] for one in clients] == ["Kitchen box", second.hostname]
        assert clients[0]["version"] == "0.4.2-rc.2"
        assert await post(server, "/api/config?type=config", {"hostname": first.hostname}) == (
            200,
            "Success",
        )

    against(act)


def test_an_unapplied_configuration_waits_for_the_device() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        await post(server, "/api/config?type=config&apply=false", {"speaker_volume": 7})
        server.known.change(mac_of(device), name="Renamed")
        await post(server, "/api/client?action=identify", {"hostname": device.hostname})
        await device.until(lambda: device.identified)
        assert device.config is not None
        assert device.config["speaker_volume"] == 60
        await device.reboot()
        await device.until(lambda: device.config and device.config["speaker_volume"] == 7)

    against(act)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("config?type=config", {"speaker_volume": 101}, "speaker_volume"),
        ("config?type=config", {"speaker_volume": "60"}, "speaker_volume"),
        ("config?type=config", {"audio_codec": "OPUS"}, "audio_codec"),
        ("config?type=config", {"wis_url": "http://a\nb"}, "wis_url"),
        ("config?type=config", {"Bad Key": 1}, "Bad Key"),
        ("config?type=config", {"x": {"y": 1}}, "x"),
        ("config?type=config", {f"a{n}": "x" * 400 for n in range(20)}, "config"),
        ("config?type=config", {f"a{n}": 1 for n in range(101)}, "config"),
        ("config?type=config&hostname=nobody", {}, "hostname"),
        ("config?type=nvs", {"WIFI": {"SSID": "x" * 33}}, "WIFI.SSID"),
        ("config?type=nvs", {"WAS": {"URL": "http://a"}}, "WAS.URL"),
        ("config?type=nvs", {"WIFI": 7}, "WIFI"),
        ("config?type=tz", {}, "type"),
        ("client?action=explode", {}, "action"),
        ("client?action=config", {"mac_addr": "x", "label": "y"}, "mac_addr"),
        ("client?action=restart", {"hostname": "nobody"}, "hostname"),
        ("client?action=notify", {"data": {}}, "data"),
        ("client?action=notify", {"data": {"text": "x" * 1001}}, "data.text"),
        ("client?action=notify", {"data": {"text": "x", "volume": 101}}, "volume"),
        ("client?action=notify", {"data": {"text": "x", "repeat": 21}}, "repeat"),
        ("client?action=notify", {"data": {"cancel": True}}, "data.id"),
        ("client?action=notify", {"data": {"audio_url": "file:///etc/passwd"}}, "audio_url"),
        ("client?action=notify", {"data": {"audio_url": "http://192.168.1.1/"}}, "audio_url"),
        ("client?action=notify", {"data": {"audio_url": "http://127.0.0.1:1/"}}, "audio_url"),
        ("client?action=notify", {"data": {"audio_url": "http://localhost/"}}, "audio_url"),
        ("client?action=update", {"hostname": "dev_0", "ota_url": "http://evil/x.bin"}, "ota_url"),
        ("client?action=update", {"hostname": "dev_0", "version": "9"}, "ota_url"),
        ("client?action=update", {"hostname": "dev_0", "version": "../.."}, "version"),
        ("release?action=delete", {"path": "../secret.bin"}, "version"),
        ("release?action=delete", {"path": "0.4.2/../../secret.bin"}, "platform"),
        ("release?action=delete", {"path": "/etc/passwd"}, "version"),
        ("release?action=cache", {}, "action"),
    ],
)
def test_a_wrong_request_is_named_and_changes_nothing(
    path: str, body: Any, param: str, tmp_path: Path
) -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        before = (dict(server.known.values), len(device.messages))
        response = await server.client.post(f"/api/{path}", json=body)
        assert response.status in (400, 404, 413)
        assert (await error_of(response))["param"] == param
        assert (dict(server.known.values), len(device.messages)) == before
        assert (tmp_path / "secret.bin").exists()

    scene = files(tmp_path)
    scene.audio_hosts = ("localhost",)
    against(act, scene)


def test_a_body_of_ten_megabytes_is_refused() -> None:
    async def act(server: Server) -> None:
        body = b'{"a":"' + b"x" * 10_000_000 + b'"}'
        response = await server.client.post("/api/config?type=config", data=body)
        assert response.status == 413
        for wrong in (b"{", b"[1]", b"\xff", b"[" * 50_000):
            response = await server.client.post("/api/config?type=config", data=wrong)
            assert (await error_of(response))["code"] == "invalid_json"

    against(act)


def test_a_device_fetches_its_update_from_this_server(tmp_path: Path) -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        releases = await (await server.client.get("/api/release?type=was")).json()
        assert [one["name"] for one in releases] == ["0.4.2", "0.4.1"]
        asset = releases[0]["assets"][0]
        assert (asset["size"], asset["sha256"]) == (len(IMAGE), sha256(IMAGE).hexdigest())
        said = {"hostname": device.hostname}
        await post(server, "/api/client?action=update", {**said, "ota_url": asset["was_url"]})
        await device.until(lambda: len(device.images) == 1)
        live = server.presence.find("dev_0")
        assert live is not None
        assert [await live.update(one) for one in ("", "0.4.1", "9.9")] == [True, True, False]
        await device.until(lambda: len(device.images) == 3)
        assert device.images == [IMAGE, IMAGE, b"old"]
        await device.off()  # it fetches after it hung up
        url = f"{server.url}/api/ota?version=0.4.2&platform=ESP32-S3-BOX-3"
        status, headers, image = await fetch(url, device.address)
        assert (status, image) == (200, IMAGE)
        assert headers["x-checksum-sha256"] == sha256(IMAGE).hexdigest()
        await post(server, "/api/release?action=delete", {"path": "0.4.1/ESP32-S3-BOX-3.bin"})
        assert not (tmp_path / "firmware/0.4.1").exists()

    against(act, files(tmp_path))


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("ota?version=../..&platform=secret", 400),
        ("ota?version=0.4.2&platform=../../secret", 400),
        ("ota?version=%2e%2e&platform=secret", 400),
        ("ota?version=0.4.2%00&platform=secret", 400),
        ("ota?version=9&platform=BOX", 404),
        ("ota", 400),
        ("asset?type=audio&asset=../../secret.bin", 400),
        ("asset?type=../..&asset=secret.bin", 400),
        ("asset?type=audio&asset=bell.mp3", 400),
        ("asset?type=audio&asset=none.wav", 404),
        ("asset?type=audio&asset=bell.wav", 200),
        ("asset?type=image&asset=room.png", 200),
    ],
)
def test_files_are_served_only_from_their_folders(query: str, status: int, tmp_path: Path) -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        found, headers, body = await fetch(f"{server.url}/api/{query}", device.address)
        assert (found, "content-length" in headers) == (status, True)
        assert SECRETS[0].encode() not in body

    against(act, files(tmp_path))
