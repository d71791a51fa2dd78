"""Whisper with our tiny model that really transcribes: words, batches, rejection, errors."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm, silence
from core.errors import ConfigError, EngineError, EngineMissing
from engines.asr.faster_whisper import Settings, describe
from engines.asr.whisper.windows import MAX_ITEM_SAMPLES, window_frames
from engines.base import AsrItem, AsrModel, AsrOptions, AsrPadding, AsrResult
from engines.registry import load
from tests.engines.nano import NANO, load_nano
from tests.speech import say

pytestmark = pytest.mark.live


COMMANDS = {
    "turn on the kitchen lights": "en-us",
    "open the garage door": "en-gb",
    "what time is it": "en-us",
    "add milk and bread to the shopping list": "en-gb",
}


@pytest.fixture(scope="module")
def nano() -> Iterator[AsrModel]:
    model = load_nano()
    yield model
    model.close()


def decode(model: AsrModel, *clips: Pcm, language: str | None = "en") -> list[AsrResult]:
    return model.decode(
        [AsrItem(f"utt_{i}", pcm, True, AsrOptions(language)) for i, pcm in enumerate(clips)]
    )


def test_spoken_commands_are_transcribed(nano: AsrModel) -> None:
    assert (nano.info.model, nano.info.languages) == ("whisper-nano", ("en",))
    for text, voice in COMMANDS.items():
        (result,) = decode(nano, say(text, voice))
        assert result.text == text
        assert result.language == "en"
        assert 0.8 < result.confidence <= 1
        assert not result.is_rejected


@pytest.mark.parametrize("padding", ["max", "bucket", "longest", "nopad"])
def test_each_item_of_a_batch_gets_its_own_words(padding: str) -> None:
    model = load_nano(padding=padding, max_batch=3)
    try:
        results = decode(model, *(say(text, voice) for text, voice in COMMANDS.items()))
    finally:
        model.close()
    assert [result.text for result in results] == list(COMMANDS)


def test_items_without_speech_keep_their_place_in_a_batch(nano: AsrModel) -> None:
    empty = np.zeros(0, np.int16)
    first, nothing, last, hushed = decode(
        nano,
        say("what time is it"),
        empty,
        say("turn on the kitchen lights"),
        silence(3000, 16_000),
    )
    assert (first.text, last.text) == ("what time is it", "turn on the kitchen lights")
    assert (nothing.text, hushed.text) == ("", "")
    assert not nothing.is_rejected


def test_items_with_and_without_a_prompt_share_a_batch(nano: AsrModel) -> None:
    clip = say("turn on the kitchen lights")
    results = nano.decode(
        [
            AsrItem("a", clip, True, AsrOptions("en", prompt="lights, kitchen. " * 100)),
            AsrItem("b", clip, True, AsrOptions("en")),
        ]
    )
    assert results[1].text == "turn on the kitchen lights"
    assert len(results) == 2


@pytest.mark.parametrize("language", [None, "de", "en"])
def test_an_english_model_transcribes_english_whatever_the_language(
    nano: AsrModel, language: str | None
) -> None:
    (result,) = decode(nano, say("what time is it"), language=language)
    assert (result.text, result.language) == ("what time is it", "en")


def test_noise_is_rejected_without_text(nano: AsrModel) -> None:
    noise = np.random.default_rng(1).normal(0, 3000, 3 * ASR_RATE_HZ).astype(np.int16)
    (result,) = decode(nano, noise)
    assert (result.text, result.is_rejected) == ("", True)


def test_a_model_is_described_before_it_is_loaded(nano: AsrModel) -> None:
    info = describe(Settings(model=str(NANO)))
    assert info == nano.info
    assert "timestamps" in info.supports
    assert "task" not in info.supports


def test_an_impossible_threshold_rejects_speech() -> None:
    model = load_nano(min_confidence=1)
    (result,) = decode(model, say("what time is it"))
    model.close()
    assert (result.text, result.is_rejected) == ("", True)


def test_audio_longer_than_a_window_is_refused_with_the_limit(nano: AsrModel) -> None:
    assert nano.info.window_ms == 29_500
    with pytest.raises(EngineError, match="the item has 29510 ms; allowed: up to 29500"):
        decode(nano, silence(29_510, ASR_RATE_HZ))


@pytest.mark.parametrize(
    ("samples", "padding", "frames"),
    [
        (16_000, "max", 3000),
        (16_000, "bucket", 1000),
        (160_000, "bucket", 2000),
        (320_000, "bucket", 3000),
        (16_000, "longest", 1000),
        (192_000, "longest", 1300),
        (16_000, "nopad", 200),
        (24_000, "nopad", 200),
        (24_001, "nopad", 226),
        (48_000, "nopad", 350),
        (48_001, "nopad", 376),
        (MAX_ITEM_SAMPLES, "nopad", 3000),
        (0, "nopad", 200),
    ],
)
def test_the_padding_sets_the_length_of_windows(
    samples: int, padding: AsrPadding, frames: int
) -> None:
    assert window_frames(samples, padding) == frames


def test_missing_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match=r"no model.bin, config.json, tokenizer.json in .*x"):
        load("asr", "faster_whisper", {"model": str(tmp_path / "x")})


def test_a_tokenizer_is_never_downloaded(tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "m")
    (tmp_path / "m" / "tokenizer.json").unlink()
    with pytest.raises(EngineMissing, match=r"no tokenizer.json"):
        load("asr", "faster_whisper", {"model": str(tmp_path / "m")})


def test_nopad_is_allowed_only_for_models_that_declare_it(tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "m")
    notes = tmp_path / "m" / "earshot.json"
    notes.unlink()
    options = {"model": str(tmp_path / "m"), "padding": "nopad"}
    with pytest.raises(ConfigError, match="allowed: max, bucket, longest"):
        load("asr", "faster_whisper", options)
    notes.write_text('{"pading": "nopad"}')
    with pytest.raises(ConfigError, match="pading"):
        load("asr", "faster_whisper", options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modell": "x"}, "asr.faster_whisper: unknown key 'modell'; known keys: model, device"),
        ({}, "asr.faster_whisper: .*`model`"),
        ({"model": "x", "beam_size": 0}, "asr.faster_whisper: .*beam_size"),
        ({"model": "x", "padding": "all"}, "asr.faster_whisper: .*padding"),
        ({"model": "x", "temperatures": [3]}, "asr.faster_whisper: .*temperatures"),
        ({"model": str(NANO), "device": "cuda"}, "CUDA sees no GPU; allowed: auto, cpu"),
        ({"model": str(NANO), "compute_type": "int3"}, "cannot load .*int3"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("asr", "faster_whisper", options)
