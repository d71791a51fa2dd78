"""The end of speech in a recording: exact to 10 ms, or reported as unknown."""

from collections.abc import Callable

import numpy as np
import pytest

from bench.client.latency_probe import speech_span
from bench.client.microphone import RATE_HZ
from bench.tools import speech_bounds
from bench.tools.speech_bounds import SpeechBounds, find_speech_bounds, find_speech_end
from core.audio import Pcm, silence
from tests.media.signals import tone
from tests.speech import say

pytestmark = pytest.mark.live

TEXT = "turn on the kitchen lights"

LEVEL = 1500
"Level of the noise: loud enough that energy takes it for speech."


def hiss() -> Pcm:
    return np.random.default_rng(7).normal(0, LEVEL, 2 * RATE_HZ).astype(np.int16)


def long_beep() -> Pcm:
    return tone(1000, 2 * RATE_HZ, RATE_HZ) // 4


def test_clean_speech_ends_with_its_last_audible_sample() -> None:
    for tail_ms in (0, 800):
        pcm = say(TEXT, rate_hz=RATE_HZ, lead_ms=300, tail_ms=tail_ms)
        span = speech_span(pcm, RATE_HZ)
        assert span is not None
        assert find_speech_bounds(pcm, RATE_HZ) == SpeechBounds(*span)


@pytest.mark.parametrize("noise", [hiss, long_beep])
def test_noise_at_the_end_makes_the_end_of_speech_unknown(noise: Callable[[], Pcm]) -> None:
    voice = say(TEXT, rate_hz=RATE_HZ, lead_ms=300)
    clean = find_speech_bounds(voice, RATE_HZ)
    noisy = np.concatenate([voice, noise()])
    span = speech_span(noisy, RATE_HZ)
    assert span is not None
    assert span[1] > len(noisy) - RATE_HZ // 2, "energy takes the noise for speech"
    found = find_speech_bounds(noisy, RATE_HZ)
    assert found.end is None
    assert found.begin is not None
    assert clean.begin is not None
    assert abs(found.begin - clean.begin) <= RATE_HZ // 50


def test_noise_at_the_start_makes_the_start_of_speech_unknown() -> None:
    voice = say(TEXT, rate_hz=RATE_HZ, tail_ms=500)
    found = find_speech_bounds(np.concatenate([hiss(), silence(300, RATE_HZ), voice]), RATE_HZ)
    assert found.begin is None
    assert found.end is not None


def test_energy_decides_without_a_voice_or_a_detector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beep = np.concatenate([silence(200, RATE_HZ), tone(440, RATE_HZ, RATE_HZ)])
    assert find_speech_bounds(beep, RATE_HZ) == SpeechBounds(RATE_HZ // 5, len(beep))
    assert find_speech_bounds(silence(500, RATE_HZ), RATE_HZ) == SpeechBounds(0, RATE_HZ // 2)
    monkeypatch.setattr(speech_bounds, "_detector", lambda: None)
    noisy = np.concatenate([say(TEXT, rate_hz=RATE_HZ), hiss()])
    assert find_speech_bounds(noisy, RATE_HZ).end is not None


def test_noises_after_a_pause_do_not_belong_to_the_speech() -> None:
    voice = say(TEXT, rate_hz=RATE_HZ, lead_ms=300, tail_ms=400)
    span = speech_span(voice, RATE_HZ)
    assert span is not None
    click = hiss()[: RATE_HZ // 20]
    noisy = np.concatenate([voice, click, silence(500, RATE_HZ), click])
    assert find_speech_end(voice, RATE_HZ) == span[1]
    assert find_speech_end(noisy, RATE_HZ) == span[1]
    assert find_speech_end(silence(500, RATE_HZ), RATE_HZ) is None
