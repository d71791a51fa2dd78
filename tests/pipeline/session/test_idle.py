"""The idle timeout: if the user stays silent after the answer's sound, the assistant speaks
again."""

import pytest

from core.conversation.events import (
    InputCommitted,
    ItemDone,
    OutputTextDelta,
    PlayoutStopped,
    ResponseCreated,
    TimeoutTriggered,
)
from core.conversation.items import MessageItem, TextPart
from pipeline.conversation.history import SILENCE
from pipeline.session.session import Session
from pipeline.shared.settings import PlayoutPacing, ResponseRequest, SessionSettings, TurnDetection
from tests.pipeline.fakes import World, speak
from tests.pipeline.scenes import of, run_session
from tests.pipeline.scripted import Says

pytestmark = pytest.mark.many

PATIENCE_MS = 5000
PATIENT = SessionSettings(turn_detection=TurnDetection(idle_timeout_ms=PATIENCE_MS))


@pytest.mark.parametrize("paced_by", ["server", "client"])
def test_the_idle_timeout_counts_from_the_end_of_the_sound(paced_by: PlayoutPacing) -> None:
    world = World()
    asked: list[int] = []

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 600))  # answered with a second of sound
        await speak(session, (0, 1000 + PATIENCE_MS - 400))
        asked.append(len(world.llm.asked))
        await speak(session, (0, 1000))

    events = run_session(world, scene, PATIENT, paced_by)
    [triggered] = of(TimeoutTriggered, events)
    assert asked == [1]
    assert [message.text for message in world.llm.asked[1]][-1] == SILENCE
    assert triggered.audio_end_ms - triggered.audio_start_ms == PATIENCE_MS
    at = events.index(triggered)
    names = [type(event).__name__ for event in events[at + 1 : at + 5]]
    assert names == ["InputCommitted", "ItemAdded", "ItemDone", "ResponseCreated"]
    item = of(ItemDone, events)[-1].item
    assert isinstance(item, MessageItem)
    assert (item.id, item.text) == (triggered.item_id, "")
    assert of(InputCommitted, events)[-1].item_id == triggered.item_id


@pytest.mark.parametrize("timeouts", [0, 3])
def test_an_empty_answer_to_an_idle_timeout_is_not_replaced(timeouts: int) -> None:
    """An empty answer to a question is replaced by a sentence."""

    async def scene(session: Session) -> None:
        session.add_item(MessageItem("item_u", "user", (TextPart("hi"),)))
        session.create_response(ResponseRequest())
        await speak(session, (0, 2000 + timeouts * PATIENCE_MS))

    events = run_session(World(llm=Says("")), scene, PATIENT)
    assert len(of(TimeoutTriggered, events)) == timeouts
    assert (
        "".join(event.delta for event in of(OutputTextDelta, events)) == "I have no answer to that."
    )


def test_speech_prevents_the_idle_timeout() -> None:
    world = World()

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 600), (0, 4000), (2000, 6000), (0, 4000))

    events = run_session(world, scene, PATIENT)
    assert of(TimeoutTriggered, events) == []
    assert len(of(ResponseCreated, events)) == 2


@pytest.mark.parametrize(
    "settings",
    [
        SessionSettings(),
        SessionSettings(turn_detection=None),
        SessionSettings(
            turn_detection=TurnDetection(idle_timeout_ms=PATIENCE_MS, create_response=False)
        ),
    ],
)
def test_no_idle_timeout_without_the_setting_or_without_responses(
    settings: SessionSettings,
) -> None:
    async def scene(session: Session) -> None:
        session.add_item(MessageItem("item_u", "user", (TextPart("hi"),)))
        session.create_response(ResponseRequest())
        await speak(session, (0, 10_000))

    events = run_session(World(), scene, settings)
    assert of(TimeoutTriggered, events) == []
    assert len(of(PlayoutStopped, events)) == 1


def test_no_idle_timeout_before_the_first_answer() -> None:
    async def scene(session: Session) -> None:
        await speak(session, (0, 10_000))

    assert of(TimeoutTriggered, run_session(World(), scene, PATIENT)) == []


def test_the_idle_timeout_repeats_while_the_user_stays_silent() -> None:
    async def scene(session: Session) -> None:
        session.add_item(MessageItem("item_u", "user", (TextPart("hi"),)))
        session.create_response(ResponseRequest())
        await speak(session, (0, 3 * PATIENCE_MS + 4000))

    assert len(of(TimeoutTriggered, run_session(World(), scene, PATIENT))) == 3
