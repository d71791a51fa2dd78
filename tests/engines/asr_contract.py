"""The contract of every speech recogniser, whoever wrote it: see `test_contract.py`."""

import numpy as np

from core.audio import Pcm
from engines.base import (
    AsrItem,
    AsrModel,
    AsrOptions,
    AsrResult,
)
from tests.speech import say

NO_AUDIO: Pcm = np.zeros(0, np.int16)
FIRST = say("turn on the kitchen lights", lead_ms=100, tail_ms=300)
SECOND = say("what time is it", "en-gb", lead_ms=100, tail_ms=300)


def part(utterance: str, pcm: Pcm, share: float) -> AsrItem:
    return AsrItem(
        utterance, pcm[: int(len(pcm) * share)], is_final=share == 1, options=AsrOptions("en")
    )


def final(model: AsrModel, utterance: str, pcm: Pcm) -> AsrResult:
    (result,) = model.decode([AsrItem(utterance, pcm, is_final=True, options=AsrOptions("en"))])
    return result


def hears_words(asr: AsrModel) -> None:
    result = final(asr, "utt", FIRST)
    assert "kitchen" in result.text.lower()
    assert 0 <= result.confidence <= 1
    assert result.language in asr.info.languages


def hears_nothing_in_nothing(asr: AsrModel, pcm: Pcm) -> None:
    result = final(asr, "utt", pcm)
    assert result.text == ""
    assert result.language in asr.info.languages


def takes_an_empty_batch(asr: AsrModel) -> None:
    assert asr.decode([]) == []


def utterances_at_once_keep_their_words(asr: AsrModel) -> None:
    clips = {"utt_a": FIRST, "utt_b": SECOND}
    for share in (0.3, 0.6):
        results = asr.decode([part(name, pcm, share) for name, pcm in clips.items()])
        assert len(results) == 2
    both = asr.decode([part(name, pcm, 1) for name, pcm in clips.items()])
    assert [result.text for result in both] == [
        final(asr, f"alone_{name}", pcm).text for name, pcm in clips.items()
    ]
    assert both[0].text != both[1].text


def cancelled_utterance_leaves_nothing_behind(asr: AsrModel) -> None:
    asr.decode([part("utt_x", FIRST, 0.5)])
    asr.forget("utt_x")
    asr.forget("never heard of")
    assert final(asr, "utt_x", SECOND).text == final(asr, "fresh", SECOND).text
