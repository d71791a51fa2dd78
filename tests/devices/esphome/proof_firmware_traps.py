"""Habits of stock firmware that its protocol does not describe, and peers that do not speak it."""

import asyncio
import base64
import socket
from collections.abc import AsyncGenerator, AsyncIterable, Callable

import pytest

from bench.client.satellite import API_AUDIO, RAW, Satellite, api
from core.audio import AudioFrame
from devices.esphome.conversation_run import TURN_LIMIT_S
from devices.fleet.presence import DeviceNotification
from engines.base.voice import WordMark
from tests.devices.esphome.servers import ONE, TWO, WHOLE_TURN, Scene, against
from tests.pipeline.fakes import EchoLlm, ToneTts

pytestmark = pytest.mark.live

KEY = base64.b64encode(bytes(range(32))).decode()

FIRMWARE_WAIT_S = 2.0
"Time from a URL to its first sound after which firmware thinks that the answer is over."


class SlowTts(ToneTts):
    """A voice that needs 5 s for its first sound."""

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        await asyncio.sleep(5)
        async for frame in super().speak(text, language=language, voice=voice, speed=speed):
            yield frame


def test_no_url_is_told_before_there_is_sound() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN
        await scene.idle()
        live = scene.presence.find("dev_1")
        assert live is not None
        assert await live.notify(DeviceNotification(text="Dinner is ready."))
        await scene.idle()
        assert len(satellite.waits_s) == 3  # an answer, a chime and an announcement
        assert max(satellite.waits_s) < FIRMWARE_WAIT_S / 4

    against(act, Scene(tts=SlowTts(300)))


def test_firmware_without_streaming_plays_the_answer_from_its_end_on() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN
        await scene.idle()
        assert len(satellite.fetched) == 1
        assert await satellite.turn(TWO) == WHOLE_TURN

    against(act, Scene(Satellite(streams=False)))


def test_a_report_of_failure_means_nothing() -> None:
    """linux-voice-assistant reports every answer as failed."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert await satellite.turn(ONE) == WHOLE_TURN
        await scene.idle()
        live = scene.presence.find("dev_1")
        assert live is not None
        assert await live.notify(DeviceNotification(text="Dinner is ready."))
        await scene.idle()
        assert scene.errors == []

    against(act, Scene(Satellite(is_successful=False)))


def test_a_device_gets_one_connection() -> None:
    """linux-voice-assistant hears only the newest one, so nothing may try whether it is there."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        for _ in range(3):
            scene.announce()
            await asyncio.sleep(300)
        assert await satellite.turn(ONE) == WHOLE_TURN
        assert sum(isinstance(one, api.HelloRequest) for one in satellite.seen) == 1

    against(act, limit_s=3000)


def test_messages_outside_of_a_run_are_left_out() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        for message in (
            api.VoiceAssistantAudio(data=bytes(2048)),
            api.VoiceAssistantAudio(end=True),
            api.VoiceAssistantRequest(start=False),
            api.VoiceAssistantAnnounceFinished(success=True),
        ):
            satellite.send(message)
        assert await satellite.turn(ONE) == WHOLE_TURN
        await scene.idle()
        for odd in (b"\1", bytes(2047)):  # half a sample
            satellite.start()
            await satellite.until(satellite.names)
            satellite.send(api.VoiceAssistantAudio(data=odd))
            await satellite.say((0, 200), (TWO, 300), (0, 3000))
            await satellite.until(lambda: "RUN_END" in satellite.names())
            assert satellite.data("STT_END") == {"text": "two"}
            await scene.idle()
        assert scene.errors == []

    against(act)


def test_speech_without_an_end_is_answered() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        await satellite.say((ONE, round(1000 * TURN_LIMIT_S) + 10_000))
        await satellite.until(lambda: "RUN_END" in satellite.names())
        assert satellite.data("STT_END") == {"text": "one"}
        assert satellite.data("TTS_END")["url"]

    against(act)


def test_sound_of_old_firmware_comes_and_goes_over_udp() -> None:
    """Firmware before 2024, and every version without the flag."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        assert not satellite.responses[0].error
        assert satellite.responses[0].port > 0
        assert satellite.data("STT_END") == {"text": "one"}
        assert satellite.raw_sound == b""
        assert len(satellite.received_over_udp()) == 2 * 16_000

    against(act, Scene(Satellite(features=RAW & ~API_AUDIO), tts=ToneTts(1000)))


def test_packets_of_another_address_are_not_heard() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.0.2", 0))
            for _ in range(20):
                stranger.sendto(bytes(1024), ("127.0.0.1", satellite.responses[0].port))
        await scene.idle()
        assert scene.errors == ["no_audio"]

    against(act, Scene(Satellite(features=RAW & ~API_AUDIO)))


def test_an_answer_that_is_replaced_is_stopped_on_the_device() -> None:
    """Its URL was told already, so it would play on."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        await satellite.say((ONE, 300), (0, 3000))
        await satellite.until(lambda: "INTENT_PROGRESS" in satellite.names())
        satellite.stop()
        await scene.idle()
        (command,) = satellite.commands
        stop = api.MEDIA_PLAYER_COMMAND_STOP
        assert (command.command, command.announcement) == (stop, True)

    against(act, Scene(llm=EchoLlm(0.5), tts=ToneTts(3000)))


@pytest.mark.parametrize(
    ("greeting", "key", "code"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "", "unreachable"),
        (b"\0\xff\xff\xff\xff\xff\xff\xff\xff", "", "unreachable"),  # a length without an end
        (b"\0\4\2\xff\xff\xff\xff", "", "unreachable"),  # no such message
        (b"", "", "unreachable"),
        (b"\0\0\2", KEY, "not_encrypted"),
        (b"\1\xff\xff" + bytes(100), KEY, "unreachable"),
    ],
)
def test_a_peer_that_does_not_speak_the_protocol_is_named(
    greeting: bytes, key: str, code: str
) -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await scene.failed(code)
        assert scene.presence.ids() == ()

    against(act, Scene(Satellite(greeting=greeting), key=key))
