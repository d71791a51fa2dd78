"""Recordings of which a voice can be made, and those of which it cannot: each says why."""

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import RequestError
from pipeline.speech.voice_reference import check_reference
from tests.speech import say

pytestmark = pytest.mark.live

RATE_HZ = 24_000
TEXT = "Good morning, this is my own voice. It will read the news to me, and tell me the weather."


def spoken() -> Pcm:
    return say(TEXT, rate_hz=RATE_HZ, lead_ms=100, tail_ms=200)


def noise(seconds: float, amplitude: float) -> Pcm:
    random = np.random.default_rng(0)
    return (random.normal(0, 1, int(seconds * RATE_HZ)) * amplitude).astype(np.int16)


def music(seconds: float) -> Pcm:
    """Returns chords like those of an organ, of half a second each, after a silence."""
    time = np.arange(RATE_HZ // 2) / RATE_HZ
    chord = [
        sum(np.sin(2 * np.pi * root * n * time) / n for n in range(1, 9)) for root in (110, 147)
    ]
    notes = np.concatenate([1500 * chord[n % 2] for n in range(int(2 * seconds))])
    return np.concatenate([np.zeros(RATE_HZ // 2), notes]).astype(np.int16)


def test_speech_of_some_seconds_is_taken() -> None:
    check_reference(spoken(), RATE_HZ)
    check_reference(say(TEXT), ASR_RATE_HZ)


def _loud(pcm: Pcm) -> Pcm:
    return np.clip(pcm.astype(np.int32) * 12, -32_768, 32_767).astype(np.int16)


@pytest.mark.parametrize(
    ("pcm", "why"),
    [
        (np.zeros(0, np.int16), r"it has 0\.0 s; allowed: 3 to 15 s"),
        (spoken()[: RATE_HZ // 2], r"it has 0\.5 s; allowed: 3 to 15 s"),
        (np.tile(spoken(), 4)[: 15 * RATE_HZ + 1], r"it has more than 15 s; allowed: 3 to 15 s"),
        (np.zeros(5 * RATE_HZ, np.int16), r"it has 0\.0 s of speech; allowed: 2 s and more"),
        ((spoken() / 300).astype(np.int16), r"(dB of full scale|s of speech); allowed"),
        (_loud(spoken()), r"% of it is cut off at full scale; allowed: 0\.1 %"),
        (noise(5, 3000), "s of speech; allowed|dB above the other sound; allowed"),
        (spoken() + noise(len(spoken()) / RATE_HZ, 2500)[: len(spoken())], "allowed:"),
        (music(6), "it sounds like music|s of speech; allowed|above the other sound"),
    ],
    ids=["empty", "half", "long", "silence", "soft", "clipped", "noise", "noisy", "music"],
)
def test_other_recordings_are_refused_with_the_reason(pcm: Pcm, why: str) -> None:
    with pytest.raises(RequestError, match=why) as caught:
        check_reference(pcm, RATE_HZ)
    assert caught.value.code == "unsuitable_recording"
