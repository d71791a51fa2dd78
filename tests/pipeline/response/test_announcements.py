"""Announcements wait until the user does not speak."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import pytest

from core.audio import AudioFrame
from core.conversation.events import (
    OutputItemDone,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
    SpeechStopped,
)
from core.conversation.items import MessageItem
from core.errors import Conflict
from pipeline.response.queue import MAX_SILENT_S, MAX_WAITING
from pipeline.session.session import Session
from pipeline.shared.settings import PlayoutPacing, ResponseRequest, SessionSettings, TurnDetection
from tests.pipeline.fakes import LevelAsr, ToneTts, World, names, speak
from tests.pipeline.scenes import of, run_session

pytestmark = pytest.mark.many

SILENCE, ONE, TWO = 0, 1000, 2000
RING = "the timer rings"


def said(events: list[SessionEvent]) -> list[str]:
    items = [event.item for event in of(OutputItemDone, events)]
    return [item.text.strip() for item in items if isinstance(item, MessageItem)]


@pytest.mark.parametrize("paced_by", ["server", "client"])
def test_an_announcement_waits_until_the_user_is_answered(paced_by: PlayoutPacing) -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 300))
        assert session.say(RING)
        await speak(session, (ONE, 1000))
        assert session.next_sound_event is None
        assert not session.expects_response
        await speak(session, (SILENCE, 6000))

    events = run_session(World(), scenario, paced_by=paced_by)
    assert said(events) == ["you said one.", RING]
    told = names(events)
    assert told.index("SpeechStopped") < told.index("ResponseCreated")
    assert [done.status for done in of(ResponseDone, events)] == ["completed"] * 2


def test_an_announcement_has_a_voice_and_language_of_its_own() -> None:
    async def scenario(session: Session) -> None:
        session.say(RING, language="de")
        session.say(RING, voice="high")
        session.say(RING)
        await speak(session, (SILENCE, 6000))

    world = World()
    assert said(run_session(world, scenario)) == [RING] * 3
    assert world.tts.voices_asked == ["tief", "high", "low"]


def test_an_announcement_follows_noise_at_once() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (5000, 300))
        session.say(RING)
        await speak(session, (5000, 500), (SILENCE, 1000))
        assert session.expects_response

    assert said(run_session(World(), scenario)) == [RING]


def test_an_announcement_waits_at_most_a_fixed_time_for_the_user() -> None:
    times: list[float] = []

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 300))
        session.say(RING)
        asked = asyncio.get_running_loop().time()
        while not session.expects_response:
            await speak(session, (ONE, 20))
        times.append(asyncio.get_running_loop().time() - asked)
        await speak(session, (SILENCE, 6000))

    events = run_session(World(), scenario)
    assert times == [pytest.approx(MAX_SILENT_S, abs=0.05)]
    assert RING in said(events)
    assert len(of(SpeechStopped, events)) == 1


def test_announcements_keep_their_order() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 300))
        session.say("first.")
        await speak(session, (ONE, 300))
        session.say("second.")
        await speak(session, (SILENCE, 9000))

    assert said(run_session(World(), scenario)) == ["you said one.", "first.", "second."]


def test_waiting_responses_and_announcements_are_limited_and_all_given() -> None:
    apart = ResponseRequest(in_conversation=False)

    async def scenario(session: Session) -> None:
        session.say("begin")
        await asyncio.sleep(0.05)
        for _ in range(MAX_WAITING):
            session.create_response(apart)
        with pytest.raises(Conflict) as refused:
            session.create_response(apart)
        assert refused.value.code == "too_many_active_responses"
        rings = [session.say(f"ring {number}") for number in range(MAX_WAITING + 1)]
        assert rings == [True] * MAX_WAITING + [False]
        await speak(session, (ONE, 400), (SILENCE, 60_000))

    settings = SessionSettings(turn_detection=TurnDetection(interrupt_response=False))
    events = run_session(World(), scenario, settings)
    assert len(of(ResponseCreated, events)) == 1 + MAX_WAITING + MAX_WAITING + 1
    assert {done.status for done in of(ResponseDone, events)} == {"completed"}


class SlowTts(ToneTts):
    """A voice whose first sound comes after `first_s`."""

    def __init__(self, first_s: float) -> None:
        super().__init__()
        self.first_s = first_s

    async def speak(
        self, text: AsyncIterable[str], **options: Any
    ) -> AsyncGenerator[AudioFrame, None]:
        await asyncio.sleep(self.first_s)
        async for frame in super().speak(text, **options):
            yield frame


@pytest.mark.parametrize("paced_by", ["server", "client"])
@pytest.mark.parametrize(
    ("spoken_ms", "first_s", "heard_s"),
    [(400, 0.1, 0.05), (1500, 0.1, 0.05), (1500, 0.1, 0.7), (400, 3, 0.05), (400, 3, 0.7)],
)
def test_a_user_who_speaks_before_an_announcement_sounds_is_answered_first(
    paced_by: PlayoutPacing, spoken_ms: int, first_s: float, heard_s: float
) -> None:
    """The announcement waits for its voice or for its playout, and the words that interrupt it are
    known during the speech or after it."""

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 40))
        assert session.say(RING)
        await speak(session, (ONE, spoken_ms), (SILENCE, 12_000))

    world = World(LevelAsr(heard_s), tts=SlowTts(first_s))
    events = run_session(world, scenario, paced_by=paced_by)
    done = of(ResponseDone, events)
    assert len(done) == 3
    told = [one.output[0] for one in done if one.status == "completed" and one.output]
    texts = [item.text.strip() for item in told if isinstance(item, MessageItem)]
    assert texts[-2:] == ["you said one.", RING]


@pytest.mark.parametrize("heard_s", [0.05, 0.7])
def test_a_user_who_interrupts_an_answer_is_answered_before_a_waiting_announcement(
    heard_s: float,
) -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 2500))
        assert session.expects_response
        assert session.say(RING)
        await speak(session, (TWO, 400), (SILENCE, 9000))

    world = World(LevelAsr(heard_s), tts=ToneTts(6000))
    assert said(run_session(world, scenario))[-2:] == ["you said two.", RING]


def test_an_announcement_that_waits_for_the_user_cannot_be_cancelled() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 300))
        assert session.say(RING)
        await speak(session, (ONE, 300))
        with pytest.raises(Conflict):
            session.cancel_response()
        await speak(session, (SILENCE, 9000))

    assert said(run_session(World(), scenario)) == ["you said one.", RING]


def test_an_announcement_that_a_client_cancelled_is_not_repeated() -> None:
    async def scenario(session: Session) -> None:
        assert session.say(RING)
        await asyncio.sleep(0.05)
        session.cancel_response()
        session._responses.queue.interrupt()  # before its end is reported
        await speak(session, (SILENCE, 5000))

    events = run_session(World(tts=SlowTts(1)), scenario)
    assert [(one.status, one.reason) for one in of(ResponseDone, events)] == [
        ("cancelled", "client_cancelled")
    ]
