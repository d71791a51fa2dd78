"""Short windows with the official weights of tiny.en, which are known for them."""

from collections.abc import Iterator

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm, silence
from engines.asr.faster_whisper import FasterWhisper, Settings, create
from engines.base import AsrItem, AsrOptions
from tests.real_models import spoken_by_hibari, tiny_en

pytestmark = pytest.mark.real

SENTENCES = (
    "Turn on the lights in the kitchen.",
    "What is the weather going to be like tomorrow morning?",
)


@pytest.fixture(scope="module")
def model() -> Iterator[FasterWhisper]:
    whisper = create(Settings(model=str(tiny_en()), device="cpu", cpu_threads=1))
    yield whisper
    whisper.close()


@pytest.fixture(scope="module")
def clips() -> list[Pcm]:
    return spoken_by_hibari(SENTENCES)


def spoken(text: str) -> str:
    return text.lower().strip(" .?")


def test_official_weights_use_short_windows_unless_told_otherwise(
    model: FasterWhisper, clips: list[Pcm]
) -> None:
    for clip, sentence in zip(clips, SENTENCES, strict=True):
        items = [
            AsrItem(f"{padding}", clip, True, AsrOptions("en", padding=padding))
            for padding in (None, "max")
        ]
        short, full = model.decode(items)
        assert short.short_windows == ("accepted",)
        assert full.short_windows == ()
        assert spoken(short.text) == spoken(full.text) == spoken(sentence)


def test_unsure_words_of_a_partial_are_kept(clips: list[Pcm]) -> None:
    settings = Settings(str(tiny_en()), device="cpu", cpu_threads=1, log_prob_threshold=0.0)
    model = create(settings)  # no word is sure enough
    partial, final = model.decode(
        [AsrItem(f"{is_final}", clips[0], is_final, AsrOptions("en")) for is_final in (False, True)]
    )
    model.close()
    assert partial.short_windows == final.short_windows == ("unsure",)
    assert spoken(partial.text) == spoken(final.text) == spoken(SENTENCES[0])
    assert (partial.is_rejected, partial.is_doubtful_partial) == (False, True)


def test_words_of_a_short_window_are_timed_as_in_30_s(
    model: FasterWhisper, clips: list[Pcm]
) -> None:
    items = [
        AsrItem(f"{padding}", clips[1], True, AsrOptions("en", timestamps="word", padding=padding))
        for padding in (None, "max")
    ]
    short, full = model.decode(items)
    assert short.short_windows == ("accepted",)
    assert [word.text for word in short.words] == [word.text for word in full.words]
    for word, other in zip(short.words, full.words, strict=True):
        assert word.start_ms == pytest.approx(other.start_ms, abs=150)


def test_a_window_without_words_is_judged_in_30_s(model: FasterWhisper) -> None:
    noise = np.random.default_rng(1).normal(0, 2000, 2 * ASR_RATE_HZ).astype(np.int16)
    pcm = np.concatenate([noise, silence(500, ASR_RATE_HZ)])
    short, full = (
        model.decode([AsrItem(f"{padding}", pcm, True, AsrOptions("en", padding=padding))])[0]
        for padding in ("longest", "max")
    )
    assert short.short_windows != ("accepted",)
    assert (short.text, short.is_rejected) == (full.text, full.is_rejected)
