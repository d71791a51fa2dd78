"""Keyword spotters of sherpa-onnx: phrases as tokens, detections, refused models. The model
recognises tones, so nothing here says how well a trained one understands people."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.audio import Pcm, samples_to_ms
from core.errors import ConfigError, EngineMissing
from engines.asr.sherpa.model_folder import read_model
from engines.base.wake import WakeWordDetection, WakeWordEngine, stop_words, wake_words
from engines.registry import available, load
from engines.wake.sherpa.keywords import KeywordWriter, name_of
from tests.conftest import require
from tests.engines.asr.sherpa.tone_models import (
    end_ms,
    have_sherpa,
    say,
    streaming_ctc,
    streaming_transducer,
)

pytestmark = pytest.mark.live

STEP_MS = 320
"The toy model's step: a word can be reported so much after the sound that it needs."
WORDS: dict[str, Any] = {"words": ["turn on", "the light"], "stop_words": ["turn off"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")
    return streaming_transducer(tmp_path_factory.mktemp("spotter"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> WakeWordEngine:
    return load("wake", "sherpa", {"model": str(folder), **WORDS})


def spotted(
    engine: WakeWordEngine, pcm: Pcm, *names: str, frame: int = 320
) -> list[WakeWordDetection]:
    stream = engine.open(names)
    frames = [pcm[at : at + frame] for at in range(0, len(pcm), frame)]
    return [found for part in frames for found in stream.push(part)]


def test_typed_phrases_are_words_and_stop_words(engine: WakeWordEngine) -> None:
    named = {word.name: word.phrase for word in wake_words(engine)}
    assert named == {"turn_on": "turn on", "the_light": "the light"}
    assert [word.name for word in stop_words(engine)] == ["turn_off"]


def test_a_phrase_is_detected_once_with_its_end(engine: WakeWordEngine) -> None:
    pcm = np.concatenate([say("light off on", tail_ms=300), say("turn on the", tail_ms=800)])
    (found,) = spotted(engine, pcm, "turn_on")
    begin_ms = samples_to_ms(len(say("light off on", tail_ms=300)), 16_000)
    assert found.name == "turn_on"
    assert abs(samples_to_ms(found.word_end, 16_000) - begin_ms - end_ms(2)) <= 100
    late_ms = samples_to_ms(found.position, 16_000) - begin_ms - end_ms(2)
    assert 0 <= late_ms <= STEP_MS + 150


def test_only_the_words_that_were_asked_for_are_detected(engine: WakeWordEngine) -> None:
    pcm = say("turn on the light turn off", tail_ms=800)
    assert [one.name for one in spotted(engine, pcm, "turn_off")] == ["turn_off"]
    assert [one.name for one in spotted(engine, pcm, "the_light", "turn_on")] == [
        "turn_on",
        "the_light",
    ]
    assert spotted(engine, say("on the off light", tail_ms=800), "turn_on", "turn_off") == []


def test_positions_begin_again_after_a_reset_and_do_not_depend_on_frames(
    engine: WakeWordEngine,
) -> None:
    pcm = say("turn off", tail_ms=800)
    stream = engine.open(["turn_off"])
    (first,) = stream.push(pcm)
    stream.reset()
    (second,) = stream.push(pcm)
    assert first == second
    assert stream.push(pcm[:0]) == ()
    for frame in (77, 320, 1024):
        (small,) = spotted(engine, pcm, "turn_off", frame=frame)
        assert small.word_end == first.word_end
        assert abs(small.position - first.position) <= 320
    stream.reset()
    assert stream.push(say("turn")) == ()
    stream.reset()  # half of a phrase is forgotten
    assert stream.push(say("off", tail_ms=800)) == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": ["open sesame"]}, "'open sesame' cannot be written with the tokens of"),
        ({"words": [{"phrase": "x", "tokens": "▁turn ▁nope"}]}, "there is none for '▁nope'"),
        ({"words": [{"phrase": "x", "tokens": "▁turn #0.1"}]}, "there is none for '#0.1'"),
        ({"words": ["turn on"], "stop_words": ["Turn-on"]}, "turn_on is named more than once"),
        ({"words": ["!"]}, "the phrase '!' has no letters"),
        ({}, "`words` has no phrase"),
        ({"words": ["turn on"], "threshold": 2}, "threshold"),
    ],
)
def test_what_cannot_be_spotted_is_named(
    options: dict[str, Any], message: str, folder: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load("wake", "sherpa", {"model": str(folder), **options})
    assert message in str(caught.value)


def test_a_folder_without_a_spotter_is_refused_before_the_library_sees_it(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="keywords need a streaming transducer"):
        load("wake", "sherpa", {"model": str(streaming_ctc(tmp_path / "ctc")), **WORDS})
    with pytest.raises(EngineMissing, match="wake engine 'sherpa': there is no folder"):
        load("wake", "sherpa", {"model": str(tmp_path / "nowhere"), **WORDS})
    with pytest.raises(EngineMissing, match="needs `model` and `words`"):
        load("wake", "sherpa", WORDS)


def test_a_model_of_which_the_library_dies_is_an_error_and_no_end(tmp_path: Path) -> None:
    """The notes are as they should be, but say something else than the network does."""
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")
    model = streaming_transducer(tmp_path / "wrong", num_encoder_layers="1,1")
    with pytest.raises(ConfigError, match=f"sherpa-onnx refuses the model in {model}"):
        load("wake", "sherpa", {"model": str(model), **WORDS})


def test_auto_does_not_choose_it_without_a_model() -> None:
    (found,) = (one for one in available("wake") if one.name == "sherpa")
    assert not found.installed or found.needs_path


# Phrases as tokens. The library is not needed.


def writer(folder: Path, tokens: str, **files: str) -> KeywordWriter:
    """Returns the writer of a model with these tokens. `files`: further ones, `__` stands for the
    dot."""
    for file in folder.glob("bpe.*"):
        file.unlink()
    lines = [f"{token} {number}" for number, token in enumerate(("<blk>", *tokens.split()))]
    (folder / "tokens.txt").write_text("\n".join([*lines, "#0 90", "#1 91"]), encoding="utf-8")
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="utf-8")
    return KeywordWriter(read_model(folder))


def test_phrases_are_written_by_pieces_phonemes_or_characters(tmp_path: Path) -> None:
    require(have_sherpa(), "onnx is not installed")
    folder = streaming_transducer(tmp_path)
    pieces = "▁HEY\t-3\n▁HE\t-2\nY\t-4\n▁J\t-3\nAR\t-3\nVIS\t-5\nA\t-1\n▁SI\t-1\n"
    spelled = writer(folder, "▁HE Y ▁J AR VIS A ▁SI", bpe__vocab=pieces)
    assert spelled.written("hey jarvis") == ("▁HE", "Y", "▁J", "AR", "VIS")
    assert spelled.written("x", "▁SI A") == ("▁SI", "A")
    with pytest.raises(ConfigError, match="there is none for 'R', 'I'"):
        spelled.written("siri")
    signs = writer(folder, "小 爱 同 学 的")
    assert signs.written("小爱同学") == ("小", "爱", "同", "学")
    spoken = writer(folder, "HH EY1 S T AA1 P", en__phone="HEY HH EY1\nSTOP S T AA1 P\n")
    assert spoken.written("hey stop") == ("HH", "EY1", "S", "T", "AA1", "P")
    with pytest.raises(ConfigError, match="has no word 'jarvis'; write its `tokens` yourself"):
        spoken.written("hey jarvis")


def test_names_of_phrases() -> None:
    assert name_of("Sei still!") == "sei_still"
    assert name_of("小爱同学") == "小爱同学"
