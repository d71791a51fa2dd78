"""Punctuation after recognition, with the real library: marks in final results only, words that
never change, and files that the library would end its process for."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from engines.asr.sherpa import Settings, create, describe
from engines.asr.sherpa.punctuation import with_marks
from engines.base import AsrItem, AsrModel
from serving.placement.sherpa import with_folder
from tests.conftest import require
from tests.engines.asr.sherpa.tone_models import (
    have_sherpa,
    offline_tdt,
    punctuation,
    say,
    streaming_ctc,
)

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def _library() -> None:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")


def _settings(model: Path, marks: Path) -> Settings:
    return Settings(model=str(model), threads=1, punctuation=str(marks))


def _decoded(model: AsrModel, words: str, *, is_final: bool) -> str:
    (result,) = model.decode([AsrItem("item_1", say(words, tail_ms=1000), is_final)])
    assert [one.text for one in result.segments] == [result.text]
    return result.text


def test_final_results_have_marks_and_partial_ones_have_none(tmp_path: Path) -> None:
    streaming = tmp_path / "streaming"
    streaming.mkdir()
    settings = _settings(streaming_ctc(streaming), punctuation(tmp_path / "marks"))
    model = create(settings)
    assert model.info == describe(settings)
    words = "turn on the light turn off"
    assert _decoded(model, words, is_final=False) == words
    assert _decoded(model, words, is_final=True) == "turn on, the light. turn off."
    (silence,) = model.decode([AsrItem("item_2", say(""), True)])
    assert silence.text == ""
    model.forget("item_1")
    model.close()


def test_models_of_whole_utterances_have_it_too(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    model = create(_settings(offline_tdt(whole), punctuation(tmp_path / "marks")))
    assert _decoded(model, "turn off the light", is_final=True) == "turn off the light."


@pytest.mark.parametrize(
    ("text", "marked", "expected"),
    [
        ("how are you", "how are you？", "how are you?"),
        ("yes i am", "yes，i am。", "yes, i am."),
        ("don't", "don't。", "don't."),
        ("你好吗", "你好吗？", "你好吗？"),
        ("one two", "one。", "one two"),  # the library lost a word
        ("one two", "", "one two"),
    ],
)
def test_the_words_stay_as_they_were(text: str, marked: str, expected: str) -> None:
    assert with_marks(text, marked) == expected


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ({"vocab_size": "7"}, "has 6 tokens, and its vocab_size is 7"),
        ({"unk_symbol": "<other>"}, "unk_symbol '<other>' is no token"),
        ({"punctuations": "_|，|。|？"}, "lacks the marks 、"),
        ({"punctuations": "_|，|。|？|、"}, "has 5 marks, and its network gives 6"),
    ],
)
def test_a_file_that_would_end_the_process_is_refused(
    notes: dict[str, str], why: str, tmp_path: Path
) -> None:
    streaming = tmp_path / "streaming"
    streaming.mkdir()
    settings = _settings(streaming_ctc(streaming), punctuation(tmp_path / "marks", **notes))
    for opened in (describe, create):
        with pytest.raises(ConfigError, match=f"is no model for punctuation: .*{why}"):
            opened(settings)


def test_other_folders_are_refused_and_names_are_found(tmp_path: Path) -> None:
    streaming = tmp_path / "streaming"
    streaming.mkdir()
    streaming_ctc(streaming)
    with pytest.raises(ConfigError, match=r"punctuation: .*none holds no \.onnx file"):
        describe(_settings(streaming, tmp_path / "none"))
    with pytest.raises(ConfigError, match="lacks the notes tokens, vocab_size, punctuations"):
        describe(_settings(streaming, streaming))
    options = with_folder({"model": "streaming", "punctuation": "marks"}, tmp_path)
    assert options["punctuation"] == str(tmp_path / "marks")
