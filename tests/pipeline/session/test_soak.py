"""A thousand turns of one session, in virtual time: its memory does not grow with them."""

import asyncio
import gc

import pytest

from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings, TurnDetection
from tests.loop import run_virtual
from tests.pipeline.fakes import LevelAsr, ToneTts, World, speak

pytestmark = pytest.mark.live

SILENCE, ONE, TWO, FOUR, NOISE, UH_HUH = 0, 1000, 2000, 4000, 5000, 6000
TURNS = 1000
WARM = 600
"""The number of turns after which bounded stores are full: a history of 400 items, 32 answers,
caches."""

KINDS = (
    ((ONE, 300), (SILENCE, 500)),
    ((ONE, 200), (SILENCE, 100), (TWO, 200), (SILENCE, 500)),  # a draft is dropped
    ((FOUR, 300), (SILENCE, 500)),  # a tool is called
    ((ONE, 300), (SILENCE, 360), (UH_HUH, 200), (SILENCE, 500)),  # the answer goes on
    ((ONE, 300), (SILENCE, 360), (TWO, 300), (SILENCE, 500)),  # the answer is interrupted
    ((NOISE, 300), (SILENCE, 500)),
)


async def _drain(session: Session) -> None:
    async for _ in session.events:
        pass


def _forget(world: World) -> None:
    """Clears what the scripted engines have recorded."""
    for remembered in (world.asr.asked, world.asr.decoded, world.asr.forgotten, world.asr.hurried):
        remembered.clear()
    world.llm.asked.clear()
    for told in (world.llm.languages_asked, world.llm.options_asked, world.llm.tools_asked):
        told.clear()
    world.metrics.observed.clear()


def test_a_thousand_turns_leave_no_objects_or_tasks() -> None:
    world = World(asr=LevelAsr(0.02), tts=ToneTts(500))
    world.llm.word_s = 0.01
    settings = SessionSettings(turn_detection=TurnDetection(silence_ms=200))
    objects: dict[int, int] = {}
    tasks_left: dict[int, set[str]] = {}

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(settings, paced_by="server")
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(_drain(session), name="drain")
            for turn in range(1, TURNS + 1):
                await speak(session, *KINDS[turn % len(KINDS)])
                if turn in (WARM, TURNS):
                    await speak(session, (SILENCE, 3000))
                    assert world.drafts.count == 0
                    _forget(world)
                    gc.collect()
                    objects[turn] = len(gc.get_objects())
                    tasks_left[turn] = {task.get_name() for task in asyncio.all_tasks()}

    run_virtual(main())
    count = world.metrics.counts
    assert count["earshot_turns"] >= TURNS
    assert count["earshot_speculation:resumed"] >= TURNS / 10
    assert count["earshot_barge_in:resumed"] >= TURNS / 10
    assert count["earshot_barge_in:interruption"] >= TURNS / 10
    assert tasks_left[WARM] == tasks_left[TURNS]
    assert objects[TURNS] - objects[WARM] < 300, "less than one per two turns"
