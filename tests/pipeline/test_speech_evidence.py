"""The VAD's word against the recogniser's: noise yields nothing, and no speech is lost."""

from collections.abc import Iterator

import pytest

from core.audio import Pcm
from engines.base import AsrResult, VadEngine
from engines.registry import load
from media.files import decode_file
from pipeline.speech_evidence import SpeechEvidence, gated, rejects_noise
from tests.shared import shared_data

FRAME = 320
"20 ms."
KNOWN_SINGING = ("lets_go_fishin.ogg",)


def evidence(*frames: tuple[float, int]) -> SpeechEvidence:
    """(probability, ms) runs."""
    found = SpeechEvidence()
    for probability, ms in frames:
        for _ in range(ms // 20):
            found.push(probability, FRAME)
    return found


def test_the_surest_syllable_counts_wherever_it_is() -> None:
    assert evidence((0.1, 1000), (0.9, 200), (0.2, 1000)).surest == pytest.approx(0.9)
    assert evidence((0.9, 100)).surest == pytest.approx(0.45)
    assert evidence((0.4, 5000)).is_none
    assert evidence().is_none


@pytest.mark.parametrize(
    ("speech_ms", "words", "allowed"),
    [(160, 1, False), (200, 2, True), (320, 8, False), (800, 8, True), (400, 0, True)],
)
def test_nobody_speaks_faster_than_people_do(speech_ms: int, words: int, allowed: bool) -> None:
    found = evidence((0.9, speech_ms), (0.0, 400))
    assert found.allows(" ".join(["word"] * words)) is allowed


def test_a_rejected_result_keeps_nothing_of_what_was_made_up() -> None:
    result = AsrResult("will it rain in rome", 0.9, "en")
    assert gated(result, evidence((0.3, 2000))) == AsrResult("", 0.9, "en", is_rejected=True)
    assert gated(result, evidence((0.9, 1000))) is result


def test_a_caller_may_want_it_all_the_same() -> None:
    assert rejects_noise(None)
    assert rejects_noise(0.6)
    assert not rejects_noise(1.0)


@pytest.fixture(scope="module")
def vad() -> VadEngine:
    return load("vad", "gated", {})


def heard(vad: VadEngine, pcm: Pcm) -> SpeechEvidence:
    one, found = vad.open(), SpeechEvidence()
    for at in range(0, len(pcm) - FRAME + 1, FRAME):
        found.push(one.push(pcm[at : at + FRAME]), FRAME)
    return found


def pieces(pcm: Pcm) -> Iterator[Pcm]:
    for at in range(0, len(pcm), 48_000):
        yield pcm[at : at + 48_000]


def test_recordings_of_noise_and_music_without_singing_have_nearly_no_speech(
    vad: VadEngine,
) -> None:
    """Vibraphones and whales have moments of doubt; what is made up of these is caught by its
    number of words."""
    files = [*sorted((shared_data() / "noise").iterdir()), *(shared_data() / "music").iterdir()]
    all_pieces = [
        heard(vad, piece)
        for path in files
        if path.name not in KNOWN_SINGING
        for piece in pieces(decode_file(path))
    ]
    assert len(all_pieces) > 100
    doubtful = [found for found in all_pieces if not found.is_none]
    assert len(doubtful) <= len(all_pieces) // 20
    assert not [found for found in doubtful if found.allows("will it rain in rome on monday")]


@pytest.mark.parametrize("folder", ["commands", "speech"])
def test_every_recording_of_speech_may_hold_its_words(vad: VadEngine, folder: str) -> None:
    listing = (shared_data() / folder / "transcripts.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in listing]
    path, text = rows[0].index("path"), rows[0].index("transcript")
    lost = [
        row[path]
        for row in rows[1:]
        if not heard(vad, decode_file(shared_data() / folder / row[path])).allows(row[text])
    ]
    assert lost == []
