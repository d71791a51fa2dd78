"""Recorded and replayed sessions without real engines: pacing, and the tools of a replay."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from core.conversation.events import OutputAudioDelta, SpeechStarted
from core.ports import DeviceLocation, ToolContext, ToolOutcome, ToolSpec
from engines.base import ToolCall
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import PlayoutPacing, SessionSettings
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import HomeTools
from pipeline.tools.toolbox import Toolbox
from server.commands.replay.run import (
    NOT_RUN,
    MemoryTraceSink,
    RecordedToolResults,
    ReplayEnvironment,
    replay,
)
from server.commands.replay.trace_reader import (
    RecordedSession,
    RecordedToolCall,
    RecordedTurn,
    parse_session,
)
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, World, speak
from tests.pipeline.scenes import ONE, SILENCE, TWO, UH_HUH, talkative

pytestmark = pytest.mark.many

CONTEXT = ToolContext("conv_1", "en")
KITCHEN = DeviceLocation("Kitchen", "dev_1")
HEARD_MS = 1500


@dataclass
class Adder:
    """A tool set whose tool changes something, so a replay may not call it."""

    ran: list[int] = field(default_factory=list[int])

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return [ToolSpec("add", "Adds.", {"type": "object"})]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        self.ran.append(arguments["a"] + arguments["b"])
        return ToolOutcome({"sum": self.ran[-1]})


def live(
    world: World, scenario: Callable[[Session], Awaitable[None]], paced_by: PlayoutPacing = "server"
) -> RecordedSession:
    """Runs a session and returns its trace."""
    kept = MemoryTraceSink()

    async def main() -> None:
        traced = replace(world.services(), trace=kept, traces_words=True, traces_sound=True)
        sessions = Sessions(traced, world.conversations, 1)
        settings = SessionSettings(language="en")
        async with sessions.open(settings, paced_by=paced_by, place=KITCHEN) as session:
            await scenario(session)

    run_virtual(main())
    written = [json.loads(json.dumps(record, default=str)) for record in kept.records]
    return parse_session("s", written)


def again(
    world: World, session: RecordedSession, *, speed: float = 1, acts: bool = False
) -> list[RecordedTurn]:
    """Replays a trace and returns its turns."""
    kept, rehearsal, found = MemoryTraceSink(), RecordedToolResults(), list[RecordedTurn]()

    async def main() -> None:
        override = None if acts else rehearsal.override
        toolbox = Toolbox(world.providers, world.metrics, override=override)
        around = replace(world.services(), toolbox=toolbox, trace=kept, traces_words=True)
        sessions = Sessions(around, world.conversations, 1)
        found.extend(await replay(ReplayEnvironment(sessions, kept, rehearsal), session, speed))

    run_virtual(main())
    return found


async def interrupts(session: Session) -> None:
    """Runs a client that reports its playout position when speech starts."""

    async def client() -> None:
        item_id, sounded = "", False
        async for event in session.events:
            if isinstance(event, OutputAudioDelta) and not sounded:
                item_id, sounded = event.item_id, True
            elif isinstance(event, SpeechStarted) and sounded and item_id:
                session.truncate(item_id, HEARD_MS)
                item_id = ""

    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(client())
        script = (ONE, 600), (SILENCE, 2400), (UH_HUH, 400), (SILENCE, 20_000)
        await speak(session, *script)
        listening.cancel()


def words(turns: Sequence[RecordedTurn]) -> list[tuple[str, tuple[str, str]]]:
    return [(turn.status, turn.words) for turn in turns]


def said_before(world: World) -> list[str]:
    return [m.text for m in world.llm.asked[-1] if m.role == "assistant"]


@pytest.mark.parametrize("speed", [1, 4])
def test_a_client_that_paces_playout_does_so_in_the_replay(speed: float) -> None:
    then, now = talkative(), talkative()
    session = live(then, interrupts, "client")
    assert (session.paced_by, session.place) == ("client", KITCHEN)
    assert words(again(now, session, speed=speed)) == words(session.turns)
    assert [turn.transcript for turn in session.turns] == ["one", "uh-huh"]
    assert said_before(now) == said_before(then), "cut where its client said that it was"

    uncut = talkative()
    again(uncut, replace(session, actions=()))
    assert len(said_before(uncut)[0]) > len(said_before(now)[0])
    assert words(again(talkative(), replace(session, paced_by="server"))) != words(session.turns)


def test_an_answer_cancelled_by_the_client_is_cancelled_in_the_replay() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 900))
        session.cancel_response()
        await speak(session, (SILENCE, 2000), (TWO, 600))
        session.clear_input()
        await speak(session, (SILENCE, 2000))

    def slow() -> World:
        world = talkative()
        world.llm.word_s = 0.3
        return world

    session = live(slow(), scenario)
    assert [step.action for step in session.actions] == ["cancel", "clear"]
    assert words(again(slow(), session)) == words(session.turns)


def test_an_answer_cut_by_the_end_of_the_session_is_not_cancelled_in_the_replay() -> None:
    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 900))

    world = talkative()
    world.llm.word_s = 0.3
    assert live(world, scenario).actions == []


async def asks(session: Session) -> None:
    await speak(session, (SILENCE, 200), (4000, 600), (SILENCE, 4000))


def test_a_tool_that_acts_returns_its_recorded_result_and_is_not_called() -> None:
    then, now = Adder(), Adder()
    session = live(World(providers=[then]), asks)
    assert (then.ran, session.turns[0].transcript) == ([4], "four")
    assert session.tool_calls == [RecordedToolCall("add", {"a": 2, "b": 2}, '{"sum": 4}')]
    assert words(again(World(providers=[now]), session)) == words(session.turns)
    assert now.ran == []


def test_a_tool_without_a_recorded_result_reports_that_it_was_not_run() -> None:
    then, now, world = Adder(), Adder(), World()
    session = replace(live(World(providers=[then]), asks), tool_calls=())
    world.providers = [now]
    again(world, session)
    assert now.ran == []
    assert [m.text for m in world.llm.asked[-1] if m.role == "tool"] == [NOT_RUN]
    assert json.loads(NOT_RUN)["error"] == "not_run_in_replay"


def test_a_tool_that_acts_is_called_on_request() -> None:
    then, now = Adder(), Adder()
    session = live(World(providers=[then]), asks)
    again(World(providers=[now]), session, acts=True)
    assert now.ran == [4]


def test_read_only_tools_and_the_simulated_home_are_called() -> None:
    home = Home(default_home(), language="en")
    toolbox = Toolbox([HomeTools(home)], Counts(), override=RecordedToolResults().override)
    lamps = ToolCall("c", "HassTurnOn", {"name": "kitchen lights"})

    async def main() -> None:
        (result,) = await toolbox.run([lamps], CONTEXT)
        assert result != NOT_RUN

    asyncio.run(main())
    session = live(World(), asks)
    assert words(again(World(), replace(session, tool_calls=()))) == words(session.turns)


def test_repeated_calls_get_their_recorded_results_in_order() -> None:
    rehearsal, adder = RecordedToolResults(), Adder()
    toolbox = Toolbox([adder], Counts(), override=rehearsal.override)
    call = ToolCall("c", "add", {"b": 1, "a": 1})

    async def main() -> None:
        rehearsal.begin([RecordedToolCall("add", {"a": 1, "b": 1}, f'"{n}"') for n in (1, 2)])
        told = [(await toolbox.run([call], CONTEXT))[0] for _ in range(3)]
        assert told == ['"1"', '"2"', NOT_RUN]
        rehearsal.begin([RecordedToolCall("add", {"a": 1, "b": 1}, '"3"')])
        rehearsal.begin([])
        assert await toolbox.run([call], CONTEXT) == [NOT_RUN]

    asyncio.run(main())
    assert adder.ran == []
