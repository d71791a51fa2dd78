"""A checkpoint's files say its layout; what does not fit is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import ConfigError, EngineError, EngineMissing
from engines.registry import worker_profile
from engines.tts.bark.layout import BarkLayout, Sampling, layout_of, misfit, read_layout
from engines.tts.bark.voices import checked, read_prompts, voices_by_language
from tests.engines.tts.bark.checkpoint import (
    COARSE_END,
    SHAPE,
    layout,
    prompt_arrays,
    write_prompts,
)

LAYOUT = layout()
CONFIG: dict[str, Any] = {
    "model_type": "bark",
    "semantic_config": {**SHAPE, "input_vocab_size": 350, "output_vocab_size": 60},
    "coarse_acoustics_config": {**SHAPE, "input_vocab_size": 120, "output_vocab_size": COARSE_END},
    "fine_acoustics_config": {**SHAPE, "input_vocab_size": 36, "output_vocab_size": 36},
    "codec_config": {"codebook_size": 32},
}


def test_what_a_checkpoint_does_not_say_is_as_published() -> None:
    assert layout_of({}) == BarkLayout()
    # The published coarse stage has 12 096 rows, the others 10 048 and 129 600 or fewer.
    published = {
        "semantic_config": {"input_vocab_size": 129_600, "output_vocab_size": 10_048},
        "coarse_acoustics_config": {"input_vocab_size": 12_096, "output_vocab_size": 12_096},
        "fine_acoustics_config": {"input_vocab_size": 1056, "output_vocab_size": 1056},
    }
    assert misfit(BarkLayout(), published) == ""


def test_sampling_is_read_for_each_stage() -> None:
    found = layout_of(
        {
            "semantic_config": {"do_sample": True, "temperature": 0.7},
            "coarse_acoustics_config": {"do_sample": True, "temperature": 0.6, "top_k": 20},
            "fine_acoustics_config": {"temperature": 0.5},
        }
    )
    assert found.semantic == Sampling(0.7, 50)
    assert found.coarse == Sampling(0.6, 20)
    assert found.fine == Sampling(0.5)
    assert layout_of({"fine_acoustics_config": {"temperature": 1.0}}).fine == Sampling(0.0)


@pytest.mark.parametrize(
    ("part", "name", "value", "problem"),
    [
        ("semantic_config", "block_size", 55, "semantic_config.block_size is 55; needed: 56"),
        ("coarse_acoustics_config", "output_vocab_size", 113, "is 113; needed: 114 or more"),
        ("fine_acoustics_config", "n_codes_total", 4, "is 4; needed: 8 or more"),
        ("codec_config", "codebook_size", 64, "the codec has 64 codes in a codebook, not 32"),
    ],
)
def test_networks_of_another_shape_are_refused(
    part: str, name: str, value: int, problem: str
) -> None:
    assert misfit(LAYOUT, CONFIG) == ""
    assert problem in misfit(LAYOUT, {**CONFIG, part: {**CONFIG[part], name: value}})


@pytest.mark.parametrize("value", ["many", -1, True, 2.5])
def test_a_value_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(EngineError, match=r"codebook_size is .*; allowed: a number of 0 or more"):
        layout_of({"codebook_size": value})


def test_a_folder_needs_four_files(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "model.safetensors", "config.json", "generation_config.json"):
        with pytest.raises(EngineMissing, match=f"no {name} in {tmp_path}"):
            read_layout(tmp_path)
        (tmp_path / name).write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    with pytest.raises(EngineError, match="a model of type 'gpt2', not 'bark'"):
        read_layout(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(EngineMissing, match="is not JSON"):
        read_layout(tmp_path)


def test_speaker_prompts_become_voices_of_their_languages(tmp_path: Path) -> None:
    assert read_prompts(tmp_path, LAYOUT) == {}
    write_prompts(tmp_path)
    prompts = read_prompts(tmp_path, LAYOUT)
    assert set(prompts) == {"v2_en_speaker_6", "en_speaker_0", "de_speaker_1"}
    arrays = prompt_arrays(0)
    assert np.array_equal(prompts["v2_en_speaker_6"].fine, arrays["fine_prompt"])
    assert voices_by_language(prompts, ("en", "de", "fr"), ()) == {
        "en": ("v2_en_speaker_6", "en_speaker_0"),
        "de": ("de_speaker_1",),
        "fr": ("default",),
    }
    wanted = voices_by_language(prompts, ("en",), ("en_speaker_0",))
    assert wanted == {"en": ("en_speaker_0",)}
    with pytest.raises(ConfigError, match="no speaker prompt 'en_speaker_9'; there are: v2_en"):
        voices_by_language(prompts, ("en",), ("en_speaker_9",))


def test_a_prompt_outside_the_folder_or_in_a_broken_file_is_refused(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    table = tmp_path / "speaker_embeddings_path.json"
    table.write_text('{"en_x": {"fine_prompt": "../fine.npy"}}', encoding="utf-8")
    with pytest.raises(EngineError, match="is outside the folder"):
        read_prompts(tmp_path, LAYOUT)
    table.unlink()
    (tmp_path / "speaker_embeddings" / "de_broken.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(EngineMissing, match=r"no array in .*de_broken.npz"):
        read_prompts(tmp_path, LAYOUT)


@pytest.mark.parametrize(
    ("part", "tokens", "problem"),
    [
        ("semantic_prompt", np.array([[1]]), r"shape \(1, 1\); allowed: \(ids,\)"),
        ("semantic_prompt", np.array([50]), "semantic_prompt has a token outside 0 to 49"),
        ("coarse_prompt", np.zeros((8, 3), int), r"allowed: \(2, frames\)"),
        ("fine_prompt", np.zeros((8, 0), int), r"allowed: \(8, frames\)"),
        ("fine_prompt", np.full((8, 2), 32), "fine_prompt has a token outside 0 to 31"),
        ("fine_prompt", np.zeros((8, 2)), "whole numbers"),
    ],
)
def test_tokens_that_are_no_prompt_are_refused(part: str, tokens: np.ndarray, problem: str) -> None:
    with pytest.raises(EngineError, match=problem):
        checked("en_x", {**prompt_arrays(0), part: tokens}, LAYOUT)


def test_it_runs_in_a_worker_and_each_stage_has_settings() -> None:
    options = {"path": "a", "coarse": {"workers": 2, "batch": 8, "device": "cuda:1"}}
    profile = worker_profile("tts", "bark", options)
    assert profile is not None
    assert profile.environment["HF_HUB_OFFLINE"] == "1"
    with pytest.raises(ConfigError, match="workers"):
        worker_profile("tts", "bark", {"path": "a", "coarse": {"workers": 0}})
