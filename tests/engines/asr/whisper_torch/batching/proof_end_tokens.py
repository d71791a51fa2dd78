"""Answers that end by themselves, each after a different number of tokens: they equal those of
transformers, with random weights of tiny's shape."""

from collections.abc import Sequence

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

MOST = 40
"The limit of an answer, in tokens."


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = checkpoints.random(tmp_path_factory.mktemp("tiny"), ends=True)
    return Pair(opened(folder, 40), loaded(folder), True)


@pytest.fixture(scope="module")
def windows(pair: Pair) -> Sequence[torch.Tensor]:
    """Returns two windows of speech and five of noise, because random weights hardly tell speech
    apart."""
    source = torch.Generator().manual_seed(2)
    drawn = torch.randn(5, pair.ours.shape.mels, 3000, generator=source)
    return [*(mel(pair.ours, pcm) for pcm in clips()[:2]), *drawn]


@pytest.fixture(scope="module")
def encoded(pair: Pair, windows: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return encoded_windows(pair.ours, windows)


@pytest.mark.parametrize("timed", [False, True], ids=["text", "timestamps"])
@pytest.mark.parametrize("beams", [1, 5])
def test_answers_end_where_those_of_transformers_end(
    pair: Pair,
    windows: Sequence[torch.Tensor],
    encoded: Sequence[torch.Tensor],
    beams: int,
    timed: bool,
) -> None:
    start = pair.start(timed=timed)
    new = NewRow(tuple(start), len(start) + MOST, is_timed=timed, beam_size=beams)
    ours = answers(pair.ours, encoded, [Wish(index, new) for index in range(len(windows))])
    for index, window in enumerate(windows):
        theirs = said(pair, window, timed=timed, beams=beams, start=start, most=MOST)
        assert ours[index].tokens == theirs, index
        assert ours[index].has_ended == (len(theirs) < MOST), index
    ended = [len(one.tokens) for one in ours.values() if one.has_ended]
    assert len(ended) >= 5
    assert len(set(ended)) >= 4
