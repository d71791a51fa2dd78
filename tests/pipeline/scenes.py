"""Whole sessions in virtual time: running one, and checks of its events."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from core.conversation.events import (
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    OutputAudioDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    SessionEvent,
)
from core.conversation.ids import new_id
from core.ports import DeviceLocation
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import PlayoutPacing, SessionSettings
from tests.loop import run_virtual
from tests.pipeline.fakes import (
    EchoLlm,
    LevelAsr,
    World,
    collect,
    speak,
)

E = TypeVar("E")

SILENCE, ONE, TWO, UH_HUH, NOISE = 0, 1000, 2000, 6000, 5000
"Levels of samples which the scripted recogniser takes for these words (`fakes.WORDS`)."

ANSWER_TIME_MS = 3000


def talkative(delay_s: float = 0.05) -> World:
    """Returns a world that answers with about five seconds of sound."""
    ending = ", and this, and that, and then some more, and again, and that was all of it"
    world = World(asr=LevelAsr(delay_s), llm=EchoLlm(ending=ending))
    world.tts.clause_ms = 4000
    return world


def of(kind: type[E], events: list[SessionEvent]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def run_session(
    world: World,
    scenario: Callable[[Session], Awaitable[None]],
    settings: SessionSettings | None = None,
    paced_by: PlayoutPacing = "server",
    place: DeviceLocation | None = None,
) -> list[SessionEvent]:
    """Runs a scenario on one session whose client names its conversation; returns all its
    events."""
    events: list[SessionEvent] = []

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=10)
        opened = sessions.open(
            settings or SessionSettings(),
            paced_by=paced_by,
            conversation_id=new_id("conv"),
            place=place,
        )
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(collect(session, events))
            await scenario(session)
        assert sessions.count == 0

    run_virtual(main())
    return events


async def one_turn(session: Session) -> None:
    await speak(session, (SILENCE, 200), (1000, 600), (2000, 400), (SILENCE, ANSWER_TIME_MS))


def nothing_is_said_of_what_is_gone(events: list[SessionEvent]) -> None:
    """Checks that no event names a deleted item: clients forget it when they hear of its
    deletion."""
    gone: set[str] = set()
    for event in events:
        match event:
            case ItemDeleted(item_id):
                assert item_id not in gone
                gone.add(item_id)
            case ItemAdded(item=item) | OutputItemAdded(item=item) | OutputItemDone(item=item):
                assert gone.isdisjoint({item.id, event.previous_item_id})
            case InputCommitted(item_id, previous):
                assert gone.isdisjoint({item_id, previous})
            case OutputTextDelta(item_id=item_id) | OutputAudioDelta(item_id=item_id):
                assert item_id not in gone


def counted(world: World, outcome: str) -> float:
    return world.metrics.counts.get(f"earshot_speculation:{outcome}", 0)
