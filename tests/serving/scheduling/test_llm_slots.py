"""Drafts and answers that share a language model: answers to finished turns go first."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from core.conversation.events import (
    OutputTextDelta,
    ResponseDone,
    SessionEvent,
    TranscriptionCompleted,
)
from core.errors import OverloadedError
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings, TurnDetection
from pipeline.speech.language.language_id import TextLanguageDetector
from serving.scheduling.llm_slots import (
    DEFAULT_SLOTS,
    SLOT_WAIT_S,
    DraftBudget,
    LlmSlots,
    SlotHolder,
)
from tests.loop import run_virtual
from tests.pipeline.fakes import Adder, EchoLlm, World, collect, speak
from tests.pipeline.scenes import counted, of

pytestmark = pytest.mark.many

SILENCE, ONE, TWO, FOUR = 0, 1000, 2000, 4000
CLOSING_S = 0.05


class SeatedLlm(EchoLlm):
    """A model that writes few answers at once, refuses further ones, and takes a moment to stop."""

    def __init__(self, max_concurrency: int | None, word_s: float = 0.5) -> None:
        super().__init__(word_s)
        self.max_concurrency = max_concurrency
        self.taken = self.most = self.refused = 0

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall, None]:
        if self.max_concurrency is not None and self.taken >= self.max_concurrency:
            self.refused += 1
            raise OverloadedError("no seat", retry_after_s=2, code="engine_busy")
        self.taken += 1
        self.most = max(self.most, self.taken)
        try:
            async for delta in super().reply(messages, tools, language=language, options=options):
                yield delta
        except (GeneratorExit, asyncio.CancelledError):
            await asyncio.sleep(CLOSING_S)
            raise
        finally:
            self.taken -= 1


Script = tuple[int, Callable[[Session], Awaitable[None]]]
"The silence in ms that ends a turn, and the actions in the session."


def run_sessions(world: World, *scripts: Script) -> list[list[SessionEvent]]:
    """Runs the sessions concurrently on one server; returns the events of each."""
    told: list[list[SessionEvent]] = [[] for _ in scripts]

    async def one(sessions: Sessions, index: int) -> None:
        silence_ms, script = scripts[index]
        settings = SessionSettings(turn_detection=TurnDetection(silence_ms=silence_ms))
        opened = sessions.open(settings, paced_by="server")
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(collect(session, told[index]))
            await script(session)

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=len(scripts))
        async with asyncio.TaskGroup() as tasks:
            for index in range(len(scripts)):
                tasks.create_task(one(sessions, index))
        assert world.drafts.count == 0

    run_virtual(main())
    return told


def saying(*script: tuple[int, int], silence_ms: int = 500) -> Script:
    return silence_ms, lambda session: speak(session, *script)


def statuses(events: list[SessionEvent]) -> list[str]:
    return [done.status for done in of(ResponseDone, events)]


def test_drafts_of_four_paused_speakers_leave_the_fifth_a_slot() -> None:
    world = World(llm=SeatedLlm(4))
    paused = (ONE, 300), (SILENCE, 2500), (ONE, 300)
    pausing = [saying((SILENCE, 20 * n), *paused, silence_ms=5000) for n in range(4)]
    asking = saying((SILENCE, 400), (TWO, 400), (SILENCE, 4000))
    *_, events = run_sessions(world, *pausing, asking)
    assert statuses(events) == ["completed"]
    assert counted(world, "refused") == 2, "of the fourth and of the fifth: the last seat is free"
    assert counted(world, "load") == 0


def test_a_single_slot_is_only_for_finished_turns() -> None:
    world = World(llm=SeatedLlm(1))
    pausing = saying((ONE, 300), (SILENCE, 8000), silence_ms=4000)
    asking = saying((SILENCE, 400), (TWO, 400), (SILENCE, 4000))
    one, two = run_sessions(world, pausing, asking)
    assert statuses(one) == statuses(two) == ["completed"]
    assert (counted(world, "refused"), counted(world, "used")) == (2, 0)


def test_a_draft_is_dropped_for_an_answer_and_its_turn_answered_later() -> None:
    """The draft is written from 0.4 s to 3.4 s; two turns end at 1.3 s, with two slots."""
    llm = SeatedLlm(2, word_s=1.0)
    world, live = World(llm=llm), list[int]()

    async def pausing(session: Session) -> None:
        for ms in (700, 1500, 8000):
            await speak(session, *[(ONE, 300)] * (not live), (SILENCE, ms))
            live.append(world.drafts.count)

    asking = saying((SILENCE, 400), (TWO, 400), (SILENCE, 6000))
    told = run_sessions(world, (5000, pausing), asking, asking)
    assert [statuses(events) for events in told] == [["completed"]] * 3
    assert ["".join(e.delta for e in of(OutputTextDelta, events)) for events in told] == [
        "you said one. ",
        "you said two. ",
        "you said two. ",
    ]
    assert live == [1, 0, 0]
    assert (counted(world, "load"), counted(world, "used"), llm.closed_early) == (1, 0, 1)
    assert (llm.refused, llm.most) == (0, 2), "it was closed before the other began"
    assert len(llm.asked) == 4


def test_a_draft_whose_turn_has_ended_is_not_dropped() -> None:
    """It is written from 0.4 s to 3.4 s and confirmed at 0.8 s; two other turns end at 1.3 s."""
    llm = SeatedLlm(2, word_s=1.0)
    world = World(llm=llm)
    drafted = saying((ONE, 300), (SILENCE, 8000))
    asking = saying((SILENCE, 400), (TWO, 400), (SILENCE, 6000))
    told = run_sessions(world, drafted, asking, asking)
    assert statuses(told[0]) == ["completed"]
    assert sorted(statuses(told[1]) + statuses(told[2])) == ["completed", "failed"]
    assert (counted(world, "used"), counted(world, "load"), llm.refused) == (1, 0, 1)


def test_many_drafts_of_paused_speakers_fail_no_turn() -> None:
    llm = SeatedLlm(3, word_s=0.3)
    world = World(llm=llm)

    turns = [(TWO, 400), (SILENCE, 3600)] * 3
    stuttering = [(ONE, 200), (SILENCE, 700)] * 15
    flood = [saying((SILENCE, 20 * n), *stuttering, silence_ms=1500) for n in range(10)]
    talking = [saying((SILENCE, 400 + 20 * n), *turns) for n in range(3)]
    told = run_sessions(world, *flood, *talking)
    assert [statuses(events) for events in told[10:]] == [["completed"] * 3] * 3
    assert [len(of(TranscriptionCompleted, events)) for events in told[:10]] == [0] * 10
    assert counted(world, "load") >= 3, "drafts were given up for those who had finished"
    assert (llm.refused, llm.most) == (0, 3)


def test_a_written_question_goes_before_drafts() -> None:
    llm = SeatedLlm(2, word_s=1.0)
    world = World(llm=llm)
    answers: list[str] = []

    async def ask() -> None:
        exchanges = OneShotResponses(world.services(), world.conversations, TextLanguageDetector())
        async with exchanges.open(OneShotRequest("hello", language="en")) as exchange:
            answers.append(await exchange.text())

    async def asking(session: Session) -> None:
        await speak(session, (SILENCE, 1000))
        await asyncio.gather(ask(), ask())

    run_sessions(world, saying((ONE, 300), (SILENCE, 3000), silence_ms=5000), (500, asking))
    assert answers == ["you said hello."] * 2
    assert (counted(world, "load"), llm.refused) == (1, 0)


class SlowAdder(Adder):
    calls = 0

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        self.calls += 1
        await asyncio.sleep(1.5)
        return await super().call(name, arguments, context)


def test_a_draft_continues_after_its_tools_only_if_a_slot_stays_free() -> None:
    llm, slow = SeatedLlm(2, word_s=1.0), SlowAdder()
    world = World(llm=llm, providers=[slow])

    async def pausing(session: Session) -> None:
        await speak(session, (FOUR, 300), (SILENCE, 2000))
        assert (slow.calls, world.drafts.count, len(llm.asked)) == (1, 1, 2), "it waits"
        await speak(session, (SILENCE, 2200))
        assert (world.drafts.count, len(llm.asked)) == (1, 3), "the other's answer has been written"
        await speak(session, (SILENCE, 7000))

    asking = saying((SILENCE, 100), (TWO, 400), (SILENCE, 6000))
    told = run_sessions(world, (5000, pausing), asking)
    assert [statuses(events) for events in told] == [["completed"]] * 2
    assert (counted(world, "used"), counted(world, "load"), len(llm.asked)) == (2, 0, 3)


def test_a_model_without_a_number_of_slots_has_the_default() -> None:
    async def main() -> None:
        seats = DraftBudget().slots(EchoLlm())
        async with AsyncExitStack() as stack:
            for _ in range(DEFAULT_SLOTS - 1):
                assert seats.is_free_for_draft
                await stack.enter_async_context(seats.take(SlotHolder()))
            assert not seats.is_free_for_draft
            await stack.enter_async_context(seats.take(SlotHolder()))
            async with seats.take(
                SlotHolder()
            ):  # its own queue takes requests for which there is no room
                pass
        assert seats.is_free_for_draft

    run_virtual(main())


@dataclass
class Holder:
    """The holder of a slot, until `end` was called and a moment has passed."""

    seats: LlmSlots
    is_draft: bool = False
    seated: asyncio.Event = field(default_factory=asyncio.Event)
    claim: SlotHolder = field(default_factory=SlotHolder)

    async def run(self) -> None:
        over = asyncio.Event()

        def give_up() -> None:
            self.claim.is_over = True
            over.set()

        self.end = give_up
        self.claim.give_up = give_up if self.is_draft else None
        async with self.seats.take(self.claim):
            self.seated.set()
            await over.wait()
            await asyncio.sleep(CLOSING_S)


def holders(
    scene: Callable[[LlmSlots, Callable[..., Holder]], Awaitable[None]], max_concurrency: int = 2
) -> None:
    async def main() -> None:
        seats, all_ = LlmSlots(max_concurrency), list[Holder]()
        async with asyncio.TaskGroup() as tasks:

            def sit(*, is_draft: bool = False) -> Holder:
                all_.append(Holder(seats, is_draft))
                tasks.create_task(all_[-1].run())
                return all_[-1]

            await scene(seats, sit)
            for holder in all_:
                holder.end()
        assert seats.is_free_for_draft

    run_virtual(main())


def test_the_oldest_draft_ends_first_and_each_waiting_answer_ends_one() -> None:
    async def scene(seats: LlmSlots, sit: Callable[..., Holder]) -> None:
        old, new, _ = sit(is_draft=True), sit(is_draft=True), sit()
        await asyncio.sleep(0)
        first = sit()
        await asyncio.sleep(CLOSING_S / 2)
        assert (old.claim.is_over, new.claim.is_over, first.seated.is_set()) == (True, False, False)
        second = sit()
        await asyncio.sleep(CLOSING_S)
        assert first.seated.is_set()
        assert new.claim.is_over
        await asyncio.sleep(CLOSING_S)
        assert second.seated.is_set()

    holders(scene, 3)


def test_an_answer_ends_only_drafts() -> None:
    async def scene(seats: LlmSlots, sit: Callable[..., Holder]) -> None:
        adopted, answer = sit(is_draft=True), sit()
        await asyncio.sleep(0)
        seats.adopt(adopted.claim)
        third = sit()
        await asyncio.sleep(0)
        assert third.seated.is_set(), "it is the model's to refuse it"
        assert (adopted.claim.is_over, answer.claim.is_over) == (False, False)

    holders(scene)


def test_a_slot_that_is_being_released_is_waited_for() -> None:
    async def scene(seats: LlmSlots, sit: Callable[..., Holder]) -> None:
        void, draft, _ = sit(is_draft=True), sit(is_draft=True), sit()
        await asyncio.sleep(0)
        void.end()
        answer = sit()
        await asyncio.sleep(CLOSING_S / 2)
        assert not answer.seated.is_set()
        await asyncio.sleep(CLOSING_S)
        assert answer.seated.is_set()
        assert not draft.claim.is_over

    holders(scene, 3)


def test_a_draft_that_replaces_another_begins_once_that_has_closed() -> None:
    async def scene(seats: LlmSlots, sit: Callable[..., Holder]) -> None:
        former = sit(is_draft=True)
        await asyncio.sleep(0)
        former.end()
        assert seats.is_free_for_draft
        draft = sit(is_draft=True)
        await asyncio.sleep(CLOSING_S / 2)
        assert not draft.seated.is_set(), "it would have the last seat"
        await asyncio.sleep(CLOSING_S)
        assert draft.seated.is_set()

    holders(scene)


def test_a_waiting_draft_continues_when_a_slot_is_free_or_its_turn_ends() -> None:
    async def scene(seats: LlmSlots, sit: Callable[..., Holder]) -> None:
        answer, first, second = sit(), sit(is_draft=True), sit(is_draft=True)
        await asyncio.sleep(0)
        assert not first.seated.is_set()
        answer.end()
        await asyncio.sleep(2 * CLOSING_S)
        assert (first.seated.is_set(), second.seated.is_set()) == (True, False)
        seats.adopt(second.claim)
        await asyncio.sleep(CLOSING_S)
        assert second.seated.is_set()
        assert not first.claim.is_over

    holders(scene)


def test_a_model_that_does_not_stop_is_waited_for_up_to_a_limit() -> None:
    async def main() -> None:
        loop, seats = asyncio.get_running_loop(), LlmSlots(1)
        async with seats.take(SlotHolder(is_over=True)):
            began = loop.time()
            async with seats.take(SlotHolder()):
                assert loop.time() - began == SLOT_WAIT_S

    run_virtual(asyncio.wait_for(main(), 60))


def test_a_cancelled_wait_holds_no_slot() -> None:
    async def scene(seats: LlmSlots, sit: Callable[..., Holder]) -> None:
        draft, _ = sit(is_draft=True), sit()
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(Holder(seats).run())
        await asyncio.sleep(CLOSING_S / 2)
        waiting.cancel()
        await asyncio.sleep(CLOSING_S)
        assert draft.claim.is_over
        last = sit()
        await asyncio.sleep(0)
        assert last.seated.is_set()

    holders(scene)
