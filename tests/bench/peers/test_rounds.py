"""Utterances for each system, times of simultaneous talkers, and the table of results."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from bench.client.microphone import RATE_HZ
from bench.client.realtime import ConnectionLost
from bench.peers.results import AsrRounds, table
from bench.peers.rounds import AsrRound, measure
from bench.peers.systems import AsrClient, UtteranceResult
from bench.tools.utterance_audio import (
    PAUSE_MS,
    TONE_MS,
    BenchUtterance,
    make_utterance,
    send_in_real_time,
)
from core.audio import ASR_RATE_HZ, Pcm, silence
from media.pcm import from_bytes
from tests.loop import run_virtual


def beep(seconds: float, lead_ms: float = 0) -> Pcm:
    """Returns a tone with silence after it."""
    time = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    tone = (8000 * np.sin(2 * np.pi * 440 * time)).astype(np.int16)
    return np.concatenate([silence(lead_ms, RATE_HZ), tone, silence(500, RATE_HZ)])


def test_room_tone_follows_the_speech_of_an_utterance() -> None:
    one = make_utterance("beep", beep(1, lead_ms=200))
    assert one.begin == pytest.approx(0.2 * RATE_HZ, abs=240)
    assert one.end == pytest.approx(1.2 * RATE_HZ, abs=240)
    tone = one.pcm[one.end :]
    assert len(tone) == TONE_MS * RATE_HZ // 1000
    assert 15 < tone.std() < 35
    narrow, end = one.at_asr_rate()
    assert end == pytest.approx(1.2 * ASR_RATE_HZ, abs=160)
    assert len(narrow) == pytest.approx(len(one.pcm) * ASR_RATE_HZ / RATE_HZ, abs=2)


def test_the_same_seed_gives_the_same_room_tone() -> None:
    first, same, other = (make_utterance("", beep(0.5), seed).pcm for seed in (1, 1, 2))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def test_a_frame_is_sent_at_the_time_of_its_last_sample() -> None:
    sent: list[tuple[float, int]] = []

    async def send(audio: bytes) -> None:
        sent.append((asyncio.get_running_loop().time(), len(from_bytes(audio))))

    took_s = run_virtual(send_in_real_time(np.zeros(ASR_RATE_HZ // 10 + 80, np.int16), 0.0, send))
    assert [size for _, size in sent] == [320] * 5 + [80]
    assert [round(at, 4) for at, _ in sent] == [0.02, 0.04, 0.06, 0.08, 0.1, 0.105]
    assert took_s == pytest.approx(0.105)


@dataclass
class ScriptedSystem:
    """A system that needs `work_s` for each utterance, one at a time; a `System`."""

    work_s: float
    name: str = "scripted"
    pid: int = field(default_factory=os.getpid)
    begun: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[AsrClient, None]:
        yield self

    async def say(self, utterance: BenchUtterance) -> UtteranceResult:
        clock = asyncio.get_running_loop().time
        self.begun.append(clock())
        ended_at = clock() + utterance.speech_s
        await asyncio.sleep(utterance.speech_s)
        async with self._one:
            await asyncio.sleep(self.work_s)
        took_ms = 1000 * (clock() - ended_at)
        return UtteranceResult(utterance.text, took_ms, max(clock(), ended_at + PAUSE_MS / 1000))


def test_the_ends_of_simultaneous_utterances_are_spread() -> None:
    async def run() -> None:
        system = ScriptedSystem(work_s=0.1)
        utterances = [make_utterance("", beep(2.0)), make_utterance("b", beep(2.0))]
        found = await measure(system, utterances, talkers=4, each=2)
        assert [round(at, 2) for at in system.begun[:4]] == [0, 0.5, 1.0, 1.5]
        assert found.times_ms == pytest.approx([100] * 8, abs=1)
        assert found.with_text == 4
        assert found.speech_s == pytest.approx(16, abs=0.1)
        assert found.wall_s == pytest.approx(1.5 + 2 * (2 + PAUSE_MS / 1000), abs=0.1)

    run_virtual(run())


def test_a_system_that_cannot_keep_up_is_reported_as_slow() -> None:
    async def run() -> None:
        utterances = [make_utterance("a", beep(2.0))]
        found = await measure(ScriptedSystem(work_s=1.0), utterances, talkers=4, each=2)
        assert found.p95 > 1900
        assert found.throughput < 2

    run_virtual(run())


def test_unanswered_utterances_are_counted_and_have_no_latency() -> None:
    class SilentSystem(ScriptedSystem):
        async def say(self, utterance: BenchUtterance) -> UtteranceResult:
            if utterance.text == "b":
                raise ConnectionLost("no answer")
            return await super().say(utterance)

    async def run() -> None:
        utterances = [make_utterance("a", beep(2.0)), make_utterance("b", beep(2.0))]
        found = await measure(SilentSystem(work_s=0.1), utterances, talkers=2, each=2)
        assert found.times_ms == pytest.approx([100, 100], abs=1)
        assert found.lost == ["no answer", "no answer"]
        assert found.speech_s == pytest.approx(4, abs=0.1)
        kept = AsrRounds()
        kept.add(found, kept.together)
        assert (kept.sent, kept.problem) == (4, "no answer")

    run_virtual(run())


def rounds(*times_ms: float) -> list[AsrRound]:
    return [AsrRound([ms] * 4, 2.0, 8.0, 0.4, 3) for ms in times_ms]


def test_the_table_has_medians_ranges_and_ratios() -> None:
    found = {
        "earshot": AsrRounds(),
        "other": AsrRounds(),
        "absent": AsrRounds(problem="not installed"),
    }
    for name, alone, together in (
        ("earshot", (500, 600, 520), (700, 700, 900)),
        ("other", (1040,), (1400,)),
    ):
        for one, kept in ((alone, found[name].alone), (together, found[name].together)):
            for answered in rounds(*one):
                found[name].add(answered, kept)
    lines = table(found, "earshot", talkers=8).splitlines()
    assert lines[2] == (
        "| earshot | 520 (500 to 600) | 1.00 | 700 (700 to 900) | 1.00 | 4.00 (4.00 to 4.00) "
        "| 100 (100 to 100) | 18 of 24 |"
    )
    assert lines[3].startswith(
        "| other | 1040 (1040 to 1040) | 2.00 | 1400 (1400 to 1400) | 2.00 |"
    )
    assert lines[4] == "| absent (not installed) | - | - | - | - | - | - | 0 of 0 |"
