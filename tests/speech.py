"""Spoken test clips, rendered by our own eSpeak engine when a test needs them."""

import atexit
import json
import struct
import subprocess
import sys
from functools import cache

import numpy as np
import soxr

from core.audio import ASR_RATE_HZ, Pcm, silence
from engines.tts.espeak.library import NORMAL_WORDS_PER_MINUTE
from tests.shared import ROOT


@cache
def say(
    text: str,
    voice: str = "en-us",
    *,
    speed: float = 1,
    rate_hz: int = ASR_RATE_HZ,
    lead_ms: float = 0,
    tail_ms: float = 0,
) -> Pcm:
    """Returns `text` as read-only mono PCM, between `lead_ms` and `tail_ms` of digital silence; it
    does not depend on earlier clips.

    Other timbres: `voice="en-us+f3"`; other accents: `"en-gb"`; other languages: `"de"`.
    """
    speech, own_rate_hz = _box().say(text, voice, round(NORMAL_WORDS_PER_MINUTE * speed))
    if rate_hz != own_rate_hz:
        speech = soxr.resample(speech, own_rate_hz, rate_hz)
    clip = np.concatenate([silence(lead_ms, rate_hz), speech, silence(tail_ms, rate_hz)])
    clip.setflags(write=False)
    return clip


class _Box:
    """The process `tests.espeak_process`, which lives as long as the tests run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.espeak_process"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self._process.kill)
        self._rate_hz = self._number()

    def say(self, text: str, voice: str, words_per_minute: int) -> tuple[Pcm, int]:
        """Returns PCM and its rate."""
        request = {"text": text, "voice": voice, "words_per_minute": words_per_minute}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return np.frombuffer(self._read(self._number()), np.int16), self._rate_hz

    def _number(self) -> int:
        number: int = struct.unpack("<I", self._read(4))[0]
        return number

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        assert len(data) == size, "the voice box died; its error is above"
        return data


@cache
def _box() -> _Box:
    return _Box()
