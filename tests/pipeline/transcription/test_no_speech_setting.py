"""`asr.no_speech` in sessions and recordings: the result of a short word, in virtual time."""

from dataclasses import replace
from typing import Literal

import pytest

from core.conversation.events import TranscriptionCompleted
from engines.base import AsrItem, AsrOptions, AsrResult, Vad, VadEngine
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings
from pipeline.transcription.no_speech import NoSpeechMode
from pipeline.transcription.recording import Transcriber
from serving.asr.scheduling import DecodePriority
from tests.loop import run_virtual
from tests.pipeline.fakes import LevelAsr, LoudVads, World, speak
from tests.pipeline.scenes import of, run_session
from tests.pipeline.scripted import FaintVad, audio

pytestmark = pytest.mark.many

SHORT_MS = 120
"Long enough for a session to begin an utterance, too short for the rules of the VAD."

Kind = Literal["tells", "toy", "rejects_nothing"]


class Short(LevelAsr):
    """A recogniser that returns the word; with `is_unsure` one of its scores says that there was
    none."""

    def __init__(self, kind: Kind, *, is_unsure: bool = False) -> None:
        super().__init__(window_ms=10_000)
        self.is_unsure = is_unsure
        self.info = replace(
            self.info, tells_noise=kind == "tells", rejects_nothing=kind == "rejects_nothing"
        )

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        result = await super().decode(item, priority)
        return replace(result, text="one" if item.pcm.any() else "", is_unsure=self.is_unsure)


TABLE = [
    ("normal", "tells", None, "one"),
    ("normal", "toy", None, ""),
    ("normal", "rejects_nothing", None, "one"),
    ("strict", "tells", None, ""),
    ("strict", "toy", None, ""),
    ("off", "tells", None, "one"),
    ("off", "toy", None, "one"),
    ("strict", "tells", 1.0, "one"),
    ("normal", "toy", 1.0, "one"),
    ("off", "toy", 0.6, ""),
]
in_every_mode = pytest.mark.parametrize(("mode", "kind", "asked", "text"), TABLE)


def heard_in_a_session(
    mode: NoSpeechMode, asr: LevelAsr, settings: SessionSettings, *, commits: bool = False
) -> str:
    async def scenario(session: Session) -> None:
        await speak(session, (0, 400), (1000, SHORT_MS), (0, 1200))
        if commits:
            session.commit_input()
            await session.settled()

    events = run_session(World(asr=asr, no_speech=mode), scenario, settings)
    return " ".join(event.transcript for event in of(TranscriptionCompleted, events))


@in_every_mode
def test_a_short_word_in_a_session(
    mode: NoSpeechMode, kind: Kind, asked: float | None, text: str
) -> None:
    settings = SessionSettings(answers=False, no_speech_threshold=asked)
    assert heard_in_a_session(mode, Short(kind), settings) == text


@pytest.mark.parametrize(("mode", "text"), [("normal", "one"), ("off", "one"), ("strict", "")])
def test_with_push_to_talk_a_short_word_is_kept_unless_strict(
    mode: NoSpeechMode, text: str
) -> None:
    settings = SessionSettings(answers=False, turn_detection=None)
    assert heard_in_a_session(mode, Short("toy"), settings, commits=True) == text


@pytest.mark.parametrize(("kind", "count"), [("toy", 1), ("tells", 0)])
def test_words_that_the_filter_rejects_are_counted(kind: Kind, count: int) -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (0, 400), (1000, SHORT_MS), (0, 1200))

    world = World(asr=Short(kind), no_speech="normal")
    events = run_session(world, scenario, SessionSettings(answers=False))
    assert [event.rejected_words for event in of(TranscriptionCompleted, events)] == [count]
    assert world.metrics.counts.get("earshot_asr_rejected_words", 0) == count


@in_every_mode
def test_a_short_word_in_a_recording(
    mode: NoSpeechMode, kind: Kind, asked: float | None, text: str
) -> None:
    asr, asks = Short(kind), AsrOptions("en", no_speech_threshold=asked)
    assert heard_in_a_recording(mode, asr, asks, 1000, SHORT_MS) == text
    assert len(asr.asked) == (text != ""), "what nobody would believe is not decoded"


@pytest.mark.parametrize(
    ("mode", "is_unsure", "text"),
    [("normal", False, "one"), ("normal", True, ""), ("off", True, "one"), ("strict", False, "")],
)
def test_speech_below_the_vad_threshold_is_judged_by_the_recogniser(
    mode: NoSpeechMode, is_unsure: bool, text: str
) -> None:
    """A whisper is decoded, and kept if the recogniser is sure of it."""
    asr = Short("tells", is_unsure=is_unsure)
    assert heard_in_a_recording(mode, asr, AsrOptions("en"), 400, 1000) == text


def test_off_applies_to_the_recogniser_too_unless_a_request_overrides_it() -> None:
    asr = Short("tells")
    heard_in_a_recording("off", asr, AsrOptions("en"), 1000, SHORT_MS)
    heard_in_a_recording("off", asr, AsrOptions("en", no_speech_threshold=0.3), 1000, SHORT_MS)
    heard_in_a_recording("normal", asr, AsrOptions("en"), 1000, SHORT_MS)
    assert [item.options.no_speech_threshold for _, _, item in asr.asked] == [1.0, 0.3, None]
    heard_in_a_session("off", asr, SessionSettings(answers=False))
    assert {item.options.no_speech_threshold for _, _, item in asr.asked[3:]} == {1.0}


@pytest.mark.parametrize(
    ("mode", "kind", "text"),
    [
        ("normal", "tells", "one"),
        ("normal", "toy", ""),
        ("strict", "tells", ""),
        ("off", "toy", "one"),
    ],
)
def test_a_whisper_in_a_long_recording_is_judged_by_the_recogniser(
    mode: NoSpeechMode, kind: Kind, text: str
) -> None:
    asr, vads = Short(kind), FaintVads()
    asks = AsrOptions("en")
    assert heard_in_a_recording(mode, asr, asks, 1000, 6000, vad=vads, after_ms=5000) == text


class FaintVads(LoudVads):
    """A VAD that gives loud audio too low a probability to begin an utterance."""

    def open(self) -> Vad:
        return FaintVad()


def heard_in_a_recording(
    mode: NoSpeechMode,
    asr: LevelAsr,
    options: AsrOptions,
    level: int,
    ms: int,
    *,
    vad: VadEngine | None = None,
    after_ms: int = 1200,
) -> str:
    texts: list[str] = []

    async def main() -> None:
        world = World(asr=asr, no_speech=mode, vad=vad or LoudVads())
        transcriber = Transcriber(world.services().engines)
        async with transcriber.open("default", options) as recording:
            await recording.push(audio((0, 400), (level, ms), (0, after_ms)))
            recording.end()
            texts.append((await recording.transcript()).text)

    run_virtual(main())
    return texts[0]
