"""Wake words for Home Assistant and satellites, with the `wyoming` package's client and the real
neural networks. The speech is synthetic."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import soxr
from wyoming.asr import Transcribe
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping
from wyoming.wake import Detect, Detection

from core.audio import ASR_RATE_HZ, Pcm
from engines.base.wake import WakeWordEngine
from engines.registry import available, load
from engines.wake.none import NoWakeWordEngine
from tests.devices.wyoming.servers import (
    SILENCE,
    SPEECH,
    Scene,
    client,
    kinds,
    run,
    send,
    sound,
    texts,
    until,
)
from tests.speech import say

pytestmark = pytest.mark.live

if not {one.name: one.installed for one in available("wake")}["micro"]:
    pytest.skip("pymicro-wakeword has no wheel for this machine", allow_module_level=True)

NABU = say("okay nabu", lead_ms=500, tail_ms=600)
ALEXA = say("alexa", lead_ms=500, tail_ms=600)
OTHER = say("turn on the kitchen lights", lead_ms=100, tail_ms=300)


@pytest.fixture(scope="module")
def engine() -> WakeWordEngine:
    return load("wake", "micro", {})


@pytest.fixture
def scene(engine: WakeWordEngine) -> Scene:
    return Scene(wake=engine)


def streamed(
    pcm: Pcm, *, rate: int = ASR_RATE_HZ, channels: int = 1, began_ms: int | None = None
) -> list[Any]:
    """Returns audio events as Home Assistant sends them; timestamps start at `began_ms`."""
    if rate != ASR_RATE_HZ:
        pcm = soxr.resample(pcm, ASR_RATE_HZ, rate)
    samples = np.repeat(pcm, channels)
    step = 1024 * channels
    form: dict[str, Any] = {"rate": rate, "width": 2, "channels": channels}
    chunks = [
        AudioChunk(
            audio=samples[at : at + step].tobytes(),
            timestamp=None if began_ms is None else began_ms + 1000 * at // channels // rate,
            **form,
        )
        for at in range(0, len(samples), step)
    ]
    return [AudioStart(timestamp=began_ms, **form), *chunks, AudioStop()]


def found(events: Sequence[Event]) -> list[Detection]:
    return [Detection.from_event(event) for event in events if event.type == "detection"]


def test_the_description_lists_the_wake_words(scene: Scene) -> None:
    (event,) = run(scene, Describe(), last="info")
    (program,) = Info.from_event(event).wake
    words = {model.name: model for model in program.models}
    assert program.installed
    assert words["okay_nabu"].phrase == "Okay Nabu"
    assert words["okay_nabu"].installed
    assert "en" in words["okay_nabu"].languages


def test_without_an_engine_no_wake_word_is_listed_and_a_detect_is_answered() -> None:
    for lacking in (None, NoWakeWordEngine()):
        (event,) = run(Scene(wake=lacking), Describe(), last="info")
        assert Info.from_event(event).wake == []
        (error,) = run(Scene(wake=lacking), Detect(), last="error")
        assert error.data["text"] == "this server knows no wake words"


@pytest.mark.parametrize("names", [None, [], ["okay_nabu"], ["alexa", "okay_nabu"]])
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (48_000, 2)])
def test_a_wake_word_is_detected_with_its_time(
    scene: Scene, names: list[str] | None, rate: int, channels: int
) -> None:
    said = streamed(NABU, rate=rate, channels=channels)
    events = run(scene, Detect(names=names, context={"a": 1}), *said, Ping(), last="pong")
    (one,) = found(events)
    assert (one.name, one.context) == ("okay_nabu", {"a": 1})
    assert 1000 < (one.timestamp or 0) < len(NABU) / 16
    assert kinds(events) == ["detection", "pong"]  # no `not-detected` behind it


def test_the_time_of_a_detection_uses_the_timestamps_of_the_chunks(scene: Scene) -> None:
    (plain,) = found(run(scene, Detect(), *streamed(NABU), last="detection"))
    said = streamed(NABU, began_ms=70_000)
    told = run(Scene(wake=scene.wake), Detect(), *said, last="detection")
    (later,) = found(told)
    assert later.timestamp == 70_000 + (plain.timestamp or 0)


@pytest.mark.parametrize(
    "said",
    [
        streamed(OTHER),
        streamed(np.zeros(8000, np.int16)),
        [AudioStart(16_000, 2, 1), AudioStop()],
        [AudioStop()],
        streamed(NABU[: len(NABU) // 3]),
    ],
)
def test_audio_without_the_wake_word_ends_in_not_detected(scene: Scene, said: list[Any]) -> None:
    events = run(scene, Detect(), *said, Ping(), last="pong")
    assert kinds(events) == ["not-detected", "pong"]


def test_only_requested_wake_words_are_reported(scene: Scene) -> None:
    events = run(scene, Detect(names=["alexa"]), *streamed(NABU), last="not-detected")
    assert kinds(events) == ["not-detected"]


def test_an_unknown_wake_word_is_refused_with_the_known_ones(scene: Scene) -> None:
    (error,) = run(scene, Detect(names=["hal"]), last="error")
    assert error.data["text"].startswith("names is 'hal'; allowed is alexa, hey_jarvis")
    (error,) = run(Scene(wake=scene.wake), Event("detect", {"names": "hal"}), last="error")
    assert error.data["text"] == "detect: names must be a list of texts"


def test_audio_before_the_detect_is_ignored(scene: Scene) -> None:
    said = [*streamed(NABU), Detect(), *streamed(OTHER), Ping()]
    assert kinds(run(scene, *said, last="pong")) == ["not-detected", "pong"]


def test_a_satellite_reuses_its_connection(scene: Scene) -> None:
    """It detects, makes a turn, and detects again, also without a stop in between."""
    nabu, alexa = streamed(NABU), streamed(ALEXA)
    said = [Detect(), *nabu[:-1], Detect(), *alexa[:-1], AudioStart(16_000, 2, 1), *alexa[1:]]
    events = run(scene, *said, Ping(), last="pong")
    assert [one.name for one in found(events)] == ["okay_nabu", "alexa", "alexa"]


def test_an_audio_start_midway_restarts_the_detection(scene: Scene) -> None:
    half = len(NABU) // 2
    said = [Detect(), *streamed(NABU[:half])[:-1], *streamed(NABU[half:])]
    assert kinds(run(scene, *said, last="not-detected")) == ["not-detected"]


def test_detection_and_transcription_may_alternate(scene: Scene) -> None:
    spoken = sound((SPEECH, 600), (SILENCE, 300))
    said = [Detect(), *streamed(NABU), Transcribe(), *spoken]
    events = run(scene, *said, last="transcript")
    assert [one.name for one in found(events)] == ["okay_nabu"]
    assert texts(events, "transcript") == ["one"]
    said = [Transcribe(), *spoken[:-1], Detect(), *streamed(ALEXA), Ping()]
    events = run(Scene(wake=scene.wake), *said, last="pong")
    assert texts(events, "transcript") == []
    assert [one.name for one in found(events)] == ["alexa"]


def test_other_events_during_a_detection_are_answered_at_once(scene: Scene) -> None:
    start, *chunks, stop = streamed(NABU)
    odd = Event("something-new", {"a": 1}, b"\0" * 5)
    said = [Detect(), start, *chunks[:9], Describe(), odd, Ping(), *chunks[9:], stop]
    events = run(scene, *said, last="detection")
    assert kinds(events) == ["info", "pong", "detection"]


@pytest.mark.parametrize(
    "form", [{"rate": 5, "width": 2, "channels": 1}, {"rate": 16_000, "width": 9, "channels": 1}]
)
def test_an_impossible_audio_format_is_named(scene: Scene, form: dict[str, int]) -> None:
    (error,) = run(scene, Detect(), AudioStart(**form), last="error")
    assert "allowed is" in error.data["text"]


def test_simultaneous_clients_get_their_own_detections(scene: Scene) -> None:
    async def main() -> None:
        async with scene.serving() as port:
            async with client(port) as one, client(port) as two, client(port) as gone:
                await send(gone, Detect(), *streamed(NABU)[:20])
                pairs = zip(streamed(NABU), streamed(ALEXA), strict=False)
                await send(one, Detect())
                await send(two, Detect())
                for ours, theirs in pairs:
                    await send(one, ours)
                    await send(two, theirs)
                await send(one, *streamed(NABU)[len(streamed(ALEXA)) :])
                assert [d.name for d in found(await until(one, "detection"))] == ["okay_nabu"]
                assert [d.name for d in found(await until(two, "detection"))] == ["alexa"]
            await scene.left()
        assert scene.ended == []

    asyncio.run(main())
