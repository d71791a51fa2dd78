"""Words of live doors against those of the whole file, with a scripted recogniser."""

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from bench.measurements.live_errors import Door, HeardClip, UnhurriedRecogniser, cell, corpus, hear
from core.audio import ASR_RATE_HZ, Pcm
from engines.base import AsrInfo, AsrItem, AsrResult
from tests.pipeline.fakes import FRAME, LoudVads, words_of

ONE, TWO = 1000, 2000


class LevelModel:
    """Reads words from levels, as `LevelAsr`, and counts its calls."""

    info = AsrInfo("level", "level", ("en",), 4, is_incremental=False)

    def __init__(self) -> None:
        self.calls = 0

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        self.calls += 1
        return [AsrResult(words_of(item.pcm), 0.9, "en") for item in items]

    def forget(self, utterance: str) -> None: ...

    def close(self) -> None: ...


def spoken(*script: tuple[int, int]) -> Pcm:
    return np.concatenate([np.full(FRAME * ms // 20, level, np.int16) for level, ms in script])


@pytest.mark.parametrize("door", [door for door in get_args(Door) if door != "opus"])
def test_each_door_gives_the_words_of_the_whole_file(door: Door) -> None:
    pcm = spoken((0, 300), (ONE, 600), (0, 700), (TWO, 600), (0, 300))
    assert hear(UnhurriedRecogniser(LevelModel()), LoudVads(), door, pcm) == "one two"


def test_the_same_audio_is_decoded_once() -> None:
    model = LevelModel()
    recogniser = UnhurriedRecogniser(model)
    item = AsrItem("a", spoken((ONE, 600)), is_final=True)
    assert recogniser.result(item) is recogniser.result(item)
    assert model.calls == 1


def test_a_cell_has_errors_differences_and_missing_words() -> None:
    found = [
        HeardClip("a", "turn on the lamp", "turn on the lamb", "turn the lamb"),
        HeardClip("b", "stop", "stop", "stop it"),
    ]
    assert cell(found) == "60.0 (2, 1)"


def test_without_a_transcript_the_whole_file_is_the_reference() -> None:
    assert cell([HeardClip("a", "", "one large mocha", "one large marker")]) == "33.3 (1, 0)"


def test_a_corpus_with_labels_has_no_texts(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    with wave.open(str(folder / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(ASR_RATE_HZ)
        file.writeframes(spoken((ONE, 600)).tobytes())
    (folder / "labels.tsv").write_text("path\tintent\tslots\na.wav\torder\t{}\n", "utf-8")
    ((name, reference, pcm),) = corpus(tmp_path, "orders", 60)
    assert (name, reference, len(pcm)) == ("a.wav", "", 600 * 16)
    assert list(corpus(tmp_path, "orders", 0.5)) == []
