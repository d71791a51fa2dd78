"""A Whisper with random weights: real tokens, an end, and words that depend on audio and seed."""

from json import dumps
from pathlib import Path

import numpy as np
import pytest
from ctranslate2 import StorageView
from ctranslate2.models import Whisper
from tokenizers import Tokenizer

from bench.measurements.material.random_whisper import ANSWER_TOKENS, build
from bench.measurements.material.whisper_tokens import whisper_tokens
from tests.shared import SHARED

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("whisper"), "tiny")


def transcribe(folder: Path, features: np.ndarray) -> list[str]:
    model = Whisper(str(folder), intra_threads=1, compute_type="int8")
    start = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    encoded = model.encode(StorageView.from_array(features))
    return list(model.generate(encoded, [start], beam_size=1)[0].sequences[0])


def test_other_audio_gives_other_words_and_the_output_ends(folder: Path) -> None:
    random = np.random.default_rng(1)
    first, second = (
        transcribe(folder, random.standard_normal((1, 80, 400), np.float32)) for _ in range(2)
    )
    assert (len(first), len(second)) == (ANSWER_TOKENS, ANSWER_TOKENS)
    assert first != second


def test_a_size_has_its_real_number_of_mels_and_languages(folder: Path) -> None:
    model = Whisper(str(folder), intra_threads=1)
    assert (model.is_multilingual, model.n_mels) == (True, 80)
    silence = StorageView.from_array(np.zeros((1, 80, 400), np.float32))
    assert len(model.detect_language(silence)[0]) == 99


def test_special_tokens_have_their_real_ids(folder: Path) -> None:
    file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    names = {"<|startoftranscript|>": 50258, "<|su|>": 50357, "<|notimestamps|>": 50363}
    assert {name: file.token_to_id(name) for name in names} == names
    assert file.token_to_id("<|30.00|>") == 51864


def test_a_text_survives_tokenisation(folder: Path) -> None:
    file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in (" Hello there, world!", " Grüße 你好 🙂"):
        assert file.decode(file.encode(text).ids) == text
    if SHARED is not None:
        assert file.encode(" Hello there").ids == [2425, 456]


def test_the_vocabulary_is_made_up_without_a_token_table(tmp_path: Path) -> None:
    table = whisper_tokens(tmp_path, has_cantonese=True)
    assert len(table.vocabulary) == len(set(table.vocabulary)) == 51_866
    file = Tokenizer.from_str(dumps(table.tokenizer))
    assert file.decode(file.encode(" tea at noon").ids) == " tea at noon"
    assert max(file.encode(" tea at noon").ids) > 255
