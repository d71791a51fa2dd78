"""The words equal those of faster-whisper's own `transcribe`, for all options and batches."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from faster_whisper import WhisperModel

from bench.server.random_whisper import build
from engines.asr.faster_whisper import FasterWhisper
from engines.base import AsrItem
from tests.engines.asr.whisper.reference import (
    CASES,
    Case,
    Clip,
    clips,
    heard_by_theirs,
    ours,
    parts,
    recordings,
    theirs,
)
from tests.engines.nano import NANO

pytestmark = pytest.mark.live

BATCH = 8
REAL_SHARE = {"nano": 1, "random tiny": 4}
"Only one of this many recordings is used, because a window takes the tiny model a second."

EVERY_NTH = 200
"The normal run uses one of this many recordings: two for each case, a dozen in all."


@pytest.fixture(
    scope="module", params=["nano", pytest.param("random tiny", marks=pytest.mark.real)]
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return NANO if request.param == "nano" else build(tmp_path_factory.mktemp("tiny"), "tiny")


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


def differences(
    engine: FasterWhisper, reference: WhisperModel, some: Sequence[Clip], case: Case
) -> list[str]:
    """Returns the clips whose text or language differs."""
    found = []
    for start in range(0, len(some), BATCH):
        batch = some[start : start + BATCH]
        results = engine.decode([AsrItem(name, pcm, True, case.ours) for name, pcm in batch])
        for (name, pcm), result in zip(batch, results, strict=True):
            expected = heard_by_theirs(reference, pcm, case)
            if (result.text, result.language) != expected:
                found.append(f"{name}: {result.language} {result.text!r}, theirs {expected}")
    return found


@pytest.mark.parametrize("name", CASES)
def test_words_equal_those_of_faster_whisper(
    engine: FasterWhisper, reference: WhisperModel, name: str
) -> None:
    files = recordings()[list(CASES).index(name) :: EVERY_NTH]
    some = [next(parts(file)) for file in files]
    assert differences(engine, reference, some, CASES[name]) == []


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_words_equal_those_of_faster_whisper_on_every_recording(
    folder: Path,
    engine: FasterWhisper,
    reference: WhisperModel,
    every_clip: list[Clip],
    name: str,
) -> None:
    """Greedy decoding runs on all recordings, and one of the other cases on each. The tiny model
    runs on a quarter of them."""
    others = [other for other in CASES if other != "greedy"]
    share = REAL_SHARE["nano" if folder == NANO else "random tiny"]
    own = slice(None, None, share)
    if name != "greedy":
        own = slice(others.index(name), None, share * len(others))
    some = every_clip[own]
    assert differences(engine, reference, some, CASES[name]) == []


@pytest.mark.real
def test_their_own_features_give_the_same_words_for_commands(every_clip: list[Clip]) -> None:
    """The last bit of a feature matters only where the model is unsure."""
    commands = [clip for clip in every_clip if clip[0].startswith("commands/")]
    engine = ours(NANO)
    found = differences(engine, theirs(NANO, has_our_features=False), commands, CASES["greedy"])
    engine.close()
    assert found == []
