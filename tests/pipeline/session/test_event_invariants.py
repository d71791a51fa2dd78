"""The order of a session's events holds for random actions of a client at random moments."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.conversation.events import (
    HypothesisChanged,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    OutputAudioDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
    SpeechDiscarded,
    SpeechStarted,
    SpeechStopped,
    TranscriptionCompleted,
    TranscriptionFailed,
    TurnTimeline,
)
from core.conversation.items import MessageItem, TextPart
from core.errors import EngineError, RequestError
from core.ports import ToolContext, ToolOutcome, ToolSpec
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import (
    BargeInPolicy,
    PlayoutPacing,
    ResponseRequest,
    SessionSettings,
    TurnDetection,
)
from tests.loop import run_virtual
from tests.pipeline.fakes import FRAME, WORDS, LevelAsr, World, collect, speak
from tests.pipeline.scenes import nothing_is_said_of_what_is_gone

STEPS = 25
LEVELS = (0, 0, 0, 0, 1000, 2000, 3000, 4000, 5000, 6000)
DETECTIONS = (
    TurnDetection(),
    TurnDetection(silence_ms=200),
    TurnDetection(interrupt_response=False),
    TurnDetection(create_response=False),
    TurnDetection(kind="semantic_vad", eagerness="high"),
    TurnDetection(kind="semantic_vad", eagerness="low"),
    None,
)
SETTLE_S = 90.0


@dataclass
class Chance:
    """An end-of-turn engine with random results, and a tool that is slow or fails."""

    rng: random.Random
    name = "chance"

    def probability(self, pcm: Pcm) -> float | None:
        return self.rng.choice([None, 0.05, 0.5, 0.95])

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        is_read_only = self.rng.random() < 0.5
        return [ToolSpec("add", "Adds.", {"type": "object"}, is_read_only=is_read_only)]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        await asyncio.sleep(self.rng.choice([0, 0.1, 2, 20]))
        if self.rng.random() < 0.3:
            raise EngineError("tool", "add", "fails on purpose")
        return ToolOutcome({"sum": arguments["a"] + arguments["b"]})


class Client:
    """A client that does random things at random moments, some of them at the same moment."""

    def __init__(self, session: Session, world: World, rng: random.Random) -> None:
        self.session, self.world, self.rng = session, world, rng
        self.items: list[str] = []
        self.number = 0
        self.actions: list[Callable[[], None]] = [
            session.commit_input,
            session.clear_input,
            session.clear_output,
            session.cancel_response,
            self.write,
            self.ask,
            self.ask,
            self.configure,
            self.truncate,
            self.announce,
            self.toggle_failure,
        ]

    def write(self) -> None:
        self.number += 1
        words = " ".join("abcdefghij"[: self.rng.randint(1, 10)])
        self.session.add_item(MessageItem(f"own_{self.number}", "user", (TextPart(words),)))

    def ask(self) -> None:
        self.session.create_response(
            ResponseRequest(
                modality=self.rng.choice([None, "text", "audio"]),
                in_conversation=self.rng.random() < 0.8,
            )
        )

    def configure(self) -> None:
        self.session.configure(
            SessionSettings(
                turn_detection=self.rng.choice(DETECTIONS),
                barge_in=self.rng.choice(["on", "on", "patient", "off"]),
                echo=self.rng.choice(["off", "off", "half_duplex"]),
                instructions=self.rng.choice(["", "Be brief."]),
                modality=self.rng.choice(["audio", "audio", "text"]),
            )
        )

    def announce(self) -> None:
        assert self.session.say("the timer rings, it rings")

    def truncate(self) -> None:
        if self.items:
            self.session.truncate(self.rng.choice(self.items), self.rng.randint(0, 2000))

    def toggle_failure(self) -> None:
        failing = self.rng.choice(["asr", "llm", "tts", "none"])
        self.world.asr.broken = failing == "asr"
        self.world.llm.fails = failing == "llm"
        self.world.tts.fails = failing == "tts"

    async def act(self) -> None:
        for _ in range(STEPS):
            for _ in range(self.rng.choice([0, 1, 1, 2, 3])):
                with suppress(RequestError):
                    self.rng.choice(self.actions)()
                if self.rng.random() < 0.3:
                    await asyncio.sleep(0)
            level, frames = self.rng.choice(LEVELS), self.rng.choice([1, 5, 20, 40])
            for _ in range(frames):
                await asyncio.sleep(0.02)
                self.session.feed(AudioFrame(np.full(FRAME, level, np.int16), ASR_RATE_HZ, 0))
                self.session.pull()

    async def fall_silent(self) -> None:
        """Sends silence until the session is settled, at most for `SETTLE_S`."""
        self.world.asr.broken = self.world.llm.fails = self.world.tts.fails = False
        self.session.configure(SessionSettings())
        async with asyncio.timeout(SETTLE_S), asyncio.TaskGroup() as tasks:
            settled = tasks.create_task(self.session.settled())
            while not settled.done():
                await asyncio.sleep(0.02)
                self.session.feed(AudioFrame(np.zeros(FRAME, np.int16), ASR_RATE_HZ, 0))
                self.session.pull()


def world_of(rng: random.Random) -> World:
    delay_s = rng.choice([0.0, 0.02, 0.05, 0.3, 1.0])
    world = World(asr=LevelAsr(delay_s, is_incremental=rng.random() < 0.3))
    world.llm.word_s = rng.choice([0.0, 0.02, 0.1])
    world.llm.ending = rng.choice([".", "?", ", and this, and that, and then all the rest of it."])
    world.tts.clause_ms = rng.choice([300, 1000, 3000])
    chance = Chance(random.Random(rng.random()))
    world.providers, world.endpoint = [chance], rng.choice([None, chance])
    return world


def is_at_rest(session: Session, world: World) -> None:
    """Checks that a settled session has no work left."""
    assert world.drafts.count == 0
    assert session._playout._is_flowing.is_set()
    assert not session._responses._barge_in.is_open
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not [name for name in names if name.startswith(("draft", "resp", "transcribe", "tool"))]


def live(seed: int, paced_by: PlayoutPacing) -> list[SessionEvent]:
    rng = random.Random(seed)
    world = world_of(rng)
    events: list[SessionEvent] = []
    ends_calmly = rng.random() < 0.7

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(SessionSettings(), paced_by=paced_by)
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(collect(session, events))
            client = Client(session, world, rng)
            await client.act()
            if ends_calmly:
                await client.fall_silent()
                is_at_rest(session, world)
                history_is_what_was_said(session, events)
        assert sessions.count == 0
        assert world.drafts.count == 0
        await asyncio.sleep(0)
        told = len(events)
        session.clear_input()
        await asyncio.sleep(5)
        assert len(events) == told
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())
    responses_are_whole(events)
    playout_is_balanced(events)
    nothing_is_said_of_what_is_gone(events)
    utterances_are_in_order(events)
    if ends_calmly:
        started = {e.item_id for e in events if isinstance(e, InputCommitted)}
        ended = {
            e.item_id for e in events if isinstance(e, TranscriptionCompleted | TranscriptionFailed)
        }
        assert started == ended
    turns_are_told(events)
    return events


def history_is_what_was_said(session: Session, events: list[SessionEvent]) -> None:
    """Checks that each answer is remembered as far as it was sent, and no word of it twice."""
    told: dict[str, str] = {}
    for event in events:
        if isinstance(event, OutputTextDelta):
            told[event.item_id] = told.get(event.item_id, "") + event.delta
    for item in session._conversation.history.items:
        if isinstance(item, MessageItem) and item.id in told:
            words, all_words = item.text.split(), told[item.id].split()
            assert words == all_words[: len(words)]


def responses_are_whole(events: list[SessionEvent]) -> None:
    """Checks that responses come one at a time, apart from written ones out of band."""
    beside = {
        e.response_id
        for e in events
        if isinstance(e, ResponseCreated)
        and not e.parameters.in_conversation
        and e.modality == "text"
    }
    of_response = [(getattr(event, "response_id", None), event) for event in events]
    one_after_another([event for of, event in of_response if of not in beside])
    for response_id in beside:
        one_after_another([event for of, event in of_response if of == response_id])


def one_after_another(events: list[SessionEvent]) -> None:
    """Checks that each is created and done once, and its item is added, filled and done in
    between."""
    current: str | None = None
    item: str | None = None
    is_item_done = False
    seen: set[str] = set()
    for event in events:
        match event:
            case ResponseCreated(response_id=response_id):
                assert current is None
                assert response_id not in seen
                current, item, is_item_done = response_id, None, False
                seen.add(response_id)
            case OutputItemAdded(response_id=response_id, item=added):
                assert (response_id, item) == (current, None)
                item = added.id
            case (
                OutputTextDelta(response_id=response_id) | OutputAudioDelta(response_id=response_id)
            ):
                assert (response_id, event.item_id, is_item_done) == (current, item, False)
            case OutputItemDone(response_id=response_id, item=done):
                assert (response_id, done.id, is_item_done) == (current, item, False)
                is_item_done = True
            case ResponseDone(response_id=response_id, output=output):
                assert response_id == current
                assert is_item_done == (item is not None)
                assert [i.id for i in output] == ([] if item is None else [item])
                current = None
    assert current is None


def playout_is_balanced(events: list[SessionEvent]) -> None:
    playing: str | None = None
    for event in events:
        match event:
            case PlayoutStarted(response_id):
                assert playing is None
                playing = response_id
            case PlayoutStopped(response_id) | PlayoutCleared(response_id):
                assert playing == response_id
                playing = None
    assert playing is None


def turns_are_told(events: list[SessionEvent]) -> None:
    """Checks that each turn is reported once, none is lost, and the sound of each comes before its
    report."""
    traced = [e for e in events if isinstance(e, TurnTimeline)]
    assert len(traced) == len({turn.turn_id for turn in traced})
    committed = {e.item_id for e in events if isinstance(e, InputCommitted)}
    assert committed == {turn.item_id for turn in traced} - {None}
    sounding: set[str] = set()
    for event in events:
        match event:
            case PlayoutStarted(response_id):
                sounding.add(response_id)
            case TurnTimeline(response_id=str(response_id), marks=marks) if response_id in sounding:
                assert marks["playout_start"] <= marks["playout_end"]


def utterances_are_in_order(events: list[SessionEvent]) -> None:
    """Checks the order: speech starts, has partials, stops, is committed and transcribed; stable
    words only grow."""
    is_open: dict[str, bool] = {}
    stable: dict[str, list[str]] = {}
    known: list[str] = []
    for event in events:
        match event:
            case SpeechStarted(item_id):
                assert not any(is_open.values())
                is_open[item_id] = True
            case SpeechStopped(item_id) | SpeechDiscarded(item_id):
                assert is_open.pop(item_id, True)
                is_open[item_id] = False
            case HypothesisChanged(item_id=item_id):
                assert is_open.get(item_id, True)
                stable.setdefault(item_id, []).append(event.stable)
            case InputCommitted(item_id) | ItemAdded(MessageItem(id=item_id, role="user")):
                assert not is_open.get(item_id, False)
                is_open[item_id] = False
            case TranscriptionCompleted(item_id=item_id) | TranscriptionFailed(item_id=item_id):
                assert is_open[item_id] is False
                assert item_id not in known
                known.append(item_id)
    for words in stable.values():
        assert all(after.startswith(before) for before, after in pairwise(words))


@pytest.mark.parametrize("paced_by", ["server", "client"])
@pytest.mark.many
@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_events_holds_for_random_clients(seed: int, paced_by: PlayoutPacing) -> None:
    assert live(seed, paced_by)


POLICIES: tuple[BargeInPolicy, ...] = ("on", "patient", "off")


@pytest.mark.many
@pytest.mark.parametrize("seed", range(15))
def test_every_word_is_transcribed_once_and_the_question_comes_last_in_the_prompt(
    seed: int,
) -> None:
    rng = random.Random(seed)
    world = world_of(rng)
    spoken: list[str] = []
    events: list[SessionEvent] = []
    detection = rng.choice([d for d in DETECTIONS if d is not None and d.create_response])
    settings = SessionSettings(turn_detection=detection, barge_in=rng.choice(POLICIES))

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(settings, paced_by="server")
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(collect(session, events))
            for _ in range(12):
                level = rng.choice([1000, 1000, 2000, 2000, 3000, 6000])
                spoken.append(WORDS[level])
                await speak(session, (level, rng.choice([200, 300, 400, 700, 1200])))
                await speak(session, (0, rng.choice([100, 160, 300, 520, 640, 1000, 4000])))
                if rng.random() < 0.2:
                    session.say("the timer rings")
            await Client(session, world, rng).fall_silent()
            is_at_rest(session, world)

    run_virtual(main())
    gone = {event.item_id for event in events if isinstance(event, ItemDeleted)}
    kept = [e for e in events if isinstance(e, TranscriptionCompleted) and e.item_id not in gone]
    assert " ".join(event.transcript for event in kept).split() == spoken
    assert all(asked[-1].role != "assistant" for asked in world.llm.asked)
