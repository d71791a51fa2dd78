"""Notifications on devices: shown, spoken, one after the other."""

import logging

import pytest

from core.errors import RequestError
from devices.fleet.presence import DeviceNotification
from tests.devices.willow.was.servers import Server, against, mac_of, post

pytestmark = pytest.mark.live


def test_a_notification_is_shown_and_spoken_on_all_devices() -> None:
    async def act(server: Server) -> None:
        devices = [await server.device(number) for number in (1, 2)]
        body = {"cmd": "notify", "data": {"text": "Tea & cake", "repeat": 2, "volume": 40}}
        status, answer = await post(server, "/api/client?action=notify", body)
        assert status == 200
        for device in devices:
            await device.until(lambda device=device: device.notified)
            told = device.notified[0]
            assert (told["id"], told["text"], told["volume"]) == (answer["id"], "Tea & cake", 40)
            assert told["audio_url"] == f"{server.url}/api/tts?text=Tea%20%26%20cake"
        await server.until(
            lambda: all(
                one.notifications.status.active is None
                for one in server.door.connected_devices.all()
            )
        )

    against(act)


def test_notifications_play_one_at_a_time_and_can_be_cancelled() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        device.plays = False
        ids = []
        for number in range(3):
            data = {"text": f"{number}", "audio_url": f"{server.url}/api/tts?text={number}"}
            body = {"hostname": device.hostname, "data": data}
            ids.append((await post(server, "/api/client?action=notify", body))[1]["id"])
        assert ids == sorted(set(ids))
        await device.until(lambda: device.notified)
        state = await (await server.client.get("/api/status?type=notify_queue")).json()
        assert state["notifications"][mac_of(device)] == {"active": ids[0], "waiting": ids[1:]}
        for number in (ids[1], ids[0]):
            body = {"hostname": device.hostname, "data": {"id": number, "cancel": True}}
            assert (await post(server, "/api/client?action=notify", body))[0] == 200
        await device.until(lambda: len(device.notified) == 3)
        assert [one.get("text") for one in device.notified] == ["0", None, "2"]
        assert device.notified[1]["cancel"] is True

    against(act)


def test_a_dismissed_notification_ends_on_all_devices() -> None:
    async def act(server: Server) -> None:
        first, second = await server.device(1), await server.device(2)
        first.plays = second.plays = False
        answer = (await post(server, "/api/client?action=notify", {"data": {"text": "Alarm"}}))[1]
        await first.until(lambda: first.notified)
        await second.until(lambda: second.notified)
        await first.send({"notify_done": answer["id"]})
        await second.until(lambda: len(second.notified) == 2)
        assert second.notified[1] == {"id": answer["id"], "cancel": True}

    against(act)


def test_the_number_of_waiting_notifications_is_limited() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        device.plays = False
        live = server.presence.find("dev_0")
        assert live is not None
        conversation = server.scene.inference.exchanges.conversation("dev_0")
        assert conversation.sessions[0].say("The timer rings.")
        await device.until(lambda: device.notified)
        assert device.notified[0]["text"] == "The timer rings."
        assert [conversation.sessions[0].say("again") for _ in range(9)] == [*8 * [True], False]

    against(act)


def test_a_sound_of_an_unknown_host_is_not_fetched_but_the_text_spoken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        live = server.presence.find("dev_0")
        assert live is not None
        assert await live.notify(
            DeviceNotification(text="Tea", audio_url="http://192.168.1.1/reboot?key=horse")
        )
        own = f"{server.url}/api/tts?text=own"
        assert await live.notify(DeviceNotification(text="", audio_url=own))
        await device.until(lambda: len(device.notified) == 2)
        assert device.notified[0]["audio_url"] == f"{server.url}/api/tts?text=Tea"
        assert device.notified[1]["audio_url"] == own
        with pytest.raises(RequestError) as error:
            await live.notify(DeviceNotification(text="", audio_url="http://169.254.169.254/"))
        assert error.value.code == "audio_url_refused"

    against(act)
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(lines) == 2
    assert all("audio_url of a notification is refused" in one for one in lines)
    assert "horse" not in caplog.text
