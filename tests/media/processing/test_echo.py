"""Echo control: what passes unchanged, what is cancelled, and which echoes are muted."""

import time

import numpy as np
import pytest

from bench.measurements.echo.rooms import EchoRoom, echo, microphone
from core.audio import ASR_RATE_HZ, Pcm, silence
from media.pcm import dbfs
from media.processing.aec3 import EchoCanceller, EchoPathState
from media.processing.echo import EchoControl, HalfDuplexEchoControl, NoEchoControl, open_echo
from media.processing.modes import EchoMode

pytestmark = pytest.mark.many

FRAME = 320
SECOND = ASR_RATE_HZ


def syllables(seconds: float, seed: int = 1) -> Pcm:
    """Returns noise that swells and fades four times a second, as speech does."""
    random = np.random.default_rng(seed)
    time_s = np.arange(round(seconds * ASR_RATE_HZ)) / ASR_RATE_HZ
    swell = np.maximum(0.02, np.sin(2 * np.pi * 2 * time_s)) ** 2
    pcm: Pcm = (random.normal(0, 4000, len(time_s)) * swell).astype(np.int16)
    return pcm


def cleaned(echoes: EchoControl, far: Pcm, near: Pcm, frame: int = FRAME) -> Pcm:
    """Plays `far` and cleans `near` in real time; nothing is played once `far` has ended."""
    out: list[Pcm] = []
    for at in range(0, len(near), frame):
        if len(sent := far[at : at + frame]):
            echoes.play(sent, at)
        out.append(echoes.clean(near[at : at + frame], at))
    return np.concatenate(out)


@pytest.mark.parametrize("make", [EchoCanceller, HalfDuplexEchoControl, NoEchoControl])
@pytest.mark.parametrize("frame", [320, 480, 333])
def test_audio_is_unchanged_when_nothing_is_played(make: type[EchoControl], frame: int) -> None:
    near = syllables(2)
    np.testing.assert_array_equal(cleaned(make(), silence(0, 16_000), near, frame), near)
    np.testing.assert_array_equal(cleaned(make(), silence(2000, 16_000), near, frame), near)


@pytest.mark.parametrize("make", [EchoCanceller, HalfDuplexEchoControl])
def test_audio_is_unchanged_again_some_time_after_an_answer(make: type[EchoControl]) -> None:
    far, near = syllables(1), syllables(4, seed=2)
    out = cleaned(make(), far, near)
    assert not np.array_equal(out[:SECOND], near[:SECOND])
    np.testing.assert_array_equal(out[round(2.3 * SECOND) :], near[round(2.3 * SECOND) :])


@pytest.mark.parametrize("delay_ms", [0, 120, 400, 700, 1500])
def test_an_echo_is_found_and_cancelled(delay_ms: int) -> None:
    far = syllables(9)
    heard = microphone(echo(far, EchoRoom(delay_ms=delay_ms, level_db=-6)))
    canceller = EchoCanceller()
    out = cleaned(canceller, far, heard)
    assert canceller.path is EchoPathState.CANCELLED
    assert canceller.delay_ms == pytest.approx(delay_ms, abs=1)
    assert dbfs(heard[-2 * SECOND :]) - dbfs(out[-2 * SECOND :]) > 25
    assert canceller.erle_db > 20


def test_a_shrinking_delay_is_followed() -> None:
    far = syllables(12)
    heard = microphone(echo(far, EchoRoom(delay_ms=200, jump_ms=-120)))
    canceller = EchoCanceller()
    out = cleaned(canceller, far, heard)
    assert canceller.delay_ms == pytest.approx(80, abs=1)
    assert canceller.path is EchoPathState.CANCELLED
    assert dbfs(heard[-2 * SECOND :]) - dbfs(out[-2 * SECOND :]) > 25


@pytest.mark.parametrize("frame", [160, 320, 333, 960])
def test_the_echo_in_frames_of_any_length_is_cancelled(frame: int) -> None:
    far = syllables(4)
    heard = microphone(echo(far, EchoRoom()))
    out = cleaned(EchoCanceller(), far, heard, frame)
    assert len(out) == len(heard)
    assert dbfs(heard[-SECOND:]) - dbfs(out[-SECOND:]) > 20


def test_the_echo_in_bursts_of_microphone_audio_is_cancelled() -> None:
    """Bursts have up to 100 ms, so the time at which a frame arrives is a poor clock."""
    far, random = syllables(6), np.random.default_rng(2)
    heard = microphone(echo(far, EchoRoom(delay_ms=60)))
    canceller, out, arrived = EchoCanceller(), [silence(0, ASR_RATE_HZ)], 0
    for at in range(0, len(far), FRAME):
        canceller.play(far[at : at + FRAME], arrived)
        if random.random() < 0.3 or at - arrived >= 4 * FRAME:
            burst = range(arrived, at + FRAME, FRAME)
            out += [canceller.clean(heard[begin : begin + FRAME], begin) for begin in burst]
            arrived = at + FRAME
    cleaned_pcm = np.concatenate(out)
    late = slice(len(cleaned_pcm) - 2 * SECOND, len(cleaned_pcm))
    assert dbfs(heard[late]) - dbfs(cleaned_pcm[late]) > 25


def test_the_reference_has_the_playout_rate() -> None:
    far = syllables(4)
    heard = microphone(echo(far, EchoRoom(delay_ms=60)))
    canceller = EchoCanceller(48_000)
    out = cleaned_at_48_khz(canceller, far, heard)
    assert dbfs(heard[-SECOND:]) - dbfs(out[-SECOND:]) > 20


def cleaned_at_48_khz(canceller: EchoCanceller, far: Pcm, near: Pcm) -> Pcm:
    places = np.arange(3 * len(far)) / 3
    fine = np.interp(places, np.arange(len(far)), far).astype(np.int16)
    out: list[Pcm] = []
    for at in range(0, len(near), FRAME):
        canceller.play(fine[3 * at : 3 * (at + FRAME)], at)
        out.append(canceller.clean(near[at : at + FRAME], at))
    return np.concatenate(out)


def test_audio_of_headphones_is_unchanged() -> None:
    far, near = syllables(6), syllables(6, seed=2)
    canceller = EchoCanceller()
    out = cleaned(canceller, far, near)
    assert canceller.path is EchoPathState.NONE
    assert canceller.delay_ms is None
    assert not canceller.is_sounding(5 * SECOND)
    np.testing.assert_array_equal(out[3 * SECOND :], near[3 * SECOND :])


def test_a_person_is_audible_over_an_equally_loud_echo() -> None:
    far = syllables(8)
    person = np.random.default_rng(5).normal(0, 3000, SECOND).astype(np.int16)
    heard = microphone(echo(far, EchoRoom(level_db=0)), person, 5 * SECOND)
    out = cleaned(EchoCanceller(), far, heard)
    assert dbfs(out[5 * SECOND : 6 * SECOND]) > dbfs(out[4 * SECOND : 5 * SECOND]) + 20


class Deaf(EchoCanceller):
    """A canceller whose library does nothing until `works` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.works = False
        library = self._canceller.process
        self._canceller.process = (  # type: ignore[method-assign]
            lambda near, far: library(near, far) if self.works else near
        )


def test_a_leaking_echo_is_muted_until_it_can_be_cancelled() -> None:
    far = syllables(12)
    heard = microphone(echo(far, EchoRoom()))
    canceller, half = Deaf(), 6 * SECOND
    first = cleaned(canceller, far[:half], heard[:half])
    assert canceller.path is EchoPathState.LEAKING
    assert not first[-2 * SECOND :].any()
    canceller.works = True
    for at in range(half, 2 * half, FRAME):
        canceller.play(far[at : at + FRAME], at)
        canceller.clean(heard[at : at + FRAME], at)
    assert canceller.path is EchoPathState.CANCELLED  # type: ignore[comparison-overlap]


def test_half_duplex_mutes_an_answer_and_passes_audio_after_it() -> None:
    far, near = syllables(1), syllables(3, seed=2)
    half_duplex = HalfDuplexEchoControl()
    out = cleaned(half_duplex, far, near)
    assert not out[: round(1.68 * SECOND)].any()
    np.testing.assert_array_equal(out[round(1.72 * SECOND) :], near[round(1.72 * SECOND) :])
    assert half_duplex.is_sounding(round(1.6 * SECOND))
    assert not half_duplex.is_sounding(round(1.8 * SECOND))


def test_half_duplex_does_not_wait_for_sound_that_was_cut() -> None:
    half_duplex = HalfDuplexEchoControl(is_paced=False)
    half_duplex.play(syllables(10), 0)
    assert half_duplex.is_sounding(9 * SECOND)
    half_duplex.cut(SECOND)
    assert half_duplex.is_sounding(SECOND)
    assert not half_duplex.is_sounding(9 * SECOND)


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("off", NoEchoControl), ("cancel", EchoCanceller), ("half_duplex", HalfDuplexEchoControl)],
)
def test_a_session_gets_the_requested_echo_control(mode: EchoMode, kind: type[EchoControl]) -> None:
    assert type(open_echo(mode, 48_000, is_paced=True)) is kind


def test_echo_cancellation_takes_under_three_percent_of_a_core() -> None:
    far = syllables(4)
    heard = microphone(echo(far, EchoRoom()))
    begun = time.process_time()
    cleaned(EchoCanceller(), far, heard)
    assert time.process_time() - begun < 0.03 * 4
