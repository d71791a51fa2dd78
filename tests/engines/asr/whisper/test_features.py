"""Features of a growing utterance: equal to those of the whole, within bounded memory."""

import numpy as np
import pytest
from faster_whisper.feature_extractor import FeatureExtractor

from core.audio import ASR_RATE_HZ, Pcm
from engines.asr.whisper import features
from engines.asr.whisper.features import Features, LogMelExtractor, normalized_window
from engines.asr.whisper.windows import MAX_ITEM_SAMPLES, WINDOW_SAMPLES
from engines.base import AsrItem, AsrModel
from tests.engines.nano import load_nano
from tests.speech import say

pytestmark = pytest.mark.live

LENGTHS = (1, 159, 160, 199, 200, 201, 401, 1000, 16_000, 48_123, MAX_ITEM_SAMPLES)

CLOSE = 1e-5


def noise(samples: int) -> Pcm:
    return np.random.default_rng(samples).normal(0, 2000, samples).astype(np.int16)


def theirs(pcm: Pcm, mels: int) -> Features:
    padded = np.concatenate([pcm, np.zeros(WINDOW_SAMPLES - len(pcm), np.int16)])
    window: Features = FeatureExtractor(mels)(padded.astype(np.float32) / 32768, padding=0)
    return window


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("samples", LENGTHS)
def test_features_equal_those_of_the_padded_waveform(samples: int, mels: int) -> None:
    pcm, log_mel = noise(samples), LogMelExtractor(FeatureExtractor(mels))
    expected = theirs(pcm, mels)
    assert np.abs(normalized_window(log_mel.powers(pcm), 3000) - expected).max() < CLOSE
    for end in range(0, samples, max(1, samples // 7)):
        log_mel.powers(pcm[:end], "utt")
    assert np.abs(normalized_window(log_mel.powers(pcm, "utt"), 3000) - expected).max() < CLOSE


def test_a_later_window_continues_in_the_same_audio() -> None:
    pcm = noise(5 * ASR_RATE_HZ)
    powers = LogMelExtractor(FeatureExtractor(80)).powers(pcm)
    whole, later = normalized_window(powers, 1000), normalized_window(powers, 300, 250)
    assert np.array_equal(whole[:, 250:550], later)


class CountingExtractor(FeatureExtractor):  # type: ignore[misc]  # the library has no types
    """An extractor that counts the samples it was given."""

    samples = 0

    def stft(self, input_array: Pcm, *arguments: object, **options: object) -> object:
        self.samples += len(input_array)
        return super().stft(input_array, *arguments, **options)


def test_only_new_samples_are_computed() -> None:
    extractor = CountingExtractor(80)
    log_mel, pcm = LogMelExtractor(extractor), noise(10 * ASR_RATE_HZ)
    for end in range(3200, len(pcm) + 1, 3200):
        log_mel.powers(pcm[:end], "utt")
    assert extractor.samples < 1.5 * len(pcm)


def test_other_audio_of_the_same_utterance_is_computed_again() -> None:
    log_mel = LogMelExtractor(FeatureExtractor(80))
    first, second = noise(32_000), noise(32_001)
    log_mel.powers(first, "utt")
    assert np.array_equal(log_mel.powers(second, "utt"), log_mel.powers(second))
    assert np.array_equal(log_mel.powers(second[:8000], "utt"), log_mel.powers(second[:8000]))


def test_forgotten_utterances_take_no_memory() -> None:
    log_mel = LogMelExtractor(FeatureExtractor(80))
    log_mel.powers(noise(32_000), "utt")
    assert log_mel.cached_bytes > 0
    log_mel.forget("utt")
    log_mel.forget("never heard of")
    assert log_mel.cached_bytes == 0


@pytest.mark.parametrize(("utterances", "size_bytes"), [(4, 10**9), (10**9, 200_000)])
def test_the_memory_of_the_cache_is_bounded(
    monkeypatch: pytest.MonkeyPatch, utterances: int, size_bytes: int
) -> None:
    monkeypatch.setattr(features, "MAX_UTTERANCES", utterances)
    monkeypatch.setattr(features, "MAX_CACHE_BYTES", size_bytes)
    extractor = CountingExtractor(80)
    log_mel, pcm = LogMelExtractor(extractor), noise(32_000)
    for number in range(20):
        log_mel.powers(pcm, f"utt_{number}")
        assert log_mel.cached_bytes <= min(size_bytes, utterances * 64_000)
    computed = extractor.samples
    log_mel.powers(pcm, "utt_19")
    assert extractor.samples - computed < 2000, "the newest is kept"
    log_mel.powers(pcm, "utt_0")
    assert extractor.samples - computed > 32_000, "the oldest went"


@pytest.fixture(scope="module")
def nano() -> AsrModel:
    return load_nano()


def test_words_are_the_same_with_and_without_cached_features(nano: AsrModel) -> None:
    pcm = say("add milk and bread to the shopping list", "en-gb")
    for end in range(8000, len(pcm), 3200):
        (growing,) = nano.decode([AsrItem("growing", pcm[:end], is_final=False)])
        (fresh,) = nano.decode([AsrItem(f"fresh_{end}", pcm[:end], is_final=True)])
        assert growing.text == fresh.text
    (last,) = nano.decode([AsrItem("growing", pcm, is_final=True)])
    assert last.text == "add milk and bread to the shopping list"
