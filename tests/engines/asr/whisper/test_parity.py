"""The words equal those of faster-whisper's own `transcribe`, for all options and batches."""

from collections.abc import Iterator

import pytest
from faster_whisper import WhisperModel

from engines.asr.faster_whisper import FasterWhisper
from tests.engines.asr.whisper.reference import (
    CASES,
    Clip,
    clips,
    differences,
    ours,
    parts,
    recordings,
    theirs,
)
from tests.engines.nano import NANO

pytestmark = pytest.mark.live

EVERY_NTH = 200
"The normal run uses one of this many recordings: two for each case, a dozen in all."
REAL_SHARE = 6
"`make test-real` uses one of this many recordings, and `make soak` all: they take half an hour."


@pytest.fixture(scope="module")
def engine() -> Iterator[FasterWhisper]:
    engine = ours(NANO)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reference() -> WhisperModel:
    return theirs(NANO, has_our_features=True)


@pytest.fixture(scope="module")
def every_clip() -> list[Clip]:
    return list(clips())


@pytest.mark.parametrize("name", CASES)
def test_words_equal_those_of_faster_whisper(
    engine: FasterWhisper, reference: WhisperModel, name: str
) -> None:
    files = recordings()[list(CASES).index(name) :: EVERY_NTH]
    some = [next(parts(file)) for file in files]
    assert differences(engine, reference, some, CASES[name]) == []


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(REAL_SHARE, marks=(pytest.mark.real, pytest.mark.long), id="a sixth"),
        pytest.param(1, marks=pytest.mark.soak, id="all"),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_words_equal_those_of_faster_whisper_on_many_recordings(
    engine: FasterWhisper, reference: WhisperModel, every_clip: list[Clip], name: str, share: int
) -> None:
    """Greedy decoding runs on one of `share` recordings, and one of the other cases on each of
    these."""
    others = [other for other in CASES if other != "greedy"]
    own = slice(None) if name == "greedy" else slice(others.index(name), None, len(others))
    assert differences(engine, reference, every_clip[::share][own], CASES[name]) == []


@pytest.mark.real
def test_their_own_features_give_the_same_words_for_commands(every_clip: list[Clip]) -> None:
    """The last bit of a feature matters only where the model is unsure."""
    commands = [clip for clip in every_clip if clip[0].startswith("commands/")]
    engine = ours(NANO)
    found = differences(engine, theirs(NANO, has_our_features=False), commands, CASES["greedy"])
    engine.close()
    assert found == []
