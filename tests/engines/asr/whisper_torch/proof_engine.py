"""The engine as a worker uses it: it fulfils the contract and gives the text of
`faster_whisper`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, silence
from core.errors import ConfigError, EngineError, EngineMissing, RequestError
from engines.asr.whisper_torch.engine import WhisperTorch
from engines.base import AsrItem, AsrModel, AsrOptions, AsrResult, ConcurrentAsrModel
from engines.registry import load
from tests.engines import asr_contract as contract
from tests.engines.asr.whisper_torch import checkpoints
from tests.engines.asr.whisper_torch.driver import clips
from tests.engines.nano import NANO

pytestmark = pytest.mark.live

PATIENCE_S = 30

CONTRACT = (
    contract.hears_words,
    contract.takes_an_empty_batch,
    contract.utterances_at_once_keep_their_words,
    contract.cancelled_utterance_leaves_nothing_behind,
)

OPTIONS = {
    "bare": AsrOptions("en"),
    "beam": AsrOptions("en", beam_size=5),
    "segments": AsrOptions("en", timestamps="segment"),
    "words": AsrOptions("en", timestamps="word"),
    "prompt": AsrOptions("en", prompt="turn on the lights"),
    "whole window": AsrOptions("en", padding="max"),
    "log probabilities": AsrOptions("en", token_logprobs=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.nano(tmp_path_factory.mktemp("nano"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[WhisperTorch]:
    model = load("asr", "whisper_torch", {"model": str(folder), "max_batch": 6})
    assert isinstance(model, WhisperTorch)
    yield model
    model.close()


@pytest.fixture(scope="module")
def other(folder: Path) -> Iterator[AsrModel]:
    model = load("asr", "faster_whisper", {"model": str(NANO), "compute_type": "float32"})
    yield model
    model.close()


def items(options: AsrOptions) -> list[AsrItem]:
    return [AsrItem(f"utt_{i}", pcm, True, options) for i, pcm in enumerate(clips())]


@pytest.mark.parametrize("test", CONTRACT)
def test_the_engine_fulfils_the_contract(engine: WhisperTorch, test: Any) -> None:
    test(engine)


@pytest.mark.parametrize(
    "pcm", [contract.NO_AUDIO, silence(10, ASR_RATE_HZ), silence(2000, 16_000)]
)
def test_silence_gives_no_text(engine: WhisperTorch, pcm: Any) -> None:
    contract.hears_nothing_in_nothing(engine, pcm)


@pytest.mark.parametrize("name", OPTIONS)
def test_results_equal_those_of_faster_whisper(
    engine: WhisperTorch, other: AsrModel, name: str
) -> None:
    ours, theirs = (model.decode(items(OPTIONS[name])) for model in (engine, other))
    for mine, its in zip(ours, theirs, strict=True):
        assert plain(mine) == plain(its)
        assert mine.confidence == pytest.approx(its.confidence, abs=0.01)
        assert [t.data for t in mine.tokens] == [t.data for t in its.tokens]
        logprobs = [token.logprob for token in its.tokens]
        assert [token.logprob for token in mine.tokens] == pytest.approx(logprobs, abs=0.01)


def plain(result: AsrResult) -> Any:
    segments = [(s.text, s.start_ms, s.end_ms, s.tokens) for s in result.segments]
    words = [(w.text, w.start_ms, w.end_ms) for w in result.words]
    return result.text, result.language, result.is_rejected, segments, words


def test_noise_is_tried_at_every_temperature_and_rejected(engine: WhisperTorch) -> None:
    random = np.random.default_rng(3)
    noise = (random.standard_normal(32_000) * 4000).astype(np.int16)
    options = AsrOptions("en", temperatures=(0.0, 0.6, 1.0))
    once, again = (engine.decode([AsrItem("noise", noise, True, options)])[0] for _ in range(2))
    assert plain(once) == plain(again)
    assert once.text == ""


def test_calls_overlap_and_a_cancelled_one_gives_no_result(engine: WhisperTorch) -> None:
    assert isinstance(engine, ConcurrentAsrModel)
    told, slow = Event(), list[Any]()
    long = items(replace(OPTIONS["beam"], padding="max"))
    cancel = engine.begin(long, slow.append)
    engine.begin(items(OPTIONS["bare"])[:1], lambda _: told.set())
    cancel()
    cancel()
    assert told.wait(PATIENCE_S)
    engine.decode(items(OPTIONS["bare"]))
    engine.decode([])
    assert slow == []
    assert not engine._device_thread._rows.slot_ranges


def test_a_wrong_call_fails_alone(engine: WhisperTorch) -> None:
    told, found = Event(), list[Any]()

    def done(results: Any) -> None:
        found.append(results)
        told.set()

    engine.begin(items(OPTIONS["bare"]), done)
    with pytest.raises(EngineError, match="allowed: up to"):
        engine.decode([AsrItem("long", np.ones(480_000, np.int16), True)])
    with pytest.raises(RequestError, match="startoftranscript"):
        engine.decode([AsrItem("odd", clips()[0], True, AsrOptions(prefix="hello"))])
    assert told.wait(PATIENCE_S)
    assert next(result.text for result in found[0]) == "turn on the kitchen lights"


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"model": "/nowhere"}, EngineMissing, "no config.json, tokenizer.json, model.safetensors"),
        ({"device": "cuda"}, ConfigError, "torch sees no GPU"),
        ({"compute_type": "int4"}, ConfigError, "compute_type"),
        ({"device": "cpu", "compute_type": "float16"}, ConfigError, "is for GPUs"),
        ({"beam_size": 9}, ConfigError, "beam_size"),
        ({"warm_up_s": 61}, ConfigError, "warm_up_s"),
    ],
)
def test_impossible_options_are_refused_with_the_reason(
    folder: Path, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        load("asr", "whisper_torch", {"model": str(folder), **options})
