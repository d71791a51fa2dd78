"""The comparison of two Wyoming servers: times without the wait, and transcripts."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from bench.measurements.wyoming import EARSHOT, PEER, TranscriptLog, agreement, main, table
from bench.peers.rounds import AsrRound
from bench.peers.systems import AsrClient, UtteranceResult
from bench.tools.utterance_audio import WAIT_MS, BenchUtterance


def timed(*times_ms: float, lost: tuple[str, ...] = ()) -> AsrRound:
    return AsrRound(times_ms, 1, 1, cpu_s=0.1 * len(times_ms), with_text=len(times_ms), lost=lost)


def test_the_table_has_medians_over_rounds_without_the_wait() -> None:
    found = {
        (EARSHOT, 1): [timed(WAIT_MS + 10), timed(WAIT_MS + 30), timed(WAIT_MS + 20)],
        (PEER, 1): [timed(WAIT_MS + 200, WAIT_MS + 400), timed(lost=("gone",))],
    }
    lines = table(found, [1]).splitlines()
    assert (
        lines[2] == f"| {EARSHOT} | 1 | 20 (10 to 30) | 20 (10 to 30) | 100 (100 to 100) | 3 of 3 |"
    )
    assert lines[3].startswith(f"| {PEER} | 1 | 300 (300 to 300) | 390 (390 to 390) |")
    assert lines[3].endswith("| 2 of 3 |")
    assert len(lines) == 4


def test_transcripts_are_compared_without_case_and_punctuation() -> None:
    own = {"turn it on": ["Turn it on."], "what time is it": ["What time is it?", "what dime"]}
    theirs = {"turn it on": [" turn it on"], "what time is it": ["what time is it"]}
    first, *others = agreement(own, theirs).splitlines()
    assert first.startswith("Same text in 1 of 2 clips.")
    assert first.endswith(f"{EARSHOT} 2 of 3, {PEER} 2 of 2.")
    (other,) = others
    assert "'what dime'" in other


@dataclass
class EchoSystem:
    """A system that only talks."""

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[AsrClient, None]:
        yield self

    async def say(self, utterance: BenchUtterance) -> UtteranceResult:
        return UtteranceResult(utterance.text.upper(), 1.0, 0.0)


def test_transcripts_are_recorded_by_utterance() -> None:
    noted = TranscriptLog("x", EchoSystem())  # type: ignore[arg-type]

    async def scene() -> None:
        async with noted.client() as talker:
            for text in ("a", "b", "a"):
                await talker.say(BenchUtterance(text, np.zeros(1, np.int16), 0, 1))

    asyncio.run(scene())
    assert noted.texts == {"a": ["A", "A"], "b": ["B"]}


def test_an_unknown_model_is_one_error_line() -> None:
    assert main(["--models", "nonsense"]) == 1
