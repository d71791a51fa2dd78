import numpy as np
import pytest
from psutil import Process

from core.audio import Pcm
from media.resample import Resampler, live_delay_ms
from tests.media.signals import peak_hz, tone

pytestmark = pytest.mark.many

RATES = [(48000, 16000), (24000, 48000), (44100, 16000), (22050, 24000), (8000, 16000)]


def stream(resampler: Resampler, pcm: Pcm, cuts: list[int]) -> Pcm:
    parts = [resampler.push(part) for part in np.split(pcm, cuts)]
    return np.concatenate([*parts, resampler.flush()])


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_any_split_gives_the_same_samples(from_hz: int, to_hz: int, live: bool) -> None:
    pcm = np.random.default_rng(7).normal(0, 5000, 5000).astype(np.int16)
    whole = stream(Resampler(from_hz, to_hz, live=live), pcm, [])
    for cuts in ([1], [1, 2, 3, 4], list(range(0, 5000, 160)), [2500, 2500, 4999]):
        assert np.array_equal(stream(Resampler(from_hz, to_hz, live=live), pcm, cuts), whole)


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_the_duration_is_kept(from_hz: int, to_hz: int) -> None:
    chunk = np.zeros(from_hz // 50, np.int16)
    resampler = Resampler(from_hz, to_hz)
    total = sum(len(resampler.push(chunk)) for _ in range(500)) + len(resampler.flush())
    assert abs(total - 10 * to_hz) <= 1


@pytest.mark.parametrize(("from_hz", "to_hz"), [*RATES, (96000, 16000), (16000, 48000)])
def test_live_mode_returns_the_share_of_each_push_at_once(from_hz: int, to_hz: int) -> None:
    resampler = Resampler(from_hz, to_hz, live=True)
    chunk = np.zeros(from_hz // 50, np.int16)
    assert {len(resampler.push(chunk)) for _ in range(500)} == {to_hz // 50}
    delayed = to_hz * live_delay_ms(from_hz, to_hz) / 1000
    assert len(resampler.flush()) == pytest.approx(delayed, abs=2)


@pytest.mark.parametrize(("from_hz", "to_hz"), [*RATES, (96000, 16000), (16000, 48000)])
@pytest.mark.parametrize("size", [1, 77, 441])
def test_live_mode_holds_nothing_back_however_small_the_pushes(
    from_hz: int, to_hz: int, size: int
) -> None:
    resampler = Resampler(from_hz, to_hz, live=True)
    taken = given = 0
    for _ in range(600):
        taken += size
        given += len(resampler.push(np.zeros(size, np.int16)))
        assert given == taken * to_hz // from_hz


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_a_tone_keeps_its_frequency_and_level(from_hz: int, to_hz: int) -> None:
    heard = Resampler(from_hz, to_hz).push(tone(1000, from_hz, from_hz))
    assert peak_hz(heard, to_hz) == pytest.approx(1000, abs=2)
    assert np.abs(heard[200:]).max() == pytest.approx(8000, rel=0.02)


def test_frequencies_above_the_lower_rate_are_removed() -> None:
    heard = Resampler(48000, 16000).push(tone(10_000, 48000, 48000))
    assert np.abs(heard[200:]).max() < 80  # -40 dB; folded, it would be a loud tone of 6 kHz


@pytest.mark.parametrize(
    ("from_hz", "to_hz", "delay_ms"), [(48000, 16000, 1), (24000, 16000, 1), (8000, 16000, 2)]
)
def test_the_stated_live_delay_is_the_real_one(from_hz: int, to_hz: int, delay_ms: float) -> None:
    click = np.zeros(from_hz // 10, np.int16)
    click[len(click) // 2] = 20000
    heard = Resampler(from_hz, to_hz, live=True).push(click)
    assert live_delay_ms(from_hz, to_hz) == delay_ms
    assert int(np.abs(heard).argmax()) == to_hz // 20 + to_hz * delay_ms // 1000


def test_equal_rates_pass_through() -> None:
    pcm = np.arange(100, dtype=np.int16)
    resampler = Resampler(16000, 16000, live=True)
    assert resampler.push(pcm) is pcm
    assert not len(resampler.flush())


def test_after_flush_a_new_stream_begins() -> None:
    resampler = Resampler(48000, 16000)
    pcm = tone(440, 4800, 48000)
    assert np.array_equal(stream(resampler, pcm, []), stream(resampler, pcm, []))


def test_a_stream_needs_no_thread() -> None:
    before = Process().num_threads()
    resamplers = [Resampler(48_000, 16_000) for _ in range(4)]
    assert all(len(one.push(tone(440, 960, 48_000))) for one in resamplers)
    assert Process().num_threads() <= before
