"""`server_vad.threshold` decides what counts as speech; the detector of these tests is never
sure."""

from dataclasses import replace

import pytest

from core.audio import Pcm
from core.conversation.events import SpeechStarted, SpeechStopped
from engines.base import Vad
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings, TurnDetection
from tests.pipeline.fakes import LoudVad, LoudVads, World, speak
from tests.pipeline.scenes import of, run_session

SURE = 0.6
WORD_MS = 1800


class UnsureVad(LoudVad):
    def push(self, pcm: Pcm) -> float:
        return SURE * super().push(pcm)


class UnsureVads(LoudVads):
    def open(self) -> Vad:
        return UnsureVad()


def with_threshold(threshold: float) -> SessionSettings:
    detection = TurnDetection(threshold=threshold, silence_ms=300)
    return SessionSettings(answers=False, turn_detection=detection)


async def word(session: Session) -> None:
    await speak(session, (0, 400), (1000, 600), (0, 800))


@pytest.mark.parametrize(("threshold", "found"), [(0.5, 1), (SURE, 1), (0.7, 0)])
def test_only_frames_above_the_threshold_are_speech(threshold: float, found: int) -> None:
    events = run_session(World(vad=UnsureVads()), word, with_threshold(threshold))
    assert [len(of(kind, events)) for kind in (SpeechStarted, SpeechStopped)] == [found, found]


def test_a_new_threshold_applies_from_the_next_frame() -> None:
    async def scene(session: Session) -> None:
        await word(session)
        strict = with_threshold(0.7)
        session.configure(strict)
        await word(session)
        session.configure(replace(strict, turn_detection=TurnDetection(silence_ms=300)))
        await word(session)

    events = run_session(World(vad=UnsureVads()), scene, with_threshold(0.5))
    starts = [one.audio_start_ms for one in of(SpeechStarted, events)]
    assert [start // WORD_MS for start in starts] == [0, 2]
