"""What is said unasked finds its moment: not while the user speaks; in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import pytest

from core.audio import AudioFrame
from core.errors import Conflict
from core.events import OutputItemDone, ResponseCreated, ResponseDone, SessionEvent, SpeechStopped
from core.items import MessageItem
from pipeline.response.queue import MAX_SILENT_S, MAX_WAITING
from pipeline.session.session import Session
from pipeline.shared.settings import PlayoutPacing, ResponseRequest, SessionSettings, TurnDetection
from tests.pipeline.fakes import LevelAsr, ToneTts, World, names, speak
from tests.pipeline.scenes import of, run_session

SILENCE, ONE, TWO = 0, 1000, 2000
RING = "the timer rings"


def said(events: list[SessionEvent]) -> list[str]:
    items = [event.item for event in of(OutputItemDone, events)]
    return [item.text.strip() for item in items if isinstance(item, MessageItem)]


@pytest.mark.parametrize("paced_by", ["server", "client"])
def test_who_speaks_is_heard_and_answered_first(paced_by: PlayoutPacing) -> None:
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


def test_noise_that_ends_gives_way_at_once() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (5000, 300))
        session.say(RING)
        await speak(session, (5000, 500), (SILENCE, 1000))
        assert session.expects_response

    assert said(run_session(World(), scenario)) == [RING]


def test_who_does_not_stop_is_told_in_the_end() -> None:
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


class SlowTts(ToneTts):
    """Begins after `first_s`."""

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
def test_who_speaks_before_its_first_sound_is_answered_before_it(
    paced_by: PlayoutPacing, spoken_ms: int, first_s: float, heard_s: float
) -> None:
    """Whether it waits for its voice then, or has all its sound and waits for the speaker; whether
    the words that interrupt it are known while he speaks, or after."""

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
def test_who_interrupts_an_answer_is_answered_before_what_waited_for_it(heard_s: float) -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 400), (SILENCE, 2500))
        assert session.expects_response
        assert session.say(RING)
        await speak(session, (TWO, 400), (SILENCE, 9000))

    world = World(LevelAsr(heard_s), tts=ToneTts(6000))
    assert said(run_session(world, scenario))[-2:] == ["you said two.", RING]


def test_what_waits_for_the_user_is_no_response_that_a_client_could_cancel() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (ONE, 300))
        assert session.say(RING)
        await speak(session, (ONE, 300))
        with pytest.raises(Conflict):
            session.cancel_response()
        await speak(session, (SILENCE, 9000))

    assert said(run_session(World(), scenario)) == ["you said one.", RING]


def test_an_announcement_that_a_client_cancelled_does_not_come_again() -> None:
    async def scenario(session: Session) -> None:
        assert session.say(RING)
        await asyncio.sleep(0.05)
        session.cancel_response()
        session._responses.queue.interrupt()  # before its end is told
        await speak(session, (SILENCE, 5000))

    events = run_session(World(tts=SlowTts(1)), scenario)
    assert [(one.status, one.reason) for one in of(ResponseDone, events)] == [
        ("cancelled", "client_cancelled")
    ]
