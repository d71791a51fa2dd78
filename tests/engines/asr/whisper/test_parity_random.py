"""A model of the size of `tiny`, with random weights, gives the words of faster-whisper's own.

Random weights make the model unsure everywhere, so any difference in the computation shows. The
file is not part of `test_parity.py`, so that another worker runs it meanwhile.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faster_whisper import WhisperModel

from bench.measurements.material.random_whisper import build
from engines.asr.faster_whisper import FasterWhisper
from tests.engines.asr.whisper.reference import CASES, Clip, clips, differences, ours, theirs

pytestmark = [pytest.mark.real, pytest.mark.long]

SHARE = 16
"Only one of this many recordings is used, because a window takes the tiny model a second."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tiny"), "tiny")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[FasterWhisper]:
    engine = ours(folder)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reference(folder: Path) -> WhisperModel:
    return theirs(folder, has_our_features=True)


@pytest.fixture(scope="module")
def every_clip() -> list[Clip]:
    return list(clips())


@pytest.mark.parametrize("name", CASES)
def test_words_equal_those_of_faster_whisper_on_a_sixteenth_of_the_recordings(
    engine: FasterWhisper, reference: WhisperModel, every_clip: list[Clip], name: str
) -> None:
    """Greedy decoding runs on one sixteenth, and the other cases share another."""
    others = [other for other in CASES if other != "greedy"]
    own = slice(None, None, SHARE)
    if name != "greedy":
        own = slice(others.index(name), None, SHARE * len(others))
    assert differences(engine, reference, every_clip[own], CASES[name]) == []
