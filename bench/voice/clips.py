"""Clips to send: speech that ends with its last audible sample, then the noise of a quiet room."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.client.latency_probe import QUIETER_DB
from bench.client.microphone import RATE_HZ
from bench.talk.command import read_recording
from bench.tools.clips import COMMANDS, synthesise
from bench.tools.speech_bounds import find_speech_end
from bench.tools.utterance_audio import BenchUtterance, make_utterance
from core.audio import Pcm
from core.errors import RequestError


def clips(paths: Sequence[Path]) -> list[BenchUtterance]:
    """Returns the recordings as utterances; without paths, commands that eSpeak speaks.

    Raises RequestError for a file that cannot be read, or that contains no speech.
    """
    if not paths:
        return [
            recorded_utterance(text, synthesise(text), seed) for seed, text in enumerate(COMMANDS)
        ]
    return [
        recorded_utterance(path.name, read_recording(path), seed) for seed, path in enumerate(paths)
    ]


def recorded_utterance(name: str, pcm: Pcm, seed: int = 0) -> BenchUtterance:
    """Cuts a recording after its last audible sample of speech, and adds room tone.

    name: shown in results and errors. pcm: samples at RATE_HZ. seed: seed of the room tone.
    Raises RequestError for a recording without speech.
    """
    end = find_speech_end(pcm, RATE_HZ)
    if end is None:
        raise RequestError(f"{name}: it contains no speech", code="no_speech")
    return make_utterance(name, pcm[: last_audible(pcm, end) + 1], seed)


def last_audible(pcm: Pcm, end: int) -> int:
    """Returns the index of the last sample before `end` within 30 dB of the largest sample."""
    levels = np.abs(pcm[:end].astype(np.int32))
    limit = levels.max() * 10 ** (-QUIETER_DB / 20)
    return int(np.flatnonzero(levels >= limit)[-1])
