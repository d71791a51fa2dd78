"""The filter that decides whether an utterance contains speech: noise yields no words, and no
speech is lost."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.measurements.noise import live
from core.audio import Pcm
from engines.base import AsrInfo, AsrResult, VadEngine
from engines.registry import load
from media.files.decode import decode_file
from pipeline.transcription.no_speech import (
    NoSpeechCriterion,
    NoSpeechFilter,
    NoSpeechMode,
    filter_no_speech,
    is_spoken,
    no_speech_criterion,
)
from tests.shared import ROOT, shared_data

pytestmark = pytest.mark.live

FRAME = 320
"20 ms."
KNOWN_SINGING = ("lets_go_fishin.ogg",)

TELLS_NOT = AsrInfo("toy", "toy", ("en",), 4, is_incremental=False)
TELLS = replace(TELLS_NOT, tells_noise=True)


def evidence(*frames: tuple[float, int]) -> NoSpeechFilter:
    """Returns the filter after runs of (probability, ms)."""
    found = NoSpeechFilter()
    for probability, ms in frames:
        for _ in range(ms // 20):
            found.push(probability, FRAME)
    return found


def test_the_surest_syllable_counts_wherever_it_is() -> None:
    assert evidence((0.1, 1000), (0.9, 200), (0.2, 1000)).surest == pytest.approx(0.9)
    assert evidence((0.9, 100)).surest == pytest.approx(0.45)
    assert evidence((0.4, 5000)).is_none
    assert evidence().is_none


@pytest.mark.parametrize("cut", range(5))
def test_the_evidence_of_two_utterances_can_be_joined(cut: int) -> None:
    frames = (0.9, 100), (0.2, 400), (0.95, 60), (0.7, 300)
    whole, joined = evidence(*frames), evidence(*frames[cut:]).with_former(evidence(*frames[:cut]))
    assert joined.surest == pytest.approx(whole.surest)
    assert joined.speech_ms == pytest.approx(whole.speech_ms)
    assert joined.certain_ms == pytest.approx(whole.certain_ms)


@pytest.mark.parametrize(
    ("text", "certain_ms", "allowed"),
    [
        ("no", 160, False),
        ("no", 200, True),
        ("good morning", 260, False),
        ("good morning", 280, True),
        ("Good morning!", 280, True),
        ("will it rain in rome", 380, False),
        ("will it rain in rome", 400, True),
        ("", 200, True),
    ],
)
def test_words_need_as_much_speech_as_the_fastest_speaker(
    text: str, certain_ms: int, allowed: bool
) -> None:
    assert evidence((1.0, certain_ms), (0.0, 400)).allows(text) is allowed


def test_uncertain_frames_count_in_proportion() -> None:
    assert evidence((0.75, 400)).certain_ms == pytest.approx(200)
    assert evidence((1.0, 400)).certain_ms == pytest.approx(400)
    assert evidence((0.5, 400), (0.4, 400)).certain_ms == 0
    assert not evidence((0.75, 400)).allows("good morning")
    assert evidence((0.95, 400)).allows("good morning")


def test_a_rejected_result_keeps_no_text() -> None:
    result = AsrResult("will it rain in rome", 0.9, "en")
    nothing = AsrResult("", 0.9, "en", is_rejected=True, rejected_words=5)
    assert filter_no_speech(result, evidence((0.3, 2000)), NoSpeechCriterion.BOTH) == nothing
    assert filter_no_speech(result, evidence((0.9, 1000)), NoSpeechCriterion.BOTH) is result


@pytest.mark.parametrize("mode", ["off", "normal", "strict"])
@pytest.mark.parametrize("info", [TELLS, TELLS_NOT, replace(TELLS_NOT, rejects_nothing=True)])
def test_a_request_can_turn_the_filter_off(mode: NoSpeechMode, info: AsrInfo) -> None:
    assert no_speech_criterion(mode, info, 1.0) is NoSpeechCriterion.NONE


@pytest.mark.parametrize(
    ("mode", "info", "asked", "judge"),
    [
        ("normal", TELLS, None, NoSpeechCriterion.RECOGNISER),
        ("normal", TELLS, 0.6, NoSpeechCriterion.RECOGNISER),
        ("normal", TELLS_NOT, None, NoSpeechCriterion.BOTH),
        ("normal", TELLS_NOT, 0.6, NoSpeechCriterion.BOTH),
        ("normal", replace(TELLS_NOT, rejects_nothing=True), None, NoSpeechCriterion.NONE),
        ("normal", replace(TELLS, rejects_nothing=True), 0.6, NoSpeechCriterion.RECOGNISER),
        ("strict", TELLS, None, NoSpeechCriterion.BOTH),
        ("strict", replace(TELLS, rejects_nothing=True), None, NoSpeechCriterion.BOTH),
        ("off", TELLS, None, NoSpeechCriterion.NONE),
        ("off", TELLS_NOT, None, NoSpeechCriterion.NONE),
        ("off", TELLS, 0.6, NoSpeechCriterion.RECOGNISER),
        ("off", TELLS_NOT, 0.6, NoSpeechCriterion.BOTH),
    ],
)
def test_the_criterion_follows_from_configuration_model_and_request(
    mode: NoSpeechMode, info: AsrInfo, asked: float | None, judge: NoSpeechCriterion
) -> None:
    assert no_speech_criterion(mode, info, asked) is judge


SURE, UNSURE = AsrResult("hello", 0.7, "en"), AsrResult("hello", 0.3, "en", is_unsure=True)


@pytest.mark.parametrize(
    ("result", "heard", "judge", "expected"),
    [
        (SURE, (0.0, 400), NoSpeechCriterion.RECOGNISER, True),
        (SURE, (0.6, 120), NoSpeechCriterion.RECOGNISER, True),
        (UNSURE, (0.4, 400), NoSpeechCriterion.RECOGNISER, True),
        (UNSURE, (0.3, 400), NoSpeechCriterion.RECOGNISER, False),
        (UNSURE, (0.0, 400), NoSpeechCriterion.NONE, True),
        (SURE, (0.6, 400), NoSpeechCriterion.BOTH, False),
        (SURE, (1.0, 400), NoSpeechCriterion.BOTH, True),
    ],
)
def test_a_sure_recogniser_is_overruled_only_if_both_must_agree(
    result: AsrResult, heard: tuple[float, int], judge: NoSpeechCriterion, expected: bool
) -> None:
    assert is_spoken(result, evidence(heard), judge) is expected


@pytest.fixture(scope="module")
def vad() -> VadEngine:
    return load("vad", "gated", {})


def heard(vad: VadEngine, pcm: Pcm) -> NoSpeechFilter:
    one, found = vad.open(), NoSpeechFilter()
    for at in range(0, len(pcm) - FRAME + 1, FRAME):
        found.push(one.push(pcm[at : at + FRAME]), FRAME)
    return found


def pieces(pcm: Pcm) -> Iterator[Pcm]:
    for at in range(0, len(pcm), 48_000):
        yield pcm[at : at + 48_000]


def test_recordings_of_noise_and_instrumental_music_contain_almost_no_speech(
    vad: VadEngine,
) -> None:
    """The VAD is briefly unsure about vibraphones and whales; the words made up from them are too
    long to pass."""
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
    assert not [found for found in doubtful if found.allows("turn on the kitchen lights")]


@pytest.mark.real
def test_a_live_session_gets_no_words_from_noise_with_a_credulous_recogniser(
    vad: VadEngine,
) -> None:
    model = load("asr", "faster_whisper", {"model": str(ROOT / "tests/fixtures/whisper-nano")})
    try:
        heard_live = asyncio.run(live(model, vad, shared_data()))
    finally:
        model.close()
    unsung = [noise for noise in heard_live if not noise.is_singing]
    assert [noise for noise in unsung if noise.unfiltered], "it would have heard some"
    assert [noise for noise in unsung if noise.filtered] == []


@pytest.mark.real
@pytest.mark.parametrize("folder", ["commands", "speech"])
def test_every_recording_of_speech_passes_with_its_words(vad: VadEngine, folder: str) -> None:
    listing = (shared_data() / folder / "transcripts.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in listing]
    path, text = rows[0].index("path"), rows[0].index("transcript")
    lost = [
        row[path]
        for row in rows[1:]
        if not heard(vad, decode_file(shared_data() / folder / row[path])).allows(row[text])
    ]
    assert lost == []
