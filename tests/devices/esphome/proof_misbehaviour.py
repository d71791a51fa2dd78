"""Devices that break off, say nothing, have another key or another client: each is a named error or
a recovery, and nothing hangs."""

import asyncio
import base64
import logging

import pytest

from bench.client.satellite import Satellite, api
from pipeline.shared.settings import SessionSettings
from tests.devices.esphome.servers import ONE, WHOLE_TURN, Scene, against
from tests.pipeline.fakes import EchoLlm

pytestmark = pytest.mark.live

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(range(1, 33))).decode()


def test_an_encrypted_device() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN

    against(act, Scene(Satellite(key=KEY), key=KEY))


@pytest.mark.parametrize(
    ("of_device", "configured", "refuses", "code"),
    [
        (KEY, "", False, "key_needed"),
        (KEY, OTHER_KEY, False, "wrong_key"),
        (KEY, "no key at all", False, "wrong_key"),
        ("", KEY, True, "not_encrypted"),
    ],
)
def test_a_key_that_does_not_fit_is_named_and_never_logged(
    of_device: str,
    configured: str,
    refuses: bool,
    code: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def act(scene: Scene, satellite: Satellite) -> None:
        await scene.failed(code)
        assert satellite.subscriber is None

    device = Satellite(key=of_device, refuses_encryption=refuses)
    against(act, Scene(device, key=configured))
    assert "key" in caplog.text
    assert not configured or configured not in caplog.text


def test_a_device_that_restarts_is_connected_again() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        satellite.connections[0].cut()  # in the middle of a run
        await satellite.until(lambda: not satellite.subscriber)
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN

    against(act)


def test_a_dead_socket_is_noticed() -> None:
    """The device lost its power while it listened: the run ends, and later the connection."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        dead = satellite.connections[0]
        dead.is_dead = True
        await scene.idle()
        assert scene.errors == ["no_audio"]
        await scene.until(lambda: not scene.presence.ids())
        satellite.subscriber = None
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN

    against(act)


def test_empty_chunks_are_skipped() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        for _ in range(5):
            satellite.send(api.VoiceAssistantAudio(data=b""))
        await satellite.say((0, 100), (ONE, 300), (0, 3000))
        await satellite.until(lambda: "RUN_END" in satellite.names())
        assert satellite.data("STT_END") == {"text": "one"}

    against(act)


def test_nobody_speaks() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        await satellite.say((0, 12_000))
        await satellite.until(lambda: "RUN_END" in satellite.names())
        assert satellite.data("ERROR")["code"] == "stt-no-text-recognized"
        assert scene.errors == []

    against(act)


def test_a_device_that_ends_its_audio_is_answered() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        await satellite.say((0, 100), (ONE, 300))
        satellite.send(api.VoiceAssistantAudio(end=True))
        await satellite.until(lambda: "RUN_END" in satellite.names())
        assert satellite.data("STT_END") == {"text": "one"}
        assert satellite.data("TTS_END")["url"]

    against(act)


def test_a_device_that_never_reports_the_end_of_playing() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN
        await scene.idle()
        assert await satellite.turn(ONE) == WHOLE_TURN

    against(act, Scene(Satellite(plays_s=None)))


def test_a_url_is_fetched_again_and_broken_off() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        await satellite.until(lambda: len(satellite.fetched) == 2)
        first, second = (data for _, data in satellite.fetched)
        assert first[:100] == second[:100]
        await scene.idle()

    against(act, Scene(Satellite(fetches=2, breaks_off_after=1000)))


def test_a_failing_voice_and_a_failing_model_end_the_run() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        scene.llm.fails = True
        await satellite.turn(ONE)
        assert satellite.names() & {"ERROR", "TTS_END"}
        scene.llm.fails, scene.tts.fails = False, True
        await scene.idle()
        assert "ERROR" in await satellite.turn(ONE)

    against(act)


def test_a_full_server_says_so() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        async with scene.sessions.open(SessionSettings(), paced_by="client"):
            satellite.start()
            await satellite.until(lambda: "RUN_END" in satellite.names())
            assert satellite.data("ERROR")["code"] == "server_full"
        assert scene.errors == ["server_full"]
        assert await satellite.turn(ONE) == WHOLE_TURN

    against(act, Scene(max_sessions=1))


def test_detection_of_the_wake_word_here_is_refused() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start(flags=2)
        await satellite.until(lambda: satellite.responses)
        assert satellite.responses[0].error
        assert scene.errors == ["wake_word_on_server"]

    against(act)


def test_a_blocked_device_is_not_served() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        scene.directory.change(standing="blocked")
        live = scene.presence.find("dev_1")
        assert live is not None
        await live.close()
        await satellite.until(lambda: not satellite.subscriber)
        await asyncio.sleep(30)
        assert satellite.subscriber is None
        scene.directory.change(standing="approved")
        await satellite.subscribed()

    against(act)


def test_a_sensor_is_no_satellite() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await scene.failed("no_voice")
        assert not any(
            isinstance(one, api.VoiceAssistantConfigurationRequest) for one in satellite.seen
        )

    against(act, Scene(Satellite(features=0)))


def test_the_answer_takes_too_long() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        assert satellite.data("ERROR")["code"] == "timeout"

    against(act, Scene(llm=EchoLlm(300)))
