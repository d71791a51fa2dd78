"""The parts without I/O, with properties that hold for every sequence of inputs."""

import random
from itertools import pairwise

from core.audio import ASR_RATE_HZ, ms_to_samples
from media.webrtc.rtp.jitter_buffer import JitterBuffer, sequence_distance
from pipeline.speech.chunker import MAX_CHARS, ClauseChunker
from pipeline.user_turn.speech_detection.endpointing import (
    MAX_UTTERANCE_MS,
    START_MS,
    EdgeKind,
    Endpointer,
    SpeechEdge,
)
from tests.fuzz.choices import drawn, scripts
from tests.fuzz.mutate import ODD_TEXTS
from tests.fuzz.target import Target

SUCCESSORS = {
    None: {EdgeKind.STARTED},
    EdgeKind.STARTED: {EdgeKind.CANDIDATE, EdgeKind.ENDED},
    EdgeKind.CANDIDATE: {EdgeKind.RESUMED, EdgeKind.ENDED},
    EdgeKind.RESUMED: {EdgeKind.CANDIDATE, EdgeKind.ENDED},
    EdgeKind.ENDED: {EdgeKind.STARTED},
}


def buffering(lottery: random.Random) -> None:
    """Checks that at most `depth` packets are held, and that they come out once and in order."""
    depth = lottery.randrange(5)
    buffer = JitterBuffer[tuple[int, int]](depth)
    number, runs, resyncs = lottery.randrange(0x10000), [list[int]()], 0
    arrived, out = 0, 0
    for _ in range(lottery.randrange(100)):
        number += lottery.choice((1, 1, 1, 1, 1, 2, 0, -1, -3, 60, 3500, -200))
        got = buffer.push(number & 0xFFFF, (arrived, number & 0xFFFF))
        arrived += 1
        assert len(buffer) <= depth
        if buffer.stats.resyncs != resyncs:
            resyncs = buffer.stats.resyncs
            runs.append([])
        out += len(got)
        runs[-1] += [sent for _, sent in got]
    for run in runs:
        assert all(sequence_distance(after, before) > 0 for before, after in pairwise(run))
    dropped = arrived - out - len(buffer) - buffer.stats.late
    assert 0 <= dropped <= depth * resyncs
    assert buffer.stats.lost >= 0


def endpointing(lottery: random.Random) -> None:
    """Checks that edges come in order, and that no utterance is longer than allowed."""
    endpointer = Endpointer(threshold=lottery.random(), silence_ms=lottery.choice((0, 20, 60, 500)))
    samples = lottery.choice((160, 320, 480, 512, 5000))
    probability, position, started_at = 0.0, 0, 0
    before: EdgeKind | None = None
    for _ in range(lottery.randrange(200)):
        if lottery.random() < 0.1:
            probability = lottery.choice((0.0, 1.0, lottery.random()))
        endpointer.is_guarded = lottery.random() < 0.1
        endpointer.silence_ms = lottery.choice((endpointer.silence_ms,) * 20 + (40, 700))
        position += samples
        found = endpointer.push(probability, samples)
        if found is None:
            continue
        assert found.kind in SUCCESSORS[before], (before, found)
        assert 0 <= found.at <= position
        if found.kind is EdgeKind.STARTED:
            started_at = found.at
            assert position - started_at >= ms_to_samples(START_MS, ASR_RATE_HZ)
        _check_length(found, started_at, samples)
        before = found.kind
        assert endpointer.in_speech is (before is not EdgeKind.ENDED)


def _check_length(found: SpeechEdge, started_at: int, samples: int) -> None:
    length = found.at - started_at
    assert 0 <= length <= ms_to_samples(MAX_UTTERANCE_MS, ASR_RATE_HZ) + 2 * samples


def chunking(lottery: random.Random) -> None:
    """Checks that no text is lost, doubled or moved, and no clause is empty or endless."""
    words = ("yes", "1.5", "Mr.", "no!", "and,", "so;", "why?", "…", "。", "！", "ok:", "a" * 300)
    spaces = (" ", " ", " ", "\n", "  ", "\t", "")
    chunker, said, deltas = ClauseChunker(), list[str](), list[str]()
    for _ in range(lottery.randrange(16)):
        deltas.append(lottery.choice((*words, *ODD_TEXTS[:-1])) + lottery.choice(spaces))
        clauses = chunker.push(deltas[-1])
        assert all(len(clause) <= MAX_CHARS + len(deltas[-1]) for clause in clauses)
        said += clauses
    said.append(chunker.flush() or "")
    assert _letters("".join(said)) == _letters("".join(deltas))
    assert all(said[:-1])
    assert chunker.flush() is None


def _letters(text: str) -> str:
    return "".join(text.split())


TARGETS = tuple(
    Target(name=name, one_input=drawn(play), seeds=scripts(), few=2000)
    for name, play in (
        ("buffering", buffering),
        ("endpointing", endpointing),
        ("chunking", chunking),
    )
)
