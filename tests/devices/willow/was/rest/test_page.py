"""Requests of WAS's own page and scripts."""

from pathlib import Path
from typing import Any

import pytest

from tests.devices.willow.was.servers import IMAGE, SPEECH, Server, against, files, post

pytestmark = pytest.mark.live


def test_a_page_that_calls_the_server_by_another_name_updates_devices(tmp_path: Path) -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        named = {"Host": server.url.replace("http://127.0.0.1", "localhost")}
        listed = await server.client.get("/api/release?type=willow", headers=named)
        url = (await listed.json())[0]["assets"][0]["was_url"]
        assert url.startswith("http://localhost:")
        said = {"hostname": "dev_0", "ota_url": url}
        told = await server.client.post("/api/client?action=update", json=said, headers=named)
        assert told.status == 200
        await device.until(lambda: device.images)
        assert device.images == [IMAGE]
        odd = {**said, "ota_url": "http://["}
        status, answer = await post(server, "/api/client?action=update", odd)
        assert (status, answer["error"]["param"]) == (400, "ota_url")

    against(act, files(tmp_path))


def test_an_absent_device_can_be_named_and_placed() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        config = "/api/client?action=config"
        said = {"hostname": device.hostname, "label": "Kitchen  speaker", "area": "kitchen"}
        assert (await post(server, config, said))[0] == 200
        await server.until(lambda: server.door.connected_devices.all()[0].device.area == "kitchen")
        (shown,) = await (await server.client.get("/api/client")).json()
        assert (shown["label"], shown["area"]) == ("Kitchen speaker", "kitchen")
        await device.off()
        mac = shown["mac_addr"]
        assert (await post(server, config, {"mac_addr": mac.upper(), "area": ""}))[0] == 200
        kept = server.known.devices[mac]
        assert (kept.name, kept.area) == ("Kitchen speaker", "")

    against(act)


@pytest.mark.parametrize(
    ("said", "status", "param"),
    [
        ({"mac_addr": "aa"}, 400, "label"),
        ({"mac_addr": "aa", "label": "x"}, 404, "mac_addr"),
        ({"hostname": "nobody", "label": "x"}, 404, "hostname"),
        ({"hostname": "dev_0", "label": " "}, 400, "label"),
        ({"hostname": "dev_0", "name": "x" * 65}, 400, "name"),
        ({"hostname": "dev_0", "area": 7}, 400, "area"),
        ({"hostname": "dev_0", "label": "a\nb"}, 400, "label"),
    ],
)
def test_an_impossible_name_is_refused(said: dict[str, Any], status: int, param: str) -> None:
    async def act(server: Server) -> None:
        await server.device()
        before = dict(server.known.devices)
        got, answer = await post(server, "/api/client?action=config", said)
        assert (got, answer["error"]["param"]) == (status, param)
        assert server.known.devices == before

    against(act)


def test_a_masked_password_in_the_was_url_is_kept() -> None:
    async def act(server: Server) -> None:
        url = "ws://any:secret-1@a:8502/ws"
        await post(server, "/api/config?type=nvs", {"WAS": {"URL": url}})
        shown = await (await server.client.get("/api/config?type=nvs")).json()
        assert "secret-1" not in str(shown)
        assert (await post(server, "/api/config?type=nvs", shown))[0] == 200
        assert (await server.door.store.nvs()).was_url == url

    against(act)


def test_an_impossible_configuration_is_refused_and_devices_stay_connected() -> None:
    """Each half is valid, but the settings for all and those for one device do not fit together."""

    async def act(server: Server) -> None:
        device = await server.device()
        halves = [{f"{name}{number}": "x" * 500 for number in range(5)} for name in "ab"]
        config = "/api/config?type=config&apply="
        assert (await post(server, f"{config}false", halves[0]))[0] == 200
        status, answer = await post(server, f"{config}true&hostname=dev_0", halves[1])
        assert (status, answer["error"]["code"]) == (413, "too_large")
        assert (await device.speak(SPEECH)).ok is True
        await server.door.store.save_config(halves[1], "dev_0")
        await device.reboot()
        assert (await device.speak(SPEECH)).ok is True
        await device.send({"cmd": "get_config"})
        assert (await device.speak(SPEECH)).ok is True

    against(act)
