"""Results of engines by the audio that they were computed from."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.measurements.material.remembered_results import (
    RememberedResults,
    RememberingDetector,
    RememberingRecogniser,
)
from core.audio import ASR_RATE_HZ, silence
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult, TokenLogprob, Word


class CountingModel:
    """An `AsrModel` that counts its calls."""

    info = AsrInfo("counting", "counting", ("en",), 1, is_incremental=False)
    calls = 0

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        self.calls += len(items)
        words, tokens = (Word("one", 0, 300, 0.9),), (TokenLogprob(b"one", -0.1),)
        return [AsrResult("one", 0.9, "en", words, tokens=tokens, is_unsure=True) for _ in items]

    def forget(self, utterance: str) -> None: ...

    def close(self) -> None: ...


class CountingDetector:
    """An `EndOfTurnDetector` that counts its judgements."""

    name = "counting"
    count = 0

    def probability(self, pcm: object) -> float | None:
        self.count += 1
        return 0.9


def item(length_ms: int, options: AsrOptions | None = None) -> AsrItem:
    return AsrItem("a", silence(length_ms, ASR_RATE_HZ), True, options or AsrOptions())


def test_audio_is_decoded_once_for_each_set_of_options() -> None:
    model = CountingModel()
    recogniser = RememberingRecogniser(model, RememberedResults(), decode_s=0)
    unfiltered = AsrOptions(no_speech_threshold=1.0)
    for one in (item(300), item(300), item(400), item(300, unfiltered)):
        recogniser.result(one)
    assert model.calls == 3


def test_a_file_gives_the_same_results_to_the_next_run(tmp_path: Path) -> None:
    path, model = tmp_path / "results.json", CountingModel()
    results = RememberedResults.read(path)
    first = RememberingRecogniser(model, results, decode_s=0).result(item(300))
    results.write(path)
    again = RememberingRecogniser(model, RememberedResults.read(path), decode_s=0)
    assert again.result(item(300)) == first
    assert model.calls == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_with_other_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("[]")
    with pytest.raises(ValueError, match="object"):
        RememberedResults.read(path)


def test_a_detector_judges_the_same_audio_once() -> None:
    judge = CountingDetector()
    remembering = RememberingDetector(judge, RememberedResults())
    for length_ms in (100, 100, 200):
        assert remembering.probability(silence(length_ms, ASR_RATE_HZ)) == 0.9
    assert judge.count == 2
