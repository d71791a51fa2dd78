"""Windows of several lengths in one batch give the tokens of transformers."""

import pytest
import torch

from engines.asr.whisper_torch.batching.kv_cache import NewRow
from tests.engines.asr.whisper_torch import checkpoints
from tests.engines.asr.whisper_torch.driver import (
    Wish,
    answers,
    clips,
    encoded_windows,
    mel,
    opened,
)
from tests.engines.asr.whisper_torch.proof_transformers_parity import Pair, loaded, said

pytestmark = pytest.mark.live

FRAMES = (500, 300, 1000, 400)
MOST = 20


@pytest.fixture(scope="module", params=["nano", "random of 128 mels", "random of 80 mels"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("checkpoint")
    if request.param == "nano":
        checkpoints.nano(folder)
    else:
        mels = 128 if "128" in request.param else 80
        checkpoints.random(folder, mels=mels, layers=2, width=192)
    return Pair(opened(folder, 20), loaded(folder), request.param != "nano")


@pytest.mark.parametrize("prompted", [False, True], ids=["bare", "prompted"])
@pytest.mark.parametrize("timed", [False, True], ids=["text", "timestamps"])
@pytest.mark.parametrize("beams", [1, 5])
def test_answers_equal_those_of_transformers(
    pair: Pair, beams: int, timed: bool, prompted: bool
) -> None:
    """transformers takes one length only, so each window needs a model of as many positions."""
    model = pair.ours
    start = pair.start(timed=timed, prompt=range(300, 320) if prompted else (), language=3)
    new = NewRow(tuple(start), len(start) + MOST, is_timed=timed, beam_size=beams)
    windows = [mel(model, pcm, length) for pcm, length in zip(clips(), FRAMES, strict=True)]
    found = answers(
        model, encoded_windows(model, windows), [Wish(i, new) for i in range(len(windows))]
    )
    encoder = pair.theirs.model.encoder
    positions = model.weights.encoder.positions
    for index, (window, frames) in enumerate(zip(windows, FRAMES, strict=True)):
        length = frames // 2
        pair.theirs.config.max_source_positions = encoder.max_source_positions = length
        encoder.embed_positions = torch.nn.Embedding.from_pretrained(positions[:length])
        expected = said(pair, window, timed=timed, beams=beams, start=start, most=MOST)
        assert found[index].tokens == expected, index
    if pair.is_multilingual:
        assert len({one.tokens for one in found.values()}) > 1
