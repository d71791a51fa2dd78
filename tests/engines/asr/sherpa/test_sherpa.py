"""The engine with the real library and models of tones: words, times, batches, hot words."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from core.audio import Pcm
from core.errors import ConfigError
from engines.asr.sherpa import Settings, create, describe
from engines.base import AsrItem, AsrModel, AsrOptions, AsrResult
from tests.conftest import require
from tests.engines.asr.sherpa.tone_models import (
    GAP_MS,
    WORD_MS,
    end_ms,
    have_sherpa,
    offline_ctc,
    offline_tdt,
    say,
    streaming_ctc,
    streaming_nemo,
    streaming_transducer,
)

pytestmark = pytest.mark.live

Builder = Callable[[Path], Path]
STREAMING: Sequence[Builder] = (streaming_ctc, streaming_transducer, streaming_nemo)
OFFLINE: Sequence[Builder] = (
    offline_ctc,
    lambda folder: offline_ctc(folder, "wenet_ctc"),
    offline_tdt,
)
SENTENCES = ("turn on", "turn off the light", "the light off", "on", "turn on the light")
PLAIN = AsrOptions()
WITH_WORDS = AsrOptions(timestamps="word")


@pytest.fixture(autouse=True)
def _library() -> None:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")


def load(folder: Path, **settings: object) -> AsrModel:
    return create(Settings(model=str(folder), threads=1, **settings))  # type: ignore[arg-type]


def part(model: AsrModel, pcm: Pcm, ms: int, options: AsrOptions = PLAIN) -> str:
    (result,) = model.decode([AsrItem("item_1", pcm[: 16 * ms], False, options)])
    return result.text


def final(
    model: AsrModel, pcm: Pcm, options: AsrOptions = PLAIN, utterance: str = "item_1"
) -> AsrResult:
    (result,) = model.decode([AsrItem(utterance, pcm, True, options)])
    return result


@pytest.mark.parametrize("build", [*STREAMING, *OFFLINE])
def test_a_batch_has_the_words_of_each_utterance(build: Builder, tmp_path: Path) -> None:
    model = load(build(tmp_path))
    items = [AsrItem(f"item_{text}", say(text), True) for text in SENTENCES]
    assert [result.text for result in model.decode(items)] == list(SENTENCES)
    assert [result.text for result in model.decode(items[:1])] == ["turn on"]
    assert model.decode([]) == []


@pytest.mark.parametrize("build", [*STREAMING, *OFFLINE])
def test_words_have_their_times(build: Builder, tmp_path: Path) -> None:
    result = final(load(build(tmp_path)), say("turn off"), WITH_WORDS)
    assert [word.text for word in result.words] == ["turn", "off"]
    starts = [word.start_ms for word in result.words]
    assert starts == pytest.approx([300, 300 + WORD_MS + GAP_MS], abs=80)
    assert all(0 < word.confidence <= 1 for word in result.words)
    assert all(one.start_ms < one.end_ms <= 960 for one in result.words)
    (segment,) = result.segments
    assert (segment.text, segment.start_ms) == ("turn off", result.words[0].start_ms)


@pytest.mark.parametrize("build", STREAMING)
def test_words_appear_in_the_step_that_completes_them(build: Builder, tmp_path: Path) -> None:
    """The steps and the lag of `AsrInfo` are true: between two steps no word changes, and all words
    that ended before the lag are there."""
    model, pcm = load(build(tmp_path), emission_ms=0), say("turn on the light", tail_ms=1000)
    steps = model.info.steps
    assert model.info.is_incremental
    assert steps is not None
    text, decoded_ms, changes = "", 0.0, 0
    for ms in range(20, len(pcm) // 16, 20):
        new_text = part(model, pcm, ms)
        if new_text != text:
            assert steps.decoded_ms(ms) > decoded_ms
            changes += 1
        text, decoded_ms = new_text, steps.decoded_ms(ms)
        complete = sum(end_ms(count) <= decoded_ms - model.info.lag_ms for count in range(1, 5))
        assert text.split()[:complete] == ["turn", "on", "the", "light"][:complete]
    assert changes > 1
    assert text == "turn on the light"


@pytest.mark.parametrize("build", STREAMING)
def test_the_last_word_needs_no_audio_after_it(build: Builder, tmp_path: Path) -> None:
    model, pcm = load(build(tmp_path)), say("turn on the light")
    pcm = pcm[: -16 * GAP_MS]
    assert part(model, pcm, len(pcm) // 16) != "turn on the light"
    assert final(model, pcm).text == "turn on the light"


@pytest.mark.parametrize("build", STREAMING)
def test_the_result_does_not_depend_on_what_is_kept(build: Builder, tmp_path: Path) -> None:
    """Utterances beyond the limit, forgotten ones, and ones whose audio shrank begin again."""
    model, pcm = load(build(tmp_path), open_utterances=1), say("turn on the light")
    for utterance in ("item_1", "item_2"):
        model.decode([AsrItem(utterance, pcm[:16000], False)])
    assert final(model, pcm).text == "turn on the light"
    model.decode([AsrItem("item_3", say("off off off"), False)])
    model.forget("item_3")
    assert final(model, pcm, utterance="item_3").text == "turn on the light"
    model.decode([AsrItem("item_4", say("off off off off"), False)])
    assert final(model, say("turn on"), utterance="item_4").text == "turn on"


def test_equal_utterances_in_one_batch_do_no_harm(tmp_path: Path) -> None:
    model, pcm = load(streaming_ctc(tmp_path)), say("turn on", tail_ms=800)
    texts = [result.text for result in model.decode([AsrItem("item_1", pcm, False)] * 2)]
    assert texts == ["turn on", "turn on"]


def test_each_utterance_has_a_language_of_its_own(tmp_path: Path) -> None:
    model = load(streaming_nemo(tmp_path))
    assert model.info.languages == ("en", "de")
    items = [
        AsrItem("item_1", say("turn off"), True, AsrOptions("en")),
        AsrItem("item_2", say("turn off"), True, AsrOptions("de")),
        AsrItem("item_3", say("turn off"), True),
    ]
    results = model.decode(items)
    assert [one.text for one in results] == ["turn off", "schalte aus", "turn off"]
    assert [one.language for one in results] == ["en", "de", "en"]


def test_hot_words_belong_to_one_utterance(tmp_path: Path) -> None:
    """A word too faint to be written is written where it is expected."""
    settings = {"decoding": "modified_beam_search", "hotwords_score": 8}
    model = load(streaming_transducer(tmp_path), **settings)
    assert "hotwords" in model.info.supports
    faint = (say("off", lead_ms=0) * 0.005).astype(np.int16)
    pcm = np.concatenate([say("turn"), faint])
    hotwords = ("", "the light, turn off", "turn on")
    items = [AsrItem(f"item_{one}", pcm, True, AsrOptions(hotwords=one)) for one in hotwords]
    assert [result.text for result in model.decode(items)] == ["turn", "turn off", "turn"]


@pytest.mark.parametrize(
    "hotwords", ["nope", "turn :x", "turn #", "a @b", "::", "/", "\n", "light :2.0", "ü 灯 🙂"]
)
def test_no_hot_word_ends_the_process(hotwords: str, tmp_path: Path) -> None:
    model = load(streaming_transducer(tmp_path), decoding="modified_beam_search")
    assert final(model, say("turn on"), AsrOptions(hotwords=hotwords)).text == "turn on"


@pytest.mark.parametrize("build", [*STREAMING, *OFFLINE])
@pytest.mark.parametrize("samples", [0, 1, 320, 1599, 1600])
def test_short_audio_has_no_words(build: Builder, samples: int, tmp_path: Path) -> None:
    model = load(build(tmp_path))
    assert part(model, np.zeros(samples, np.int16), 1000) == ""
    result = final(model, np.zeros(samples, np.int16))
    assert (result.text, result.confidence, result.language) == ("", 0.0, "en")


def test_models_without_small_letters_write_small_letters(tmp_path: Path) -> None:
    folder = streaming_transducer(tmp_path)
    for file in (folder / "tokens.txt", folder / "bpe.vocab"):
        text = file.read_text(encoding="utf-8").upper().replace("<BLK>", "<blk>")
        file.write_text(text, encoding="utf-8")
    model = load(folder, decoding="modified_beam_search")
    result = final(model, say("turn on"), AsrOptions(hotwords="off", timestamps="word"))
    assert (result.text, [word.text for word in result.words]) == ("turn on", ["turn", "on"])


@pytest.mark.parametrize("build", [*STREAMING, *OFFLINE])
def test_a_model_is_described_without_the_library(build: Builder, tmp_path: Path) -> None:
    assert describe(Settings(model=str(build(tmp_path)))) == load(tmp_path, max_batch=32).info


def test_damage_that_only_the_library_sees_is_a_wrong_configuration(tmp_path: Path) -> None:
    folder = streaming_ctc(tmp_path)
    file = folder / "model.int8.onnx"
    file.write_bytes(file.read_bytes().replace(b"LogSoftmax", b"LogSoftmix"))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load(folder)
