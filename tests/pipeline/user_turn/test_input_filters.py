"""A session and its own voice: which audio reaches turn detection while the answer sounds."""

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from core.conversation.events import PlayoutCleared, SpeechStarted
from media.processing.modes import EchoMode
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings
from tests.pipeline.fakes import FRAME, speak
from tests.pipeline.scenes import of, run_session, talkative

pytestmark = pytest.mark.many

SILENCE, ONE, TWO = 0, 1000, 2000


async def over_the_answer(session: Session) -> None:
    await speak(session, (ONE, 600), (SILENCE, 1500), (TWO, 1000), (SILENCE, 3000))


@pytest.mark.parametrize(("mode", "heard"), [("off", 2), ("half_duplex", 1)])
def test_half_duplex_ignores_input_while_the_answer_sounds(mode: EchoMode, heard: int) -> None:
    events = run_session(talkative(), over_the_answer, SessionSettings(echo=mode))
    assert len(of(SpeechStarted, events)) == heard


@pytest.mark.parametrize("paced_by", ["server", "client"])
def test_half_duplex_accepts_input_after_the_answer(paced_by: str) -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 600), (SILENCE, 18_000), (TWO, 600), (SILENCE, 2000))

    settings = SessionSettings(echo="half_duplex")
    events = run_session(talkative(), scenario, settings, paced_by)  # type: ignore[arg-type]
    assert len(of(SpeechStarted, events)) == 2


def test_without_an_answer_audio_passes_unchanged() -> None:
    kept: list[AudioFrame] = []

    async def scenario(session: Session) -> None:
        session._user_turns.listen = kept.append  # type: ignore[method-assign, assignment]
        session.feed(AudioFrame(np.full(FRAME, 123, np.int16), ASR_RATE_HZ, 0))

    run_session(talkative(), scenario, SessionSettings(echo="cancel"))
    assert np.array_equal(kept[0].pcm, np.full(FRAME, 123))


def test_a_session_can_change_its_echo_mode() -> None:
    async def scenario(session: Session) -> None:
        session.configure(SessionSettings(echo="half_duplex"))
        await over_the_answer(session)

    events = run_session(talkative(), scenario)
    assert len(of(SpeechStarted, events)) == 1
    assert len(of(PlayoutCleared, events)) == 1, "only at the end of the session"
