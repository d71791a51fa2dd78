"""Audio that all clients send: commands with a quiet room between them, as Opus or as PCM."""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache

import numpy as np

from bench.client.microphone import FRAME_SAMPLES, RATE_HZ
from bench.tools.clips import COMMANDS, synthesise
from bench.tools.utterance_audio import make_utterance
from core.audio import Pcm
from media.codecs.opus import OpusEncoder
from media.pcm import to_bytes


def packets() -> Sequence[bytes]:
    """Returns the Opus packets, one per 20 ms."""
    encoder = OpusEncoder(RATE_HZ)
    return [encoder.encode(frame) for frame in _frames()]


def appends() -> Sequence[str]:
    """Returns the events of the Realtime API, one per 20 ms."""
    audio = (b64encode(to_bytes(frame)).decode() for frame in _frames())
    return [f'{{"type":"input_audio_buffer.append","audio":"{packet}"}}' for packet in audio]


@cache
def _frames() -> Sequence[Pcm]:
    clips = [make_utterance(text, synthesise(text), seed).pcm for seed, text in enumerate(COMMANDS)]
    pcm = np.concatenate(clips)
    return list(pcm[: len(pcm) - len(pcm) % FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES))
