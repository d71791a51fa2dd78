"""Each path through a run ends with events that leave the LEDs of a satellite in the right state.

docs/esphome.md has the same paths as a table.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable

import pytest

from bench.client.satellite import RAW, STOP, Led, Satellite
from core.audio import AudioFrame
from devices.fleet.presence import DeviceNotification
from engines.base.voice import WordMark
from pipeline.shared.settings import SessionSettings
from tests.devices.esphome.servers import ONE, TWO, WHOLE_TURN, Scene, against
from tests.pipeline.fakes import EchoLlm, ToneTts

pytestmark = pytest.mark.live

HEARD: list[Led] = ["idle", "waiting", "listening", "thinking"]
ANSWERED: list[Led] = [*HEARD, "replying", "idle"]

Path = Callable[[Scene, Satellite], Awaitable[None]]


class StuckTts(ToneTts):
    """A voice that stops in the middle of its sound."""

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        async for frame in super().speak(text, language=language):
            yield frame
            await asyncio.sleep(300)


async def begin(satellite: Satellite) -> None:
    """Says the wake word."""
    await satellite.subscribed()
    satellite.start()
    await satellite.until(satellite.names)


async def ended(satellite: Satellite) -> None:
    await satellite.until(lambda: "RUN_END" in satellite.names())


async def answered(scene: Scene, satellite: Satellite) -> None:
    await satellite.subscribed()
    assert await satellite.turn(ONE) == WHOLE_TURN


async def no_speech(scene: Scene, satellite: Satellite) -> None:
    await begin(satellite)
    await satellite.say((0, 12_000))
    await ended(satellite)
    assert satellite.data("ERROR")["code"] == "stt-no-text-recognized"


async def noise(scene: Scene, satellite: Satellite) -> None:
    await begin(satellite)
    await satellite.say((5000, 300), (0, 3000))
    await ended(satellite)
    assert satellite.data("ERROR")["code"] == "stt-no-text-recognized"


async def stopped_while_listening(scene: Scene, satellite: Satellite) -> None:
    await begin(satellite)
    await satellite.say((ONE, 300), (0, 100))
    satellite.stop()
    await ended(satellite)
    assert "ERROR" not in satellite.names()


async def stopped_while_thinking(scene: Scene, satellite: Satellite) -> None:
    scene.llm.word_s = 5.0
    await begin(satellite)
    await satellite.say((ONE, 300), (0, 3000))
    await satellite.until(lambda: "INTENT_START" in satellite.names())
    satellite.stop()
    await ended(satellite)
    assert "ERROR" not in satellite.names()


async def stopped_while_replying(scene: Scene, satellite: Satellite) -> None:
    """From the server; the button of the device needs no event of ours."""
    satellite.plays_s = 60.0
    await satellite.subscribed()
    await satellite.turn(ONE)
    await satellite.until(lambda: satellite.leds[-1] == "replying")
    live = scene.presence.find("dev_1")
    await live.stop()  # type: ignore[union-attr]


async def failed(scene: Scene, satellite: Satellite) -> None:
    scene.tts.fails = True
    await satellite.subscribed()
    await satellite.turn(ONE)
    assert "ERROR" in satellite.names()


async def announced(scene: Scene, satellite: Satellite) -> None:
    await satellite.subscribed()
    live = scene.presence.find("dev_1")
    assert live is not None
    assert await live.notify(DeviceNotification(text="Dinner is ready."))
    await satellite.until(lambda: len(satellite.fetched) == 2)
    assert satellite.events == []


async def continued(scene: Scene, satellite: Satellite) -> None:
    satellite.continues, satellite.plays_s, scene.llm.ending = True, 1.0, "?"
    await satellite.subscribed()
    await satellite.turn(ONE)
    await satellite.until(lambda: satellite.leds[-1] == "waiting")  # it listens by itself
    satellite.continues = False
    await satellite.say((TWO, 300), (0, 3000))
    await ended(satellite)


async def continued_without_words(scene: Scene, satellite: Satellite) -> None:
    satellite.continues, satellite.plays_s, scene.llm.ending = True, 1.0, "?"
    await satellite.subscribed()
    await satellite.turn(ONE)
    await satellite.until(lambda: satellite.leds[-1] == "waiting")
    await satellite.say((0, 12_000))
    await ended(satellite)


async def asked(scene: Scene, satellite: Satellite) -> None:
    """An announcement starts a conversation. The assistant knows what was asked."""
    satellite.continues = True
    await satellite.subscribed()
    live = scene.presence.find("dev_1")
    assert live is not None
    question = DeviceNotification(text="Shall I close the door?", starts_conversation=True)
    assert await live.notify(question)
    await satellite.until(lambda: satellite.leds[-1] == "waiting")
    await satellite.say((ONE, 300), (0, 3000))
    await ended(satellite)
    texts = [(one.role, one.text) for one in scene.llm.asked[-1]]
    assert ("assistant", "Shall I close the door?") in texts


@pytest.mark.parametrize(
    ("path", "leds"),
    [
        (answered, ANSWERED),
        (no_speech, ["idle", "waiting", "idle"]),
        (noise, [*HEARD, "idle"]),
        (stopped_while_listening, ["idle", "waiting", "listening", "idle"]),
        (stopped_while_thinking, [*HEARD, "idle"]),
        (stopped_while_replying, ANSWERED),
        (failed, [*HEARD, "error", "idle"]),
        (announced, ["idle", "replying", "idle"]),
        (continued, [*ANSWERED, *ANSWERED[1:]]),
        (continued_without_words, [*ANSWERED, "waiting", "idle"]),
        (asked, ["idle", "replying", "idle", *ANSWERED[1:]]),
    ],
)
def test_the_leds_follow_each_path_to_its_end(path: Path, leds: list[Led]) -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await path(scene, satellite)
        await satellite.until(lambda: satellite.leds[-1] == "idle")
        await scene.idle()
        assert satellite.leds == leds

    against(act, Scene(llm=EchoLlm(0.001)))


def test_the_leds_show_that_the_server_is_full() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        async with scene.sessions.open(SessionSettings(), paced_by="client"):
            satellite.start()
            await ended(satellite)
        assert satellite.data("ERROR")["code"] == "server_full"
        assert satellite.leds == ["idle", "waiting", "error", "idle"]

    against(act, Scene(max_sessions=1))


def test_the_leds_of_a_raw_speaker() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        assert satellite.leds == ANSWERED

    against(act, Scene(Satellite(features=RAW), tts=ToneTts(1000)))


def test_an_answer_that_fails_while_it_sounds_is_stopped() -> None:
    """Otherwise the device would go on playing what it has, with the LEDs of an error."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        assert satellite.data("ERROR")["code"] == "timeout"
        await satellite.until(
            lambda: [one for one in satellite.commands if getattr(one, "command", 0) == STOP]
        )

    against(act, Scene(Satellite(plays_s=400.0), llm=EchoLlm(0.001), tts=StuckTts(300)))
