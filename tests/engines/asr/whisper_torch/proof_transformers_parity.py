"""Tokens equal those of transformers' `generate`, in float32 on a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from core.audio import Pcm
from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.network.device import DeviceModel
from engines.asr.whisper_torch.network.encoder import encode
from engines.asr.whisper_torch.network.features import mel_filters
from tests.engines.asr.whisper_torch import checkpoints
from tests.engines.asr.whisper_torch.driver import (
    Wish,
    answers,
    clips,
    encoded_windows,
    mel,
    opened,
)

pytestmark = pytest.mark.live

MOST = 20
"The limit of an answer, in tokens."


@dataclass(frozen=True, slots=True)
class Pair:
    """Both models with the same weights."""

    ours: DeviceModel
    theirs: Any
    is_multilingual: bool

    def start(self, *, timed: bool, language: int = 0, prompt: Sequence[int] = ()) -> list[int]:
        special = self.ours.special
        start = [special.start]
        if self.is_multilingual:
            tasks = self.theirs.generation_config.task_to_id
            start += [special.languages[language], tasks["transcribe"]]
        before = [special.no_timestamps - 2, *prompt] if prompt else []
        return [*before, *start, *([] if timed else [special.no_timestamps])]


@pytest.fixture(scope="module", params=["nano", "random of 128 mels", "random of 80 mels"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("checkpoint")
    if request.param == "nano":
        checkpoints.nano(folder)
    elif "128" in request.param:
        checkpoints.random(folder, mels=128)
    else:
        checkpoints.random(folder, mels=80, layers=2, width=192)
    return Pair(opened(folder), loaded(folder), request.param != "nano")


@pytest.fixture(scope="module")
def sounds() -> list[Pcm]:
    random = np.random.default_rng(1)
    noise = (random.standard_normal(40_000) * 3000).astype(np.int16)
    return [*clips()[:2], noise]


@pytest.fixture(scope="module")
def encoded(pair: Pair, sounds: list[Pcm]) -> list[torch.Tensor]:
    return encoded_windows(pair.ours, [mel(pair.ours, pcm) for pcm in sounds])


def said(
    pair: Pair,
    window: torch.Tensor,
    *,
    timed: bool,
    beams: int,
    start: Sequence[int],
    most: int = MOST,
) -> tuple[int, ...]:
    """Returns transformers' answer."""
    config = pair.theirs.generation_config
    options: dict[str, Any] = {"return_timestamps": timed, "num_beams": beams}
    where = start.index(pair.ours.special.start)
    if where:
        options["prompt_ids"] = torch.tensor(start[:where])
    if pair.is_multilingual:
        code = {token: code for code, token in config.lang_to_id.items()}[start[where + 1]]
        options |= {"language": code.strip("<|>"), "task": "transcribe"}
    with torch.inference_mode(), pytest.raises(_Said) as caught:
        pair.theirs.generate(window[None], max_new_tokens=most, **options)
    end = pair.ours.special.end
    tokens: list[int] = caught.value.args[0]
    return tuple(tokens[: tokens.index(end)] if end in tokens else tokens)


class _Said(Exception):
    """Carries the tokens of transformers' decoder for the first window; with timestamps `generate`
    would continue at the last of them."""


def first_window_only(model: Any) -> Any:
    decode = model.generate_with_fallback

    def decoded(*arguments: Any, **options: Any) -> None:
        raise _Said(decode(*arguments, **options)[0][0].tolist())

    model.generate_with_fallback = decoded
    return model


def loaded(folder: Path) -> Any:
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return first_window_only(model.eval())


@pytest.mark.parametrize("mels", [80, 128])
def test_filters_equal_those_of_transformers(mels: int) -> None:
    theirs = WhisperFeatureExtractor(feature_size=mels).mel_filters
    assert np.abs(mel_filters(mels) - theirs.T).max() < 1e-7


def test_features_equal_those_of_transformers(pair: Pair, sounds: list[Pcm]) -> None:
    extractor = WhisperFeatureExtractor(feature_size=pair.ours.shape.mels)
    for pcm in sounds:
        theirs = extractor(pcm.astype(np.float32) / 32768, sampling_rate=16_000)
        ours = mel(pair.ours, pcm).numpy()
        assert np.abs(ours - theirs.input_features[0]).max() < 1e-5


def test_the_encoder_equals_that_of_transformers(pair: Pair, sounds: list[Pcm]) -> None:
    window = mel(pair.ours, sounds[0])[None]
    with torch.inference_mode():
        ours = encode(pair.ours.weights.encoder, window)
        theirs = pair.theirs.model.encoder(window).last_hidden_state
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("prompted", [False, True], ids=["bare", "prompted"])
@pytest.mark.parametrize("timed", [False, True], ids=["text", "timestamps"])
@pytest.mark.parametrize("beams", [1, 5])
def test_answers_equal_those_of_transformers(
    pair: Pair,
    sounds: list[Pcm],
    encoded: list[torch.Tensor],
    beams: int,
    timed: bool,
    prompted: bool,
) -> None:
    """All clips are in one batch here, and one after the other there."""
    prompt = range(300, 330) if prompted else ()
    start = pair.start(timed=timed, prompt=list(prompt), language=3)
    new = NewRow(tuple(start), len(start) + MOST, is_timed=timed, beam_size=beams)
    windows = [mel(pair.ours, pcm) for pcm in sounds]
    wishes = [Wish(index, new) for index in range(len(sounds))]
    ours = answers(pair.ours, encoded, wishes)
    for index, window in enumerate(windows):
        theirs = said(pair, window, timed=timed, beams=beams, start=start)
        assert ours[index].tokens == theirs, index


@pytest.mark.parametrize(("beams", "timed"), [(1, True), (5, False)])
def test_long_answers_equal_those_of_transformers(
    pair: Pair, sounds: list[Pcm], encoded: list[torch.Tensor], beams: int, timed: bool
) -> None:
    """They cross the end of the first bucket of 64 tokens."""
    start, most = pair.start(timed=timed), 72
    new = NewRow(tuple(start), len(start) + most, is_timed=timed, beam_size=beams)
    ours = answers(pair.ours, encoded[2:], [Wish(0, new)])[0].tokens
    window = mel(pair.ours, sounds[2])
    assert ours == said(pair, window, timed=timed, beams=beams, start=start, most=most)
    assert len(ours) == most or not pair.is_multilingual


def test_languages_equal_those_of_transformers(
    pair: Pair, sounds: list[Pcm], encoded: list[torch.Tensor]
) -> None:
    if not pair.is_multilingual:
        assert pair.ours.special.languages == ()
        return
    for pcm, one in zip(sounds, encoded, strict=True):
        window = mel(pair.ours, pcm)
        with torch.inference_mode():
            ours = pair.ours.languages(one)
            theirs = int(pair.theirs.detect_language(window[None])[0])
        assert max(ours, key=ours.__getitem__) == theirs
        assert sum(ours.values()) == pytest.approx(1)
