"""The decision whether text of a short window is trusted, and weights that are known for it."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engines.asr.faster_whisper import fingerprint, is_measured
from engines.asr.whisper.short_windows import (
    doubles_words,
    max_trusted_tokens,
    repeats_itself,
    short_window_outcome,
)
from engines.asr.whisper.temperature_fallback import FallbackThresholds, WindowResult
from tests.engines.nano import NANO

LIMITS = FallbackThresholds(compression_ratio=2.4, log_prob=-1.0, no_speech=0.6)
CLEAN = WindowResult(tuple(range(8)), " turn on the lamp", -0.3, 0.8, 0.1, 0.0, 0.9)


@pytest.mark.parametrize(("duration_s", "tokens"), [(0, 10), (1.0, 17), (2.5, 27), (20.0, 150)])
def test_longer_audio_may_have_more_text(duration_s: float, tokens: int) -> None:
    assert max_trusted_tokens(duration_s) == tokens


@pytest.mark.parametrize(
    ("tokens", "repeats"),
    [
        ([], False),
        ([1], False),
        ([1, 1], False),
        ([1, 2, 3], False),
        ([1, 2, 1, 2], True),
        ([1, 2, 3, 9, 1, 2, 3], True),
        ([1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 7, 8], False),
        ([9, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 8], True),
        ([8, 9, 1, 2, 3, 1, 2, 3], True),
        ([8, 9, 1, 2, 1, 2], False),
        (list(range(40)), False),
    ],
    ids=[
        "nothing",
        "one token",
        "a word twice",
        "three tokens",
        "all twice",
        "all twice with a comma",
        "two clauses with the same beginning",
        "five tokens twice",
        "the end twice",
        "two tokens twice",
        "a sentence",
    ],
)
def test_repeated_text_is_found(tokens: list[int], repeats: bool) -> None:
    assert repeats_itself(tokens) is repeats


@pytest.mark.parametrize(
    ("text", "doubles"),
    [
        ("", False),
        ("Stop.", False),
        ("3 3", True),
        ("Turn it on. turn it on", True),
        ("Select speech, then click New Project. Then click New Project.", True),
        ("And here are some more words, words.", False),
        ("Turn on the lamp and turn on the radio.", False),
        ("Two and two", False),
    ],
)
def test_doubled_words_are_found_whatever_their_case_and_marks(text: str, doubles: bool) -> None:
    assert doubles_words(text) is doubles


def test_a_sentence_that_is_doubled_with_a_capital_letter_is_doubtful() -> None:
    doubled = replace(CLEAN, text=" then click save. Then click save.")
    assert short_window_outcome(doubled, range(8), LIMITS, 5.0) == "repeated"


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (CLEAN, "accepted"),
        (replace(CLEAN, tokens=tuple(range(23))), "accepted"),
        (replace(CLEAN, tokens=tuple(range(24))), "too_long"),
        (replace(CLEAN, tokens=(1, 2, 3, 1, 2, 3)), "repeated"),
        (replace(CLEAN, compression_ratio=2.5), "repeated"),
        (replace(CLEAN, text=" "), "empty"),
        (replace(CLEAN, avg_logprob=-1.01), "unsure"),
        (replace(CLEAN, no_speech_prob=0.61), "no_speech"),
        (replace(CLEAN, no_speech_prob=0.61, avg_logprob=-1.01), "unsure"),
    ],
)
def test_each_doubt_has_its_reason(result: WindowResult, outcome: str) -> None:
    assert short_window_outcome(result, result.tokens, LIMITS, 2.0) == outcome


GAMMA = b"decoder/layer_norm/gamma\0"


def weights(file: Path, values: np.ndarray, code: int, variable: bytes = GAMMA) -> Path:
    """Writes one variable in CTranslate2's form, after something else."""
    content = values.tobytes()
    header = struct.pack("<BIBI", 1, len(values), code, len(content))
    file.write_bytes(b"header" + variable + header + content)
    return file


def test_weights_are_recognised_in_each_number_type_that_keeps_them(tmp_path: Path) -> None:
    values = np.linspace(0.5, 2, 64, dtype="<f2")
    half = fingerprint(weights(tmp_path / "half", values, 4))
    single = fingerprint(weights(tmp_path / "single", values.astype("<f4"), 0))
    trained = fingerprint(weights(tmp_path / "trained", values * np.float16(1.01), 4))
    assert half is not None
    assert half == single != trained


def test_other_files_are_no_measured_weights(tmp_path: Path) -> None:
    values = np.ones(8, "<f2")
    others = {
        "another number type": weights(tmp_path / "a", values, 5),
        "another variable": weights(tmp_path / "b", values, 4, b"encoder/x\0"),
        "another length": weights(tmp_path / "c", values, 0),
        "no file": tmp_path / "d",
        "ends too early": tmp_path / "e",
        "empty": tmp_path / "f",
    }
    others["ends too early"].write_bytes(GAMMA + b"\1")
    others["empty"].write_bytes(b"")
    assert {name: fingerprint(file) for name, file in others.items()} == dict.fromkeys(others)
    assert not is_measured(NANO / "model.bin")
