"""What is said unasked finds its moment: not while the user speaks; in virtual time."""

import asyncio

import pytest

from core.errors import Conflict
from core.events import OutputItemDone, ResponseCreated, ResponseDone, SessionEvent, SpeechStopped
from core.items import MessageItem
from pipeline.answering import MAX_SILENT_S, MAX_WAITING
from pipeline.playout import PacedBy
from pipeline.session import Session
from pipeline.settings import ResponseRequest, SessionSettings, TurnDetection
from tests.pipeline.fakes import World, names, speak
from tests.pipeline.test_session import of, run_session

SILENCE, ONE = 0, 1000
RING = "the timer rings"


def said(events: list[SessionEvent]) -> list[str]:
    items = [event.item for event in of(OutputItemDone, events)]
    return [item.text.strip() for item in items if isinstance(item, MessageItem)]


@pytest.mark.parametrize("paced_by", ["server", "client"])
def test_who_speaks_is_heard_and_answered_first(paced_by: PacedBy) -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 300))
        assert session.say(RING)
        await speak(session, (ONE, 1000))
        assert session.coming is None
        assert not session.is_answering
        await speak(session, (SILENCE, 6000))

    events = run_session(World(), scenario, paced_by=paced_by)
    assert said(events) == ["you said one.", RING]
    told = names(events)
    assert told.index("SpeechStopped") < told.index("ResponseCreated")
    assert [done.status for done in of(ResponseDone, events)] == ["completed"] * 2


def test_noise_that_ends_gives_way_at_once() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (5000, 300))
        session.say(RING)
        await speak(session, (5000, 500), (SILENCE, 1000))
        assert session.is_answering

    assert said(run_session(World(), scenario)) == [RING]


def test_who_does_not_stop_is_told_in_the_end() -> None:
    times: list[float] = []

    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 300))
        session.say(RING)
        asked = asyncio.get_running_loop().time()
        while not session.is_answering:
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


def test_what_was_taken_on_is_given_and_what_is_too_much_is_refused() -> None:
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
