"""Audio of 16 kHz that is read as 24 kHz is noticed; correct clients get no warning."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from itertools import cycle, islice
from random import Random
from typing import Any

import numpy as np
import pytest

from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.protocol.audio_format import WIDE_PCM, OutputAudioEncoder
from signaling.realtime.protocol.input_rate import MAX_APPENDS, SampleRateCheck
from tests.signaling.realtime.fakes import Client, Scene, play

pytestmark = pytest.mark.many

Event = dict[str, Any]

APPENDS = 4000


def warnings(arrivals: Iterator[tuple[float, float]]) -> int:
    """Returns the number of warnings. `arrivals`: the ms since the previous append, and the length
    of its audio when read as 24 kHz."""
    rate, now_ms, found = SampleRateCheck(), 0.0, 0
    for interval_ms, audio_ms in islice(arrivals, APPENDS):
        now_ms += interval_ms
        found += rate.is_suspect(now_ms, audio_ms)
    return found


def jittered(interval_ms: float, audio_ms: float) -> Iterator[tuple[float, float]]:
    """Yields the arrivals of a live microphone, whose delays do not add up."""
    noise, late_ms = Random(7), 0.0
    while True:
        now_late_ms = noise.uniform(0, interval_ms / 3)
        yield interval_ms + now_late_ms - late_ms, audio_ms
        late_ms = now_late_ms


@pytest.mark.parametrize("length_ms", [10, 20, 40, 100, 200])
def test_audio_of_16_khz_gets_one_warning(length_ms: float) -> None:
    assert warnings(jittered(length_ms, length_ms * 16 / 24)) == 1


@pytest.mark.parametrize("length_ms", [10, 20, 40, 100, 200, 500])
def test_audio_of_24_khz_gets_no_warning(length_ms: float) -> None:
    assert warnings(jittered(length_ms, length_ms)) == 0


@pytest.mark.parametrize(
    ("spoken", "pause_ms"), [(10, 100), (50, 500), (100, 1000), (20, 220), (250, 3000), (1, 2000)]
)
def test_pauses_cause_no_warning(spoken: int, pause_ms: float) -> None:
    """In some of these patterns two thirds of the time are audio."""
    pattern = [(20.0, 20.0)] * spoken + [(20.0 + pause_ms, 20.0)]
    assert warnings(cycle(pattern)) == 0


@pytest.mark.parametrize(
    "pattern",
    [
        [(0.0, 1000.0)],
        [(1.0, 20.0)],
        [(0.0, 20.0)] * 9 + [(300.0, 20.0)],
        [(20_000.0, 5000.0)],
        [(0.0, 0.0)],
    ],
    ids=["a file at once", "a file fast", "gathered by the network", "now and then", "nothing"],
)
def test_audio_that_is_not_live_gets_no_warning(pattern: list[tuple[float, float]]) -> None:
    assert warnings(cycle(pattern)) == 0


def test_a_flood_of_appends_is_not_kept_and_gets_no_warning() -> None:
    """Single samples, 20,000 per second: no microphone sends them so."""
    rate, held = SampleRateCheck(), 0
    for number in range(10 * MAX_APPENDS):
        assert not rate.is_suspect(number / 20, 1 / 24)
        held = max(held, len(rate._arrivals))
    assert held <= MAX_APPENDS


def test_after_a_flood_16_khz_still_gets_a_warning() -> None:
    flood = [(0.05, 1 / 24)] * (MAX_APPENDS + 100)
    assert warnings(iter(flood + list(islice(jittered(20, 20 * 16 / 24), 1500)))) == 1


def streams(format_: Event | None, chunk: bytes, every_s: float, count: int) -> Scene:
    async def scene(connection: RealtimeConnection) -> None:
        if format_ is not None:
            session = {"type": "realtime", "audio": {"input": {"format": format_}}}
            await connection.receive(json.dumps({"type": "session.update", "session": session}))
        sound = {"type": "input_audio_buffer.append", "audio": b64encode(chunk).decode()}
        for _ in range(count):
            await asyncio.sleep(every_s)
            await connection.receive(json.dumps(sound))
        connection.close()

    return scene


@pytest.mark.parametrize(
    ("format_", "has_warning"),
    [
        (None, True),
        ({"type": "audio/pcm"}, True),
        ({"type": "audio/pcm", "rate": 24000}, False),
        ({"type": "audio/pcm", "rate": 16000}, False),
        ({"type": "audio/pcmu"}, False),
    ],
)
def test_a_rate_that_the_client_named_gets_no_warning(
    format_: Event | None, has_warning: bool
) -> None:
    client = Client()
    play(client, streams(format_, bytes(2 * 320), 0.02, 700))  # 20 ms of 16 kHz
    found = [one for one in client.sent if one["type"] == "earshot.warning"]
    assert [one["code"] for one in found] == ["input_rate_suspected"] * has_warning


def test_a_session_with_16_khz_input_gets_its_audio_unchanged_and_shows_the_rate() -> None:
    client = Client()
    format_ = {"type": "audio/pcm", "rate": 16000}
    play(client, streams(format_, bytes(2 * 16_000), 0.01, 1))
    (updated,) = [one for one in client.sent if one["type"] == "session.updated"]
    assert updated["session"]["audio"]["input"]["format"] == format_
    assert updated["session"]["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24000}
    assert sum(len(frame.pcm) for frame in client.session.frames) == 16_000


def test_output_can_be_16_khz() -> None:
    spoken = OutputAudioEncoder()
    pcm = np.zeros(24_000, np.int16)
    pieces = [*spoken.push("item_1", pcm, WIDE_PCM), *spoken.finish("item_1")]
    assert sum(len(b64decode(one)) for one in pieces) == 2 * 16_000
