"""The moments at which a paced speaker may wait briefly for sound."""

import asyncio

import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, silence
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings
from tests.pipeline.fakes import EchoLlm, World, speak
from tests.pipeline.scenes import run_session

pytestmark = pytest.mark.many

SILENCE, ONE = 0, 1000


class Speaker:
    """Pulls as a track does, and notes before each pull whether sound is coming."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.told: list[str] = []

    async def play(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 20):
            await asyncio.sleep(0.02)
            self.session.feed(AudioFrame(silence(20, ASR_RATE_HZ), ASR_RATE_HZ, 0))
            coming = self.session.next_sound_event
            self.told.append("." if coming is None else "s" if coming.is_set() else "w")
            if self.session.pull() is not None:
                self.told.append("S")


def told(world: World, settings: SessionSettings | None = None) -> str:
    """Returns the speaker's notes from 40 ms after the last word on: `.` no sound is coming, `w`
    wait, `s` sound is ready, `S` sound was played."""
    said: list[str] = []

    async def scene(session: Session) -> None:
        if settings is not None:
            session.configure(settings)
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 40))
        speaker = Speaker(session)
        await speaker.play(3000)
        said.append("".join(speaker.told))

    run_session(world, scene)
    return said[0]


def test_sound_is_announced_from_the_end_of_the_turn_to_its_first_frame() -> None:
    line = told(World(llm=EchoLlm(word_s=0.4)))
    quiet, _, rest = line.partition("w")
    assert set(quiet) == {"."}
    waited = rest.partition("S")[0]
    assert len(waited) > 5
    assert set(waited[:-1]) <= {"w", "s"}
    after = rest.partition("S")[2]
    assert "w" not in after, "within an answer nothing waits"
    assert after.endswith("....")


def test_no_sound_is_announced_without_responses() -> None:
    line = told(World(), SessionSettings(answers=False))
    assert set(line) == {"."}
