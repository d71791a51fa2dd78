"""The parts of the canceller: the timeline of the reference, the delay estimate, and the gate."""

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm
from media.pcm import dbfs
from media.processing.aec3 import CLOSED_GAIN, ResidualEchoGate
from media.processing.echo_delay import FAR_SAMPLES, NEAR_SAMPLES, estimate_delay
from media.processing.echo_reference import (
    KEPT_SAMPLES,
    MAX_AHEAD_SAMPLES,
    NEW_STRETCH_SAMPLES,
    EchoReference,
)

pytestmark = pytest.mark.many

FRAME = 320


def noise(samples: int, level: float = 3000, seed: int = 1) -> Pcm:
    return np.random.default_rng(seed).normal(0, level, samples).astype(np.int16)


def paced(*, is_paced: bool = True) -> EchoReference:
    return EchoReference(ASR_RATE_HZ, is_paced=is_paced)


def test_frames_are_placed_one_after_the_other_despite_jitter() -> None:
    reference, sound = paced(), noise(50 * FRAME)
    random = np.random.default_rng(3)
    for at in range(0, len(sound), FRAME):
        late = int(random.integers(0, 900)) if at else 0
        reference.write(sound[at : at + FRAME], 1000 + at + late)
    np.testing.assert_array_equal(reference.read(1000, 1000 + len(sound)), sound)


def test_a_new_answer_is_placed_where_it_was_sent_after_silence() -> None:
    reference, first, second = paced(), noise(FRAME), noise(FRAME, seed=2)
    reference.write(first, 0)
    at = FRAME + NEW_STRETCH_SAMPLES
    reference.write(second, at)
    np.testing.assert_array_equal(reference.read(0, FRAME), first)
    assert not reference.read(FRAME, at).any()
    np.testing.assert_array_equal(reference.read(at, at + FRAME), second)
    assert reference.sounds(0, 1)
    assert not reference.sounds(FRAME, at)


@pytest.mark.parametrize("step", [-2, 2])
def test_clock_drift_is_followed(step: int) -> None:
    """The drift is 6000 ppm, so that it shows in 10 s."""
    reference, sound = paced(), noise(FRAME)
    for number in range(500):
        reference.write(sound, number * (FRAME + step))
    end = 500 * (FRAME + step)
    assert reference.sounds(end - FRAME, end)
    assert not reference.sounds(end + 2 * FRAME, end + 100 * FRAME)


def test_unpaced_sound_is_placed_ahead_up_to_a_limit() -> None:
    reference = paced(is_paced=False)
    for _ in range(100):
        reference.write(noise(ASR_RATE_HZ), 0)
    assert reference.sounds(59 * ASR_RATE_HZ, 60 * ASR_RATE_HZ)
    assert not reference.sounds(MAX_AHEAD_SAMPLES, 2 * MAX_AHEAD_SAMPLES)
    reference.cut(ASR_RATE_HZ)
    assert not reference.read(ASR_RATE_HZ, 2 * ASR_RATE_HZ).any()
    assert reference.read(0, ASR_RATE_HZ).any()


def test_memory_is_bounded_over_an_hour() -> None:
    reference, sound = paced(), noise(ASR_RATE_HZ)
    for second in range(3600):
        reference.write(sound, second * ASR_RATE_HZ)
    assert len(reference._pcm) <= 4 * KEPT_SAMPLES
    assert len(reference._sounds) == 1
    np.testing.assert_array_equal(reference.read(3599 * ASR_RATE_HZ, 3600 * ASR_RATE_HZ), sound)


def dull(pcm: Pcm) -> Pcm:
    """Moves most of the energy below 200 Hz, as in a voice."""
    filtered = np.convolve(pcm, 0.3 * 0.93 ** np.arange(200))[: len(pcm)]
    return np.clip(filtered, -32768, 32767).astype(np.int16)


@pytest.mark.parametrize("delay", [0, 160, 6400, 24_000])
@pytest.mark.parametrize("level", [3000, 100])
def test_the_delay_of_an_echo_under_a_voice_is_found(delay: int, level: float) -> None:
    far = dull(noise(FAR_SAMPLES))
    echo = far[FAR_SAMPLES - NEAR_SAMPLES - delay : FAR_SAMPLES - delay] * (level / 3000)
    near = (echo + dull(noise(NEAR_SAMPLES, 300, seed=2))).astype(np.int16)
    found = estimate_delay(far, near)
    assert found.sharpness > 15
    assert found.delay == delay


def test_two_voices_do_not_match() -> None:
    found = [
        estimate_delay(
            dull(noise(FAR_SAMPLES, seed=s)), dull(noise(NEAR_SAMPLES, seed=100 + s))
        ).sharpness
        for s in range(50)
    ]
    assert max(found) < 9


def test_silence_matches_nothing() -> None:
    assert estimate_delay(np.zeros(FAR_SAMPLES, np.int16), noise(NEAR_SAMPLES)).sharpness == 0
    assert estimate_delay(noise(FAR_SAMPLES), np.zeros(NEAR_SAMPLES, np.int16)).sharpness == 0


def test_the_gate_attenuates_residual_echo_but_not_voices() -> None:
    gate = ResidualEchoGate()
    for _ in range(10):
        gate.push(noise(FRAME, 3000), noise(FRAME, 10))
    crumb = noise(FRAME, 300)
    gate.push(crumb, crumb)
    assert dbfs(gate.push(crumb, crumb)) == pytest.approx(
        dbfs(crumb) + 20 * np.log10(CLOSED_GAIN), abs=1
    )
    voice = noise(FRAME, 3500)
    gate.push(voice, voice)
    assert gate.push(voice, voice) is voice
    assert gate.push(crumb, crumb) is crumb  # the quiet end of a word


def test_the_gate_changes_nothing_before_any_echo() -> None:
    gate = ResidualEchoGate()
    for level in (3000, 10, 500, 1):
        pcm = noise(FRAME, level)
        assert gate.push(pcm, pcm) is pcm
