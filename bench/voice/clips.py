"""Clips to send: speech that ends with its last audible sample, then the noise of a quiet room."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.client.latency_probe import QUIETER_DB, speech_span
from bench.client.microphone import RATE_HZ
from bench.talk.command import read_recording
from bench.tools.clips import COMMANDS, spoken
from bench.tools.utterance_audio import BenchUtterance, utterance
from core.audio import Pcm
from core.errors import RequestError


def clips(paths: Sequence[Path]) -> list[BenchUtterance]:
    """Returns the recordings, or commands spoken by eSpeak. Raises RequestError for an unreadable
    file."""
    if not paths:
        return [utterance_of(text, spoken(text), seed) for seed, text in enumerate(COMMANDS)]
    return [utterance_of(path.name, read_recording(path), seed) for seed, path in enumerate(paths)]


def utterance_of(name: str, pcm: Pcm, seed: int = 0) -> BenchUtterance:
    """Cuts a recording at the last sample within 30 dB of the loudest 10 ms, and adds room tone.

    Raises RequestError for a recording without speech.
    """
    span = speech_span(pcm, RATE_HZ)
    if span is None:
        raise RequestError(f"{name}: it contains no speech", code="no_speech")
    return utterance(name, pcm[: last_audible(pcm, span[1]) + 1], seed)


def last_audible(pcm: Pcm, end: int) -> int:
    """Returns the index of the last sample that counts as speech, before `end`."""
    levels = np.abs(pcm[:end].astype(np.int32))
    limit = levels.max() * 10 ** (-QUIETER_DB / 20)
    return int(np.flatnonzero(levels >= limit)[-1])
