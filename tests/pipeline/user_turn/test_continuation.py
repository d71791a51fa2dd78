"""Speech that pauses within a sentence is transcribed as one utterance and answered once; in
virtual time."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, ms_to_samples
from core.conversation.events import (
    HypothesisChanged,
    ItemDeleted,
    OutputItemAdded,
    OutputItemDone,
    PlayoutStarted,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
    SpeechStarted,
    TranscriptionCompleted,
    TranscriptionFailed,
    TurnTimeline,
)
from core.conversation.items import FunctionCallItem, FunctionOutputItem, Item, MessageItem
from core.errors import OverloadedError
from core.ports import ToolSpec
from engines.base import (
    AS_CONFIGURED,
    AsrItem,
    AsrResult,
    LlmOptions,
    Message,
    TextDelta,
    ToolCall,
)
from pipeline.session.session import Session
from pipeline.shared.settings import PlayoutPacing, ResponseRequest, SessionSettings, TurnDetection
from pipeline.user_turn.continuation import (
    MAX_CONTINUATIONS,
    MAX_FORMER_MS,
    RESUME_MS,
    Continuation,
)
from pipeline.user_turn.speech_detection.endpointing import INTERRUPT_MS
from serving.asr.scheduling import DecodePriority
from tests.pipeline.fakes import FRAME, EchoLlm, LevelAsr, World, speak
from tests.pipeline.scenes import counted, nothing_is_said_of_what_is_gone, of, run_session
from tests.pipeline.scripted import ToolLlm, Watched

pytestmark = pytest.mark.many

SILENCE, ONE, TWO, THREE, UH_HUH, WORDLESS = 0, 1000, 2000, 3000, 6000, 700
PAUSE = (SILENCE, 700)
"Longer than the wait of 450 ms, so that the answer has begun to sound."
SEMANTIC = TurnDetection(kind="semantic_vad")
SERVER = TurnDetection(silence_ms=450)


def talk(
    *script: tuple[int, int],
    world: World | None = None,
    detection: TurnDetection = SEMANTIC,
    paced_by: PlayoutPacing = "server",
    **settings: object,
) -> tuple[list[SessionEvent], World]:
    world = world or World()
    asked = replace(SessionSettings(turn_detection=detection), **settings)  # type: ignore[arg-type]

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), *script, (SILENCE, 4000))

    return run_session(world, scenario, asked, paced_by), world


def transcripts(events: Sequence[SessionEvent]) -> list[str]:
    return [event.transcript for event in events if isinstance(event, TranscriptionCompleted)]


def items(world: World) -> tuple[Item, ...]:
    return next(iter(world.conversations._conversations.values())).history.items


def texts(world: World) -> list[tuple[str, str]]:
    return [(i.role, i.text) for i in items(world) if isinstance(i, MessageItem)]


JOINED = [("user", "one two"), ("assistant", "you said one two. ")]


@pytest.mark.parametrize("paced_by", ["server", "client"])
@pytest.mark.parametrize("pause_ms", [480, 600, 700])
@pytest.mark.parametrize("detection", [SEMANTIC, SERVER], ids=lambda one: one.kind)
def test_a_sentence_with_a_pause_is_decoded_as_one(
    detection: TurnDetection, pause_ms: int, paced_by: PlayoutPacing
) -> None:
    script = ((ONE, 600), (SILENCE, pause_ms), (TWO, 600))
    events, world = talk(*script, detection=detection, paced_by=paced_by)
    assert transcripts(events) == ["one", "one two"]
    assert texts(world) == JOINED
    assert world.llm.asked[-1] == [Message("user", "one two")]


@pytest.mark.parametrize(
    ("level", "outcome"), [(TWO, "joined"), (UH_HUH, "apart"), (WORDLESS, "no_words")]
)
def test_what_became_of_speech_soon_after_a_turn_is_counted(level: int, outcome: str) -> None:
    _, world = talk((ONE, 600), PAUSE, (level, 600))
    counts = world.metrics.counts
    assert counts["earshot_turns_continued"] == 1
    assert counts[f"earshot_turns_continued:{outcome}"] == 1


def test_a_turn_that_nothing_follows_is_not_counted_as_continued() -> None:
    _, world = talk((ONE, 600))
    assert "earshot_turns_continued" not in world.metrics.counts


def test_the_joined_audio_has_every_sample_once() -> None:
    spoken: list[AudioFrame] = []
    world = World()

    async def scenario(session: Session) -> None:
        rng = np.random.default_rng(1)
        for level, duration_ms in ((0, 400), (1000, 600), PAUSE, (2000, 600), (0, 1000)):
            for _ in range(duration_ms // 20):
                await asyncio.sleep(0.02)
                pcm = (level + rng.integers(0, 50, FRAME)).astype(np.int16)
                spoken.append(AudioFrame(pcm, ASR_RATE_HZ, 0))
                session.feed(spoken[-1])
                session.pull()

    run_session(world, scenario, SessionSettings(turn_detection=SEMANTIC))
    everything = np.concatenate([frame.pcm for frame in spoken])
    _, _, item = world.asr.asked[-1]
    start = int(np.flatnonzero(everything == item.pcm[0])[0])
    candidates = [
        at
        for at in np.flatnonzero(everything == item.pcm[0])
        if np.array_equal(everything[at : at + len(item.pcm)], item.pcm)
    ]
    assert candidates, start
    assert candidates[0] <= ms_to_samples(400, ASR_RATE_HZ), "its padding, too"


def test_the_former_items_are_deleted_before_the_joined_response() -> None:
    events, _ = talk((ONE, 600), PAUSE, (TWO, 600))
    (added, answer), (cut, _) = of(OutputItemAdded, events), of(OutputItemDone, events)
    first, second = (event.item_id for event in of(SpeechStarted, events))
    assert [e.item_id for e in of(ItemDeleted, events)] == [added.item.id, first]
    assert cut.item.id == added.item.id
    story = [type(e) for e in events if isinstance(e, ResponseDone | ItemDeleted | ResponseCreated)]
    assert story == [
        ResponseCreated,
        ResponseDone,
        ItemDeleted,
        ItemDeleted,
        ResponseCreated,
        ResponseDone,
    ]
    assert [e.item_id for e in of(TranscriptionCompleted, events)] == [first, second]
    assert answer.previous_item_id == second
    statuses = [e.status for e in of(TurnTimeline, events)]
    assert len(statuses) == 2


def test_partials_cover_the_whole_sentence() -> None:
    events, _ = talk((ONE, 600), PAUSE, (TWO, 1500))
    _, second = (event.item_id for event in of(SpeechStarted, events))
    live = [
        f"{e.stable} {e.unstable}".strip()
        for e in of(HypothesisChanged, events)
        if e.item_id == second
    ]
    assert live[-1] == "one two"
    assert set(live) <= {"one", "one two"}


def test_the_answer_to_the_whole_sentence_is_drafted_in_the_pause() -> None:
    events, world = talk((ONE, 600), PAUSE, (TWO, 1000))
    assert transcripts(events)[-1] == "one two"
    assert counted(world, "used") == 2
    assert world.llm.asked == [[Message("user", "one")], [Message("user", "one two")]]
    _, start = of(PlayoutStarted, events)
    assert start is not None


def test_a_draft_for_the_whole_sentence_is_void_when_speech_resumes() -> None:
    events, world = talk((ONE, 600), PAUSE, (TWO, 600), (SILENCE, 300), (THREE, 600))
    assert transcripts(events) == ["one", "one two three"]
    assert (counted(world, "resumed"), counted(world, "used")) == (1, 2)
    assert world.llm.asked[1:] == [
        [Message("user", "one two")],
        [Message("user", "one two three")],
    ]


def test_two_pauses_in_one_sentence() -> None:
    events, world = talk((ONE, 600), PAUSE, (TWO, 600), PAUSE, (THREE, 600))
    assert transcripts(events) == ["one", "one two", "one two three"]
    assert texts(world) == [("user", "one two three"), ("assistant", "you said one two three. ")]
    assert len(of(ItemDeleted, events)) == 4


def test_the_number_of_continuations_is_limited() -> None:
    script = [one for _ in range(MAX_CONTINUATIONS + 1) for one in ((TWO, 400), PAUSE)]
    events, _ = talk((ONE, 600), PAUSE, *script)
    longest = max(len(words.split()) for words in transcripts(events))
    assert longest == MAX_CONTINUATIONS + 1
    assert transcripts(events)[-1] == "two"


def test_the_length_of_joined_audio_is_limited() -> None:
    long = MAX_FORMER_MS - 200
    events, _ = talk((ONE, long), PAUSE, (TWO, 600))
    assert transcripts(events) == ["one", "two"]


@pytest.mark.parametrize(("pause_ms", "is_joined"), [(0, True), (-100, True), (100, False)])
def test_only_speech_that_resumes_in_time_is_joined(pause_ms: int, is_joined: bool) -> None:
    world = World()
    world.llm.word_s = 2.0  # nothing is heard of the answer
    wait_ms = 460  # of silence, to the frame
    script = (ONE, 600), (SILENCE, wait_ms + RESUME_MS + pause_ms - 20), (TWO, 600)
    events, _ = talk(*script, world=world)
    assert transcripts(events)[-1] == ("one two" if is_joined else "two")


def test_an_answer_that_was_heard_is_kept() -> None:
    events, world = talk((ONE, 600), (SILENCE, 1300), (TWO, 600))
    assert transcripts(events) == ["one", "two"]
    assert not of(ItemDeleted, events)
    assert texts(world)[0] == ("user", "one")


@pytest.mark.parametrize(
    "noise", [(TWO, INTERRUPT_MS), (WORDLESS, 400)], ids=["too short", "without words"]
)
def test_noise_after_the_end_does_not_stop_the_answer(noise: tuple[int, int]) -> None:
    events, world = talk((ONE, 600), PAUSE, noise)
    assert transcripts(events) == ["one", ""]
    assert not of(ItemDeleted, events)
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]
    assert texts(world) == [("user", "one"), ("assistant", "you said one. "), ("user", "")]


class Telling(LevelAsr):
    """A recogniser that detects noise; it is unsure of a "two" by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, tells_noise=True)

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        result = await super().decode(item, priority)
        return replace(result, is_unsure=result.text == "two")


@pytest.mark.parametrize(("noise_ms", "last"), [(60, ""), (600, "one two")])
def test_noise_is_not_taken_for_words_because_of_the_sentence_before_it(
    noise_ms: int, last: str
) -> None:
    """The VAD finds almost no speech, and the recogniser is unsure of the sound by itself."""
    world = World(asr=Telling())
    world.llm.word_s = 2.0  # nothing is heard of the answer: a short sound is a start
    events, _ = talk((ONE, 600), (SILENCE, 600), (TWO, noise_ms), world=world)
    assert transcripts(events) == ["one", last]
    assert bool(of(ItemDeleted, events)) == bool(last)


def test_a_backchannel_does_not_continue_the_sentence() -> None:
    events, world = talk((ONE, 600), PAUSE, (UH_HUH, 600))
    assert transcripts(events) == ["one", "uh-huh"]
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]
    assert not of(ItemDeleted, events)
    assert len(world.llm.asked) == 1


def test_one_word_does_not_continue_a_sentence_in_a_patient_session() -> None:
    events, world = talk((ONE, 600), PAUSE, (TWO, 600), barge_in="patient")
    assert transcripts(events) == ["one", "two"]
    assert not of(ItemDeleted, events)
    events, world = talk((ONE, 600), PAUSE, (TWO, 300), (THREE, 300), barge_in="patient")
    assert transcripts(events) == ["one", "one two three"]
    assert texts(world)[0] == ("user", "one two three")


def test_noise_before_the_continuation_loses_no_word() -> None:
    events, _ = talk((ONE, 600), (SILENCE, 560), (WORDLESS, 240), (SILENCE, 140), (TWO, 600))
    assert transcripts(events)[-1] == "one two"


@pytest.mark.parametrize("is_read_only", [True, False])
def test_a_sentence_is_not_joined_after_a_tool_changed_something(is_read_only: bool) -> None:
    world = World(llm=ToolLlm())
    tool = Watched(is_read_only=is_read_only)
    world.providers = [tool]
    events, _ = talk((ONE, 600), PAUSE, (TWO, 600), world=world)
    assert transcripts(events) == ["one", "one two" if is_read_only else "two"]
    kinds = [type(item) for item in items(world)]
    answered = [FunctionCallItem, FunctionOutputItem, MessageItem]
    if is_read_only:
        assert kinds == [MessageItem, *answered]
        assert len(of(ItemDeleted, events)) == 2, "clients never knew of the calls"
    else:
        assert kinds == [MessageItem, *answered, MessageItem, *answered]
        assert not of(ItemDeleted, events)


class Commands(EchoLlm):
    """A model that knows which texts it understands."""

    def __init__(self, *known: str) -> None:
        super().__init__()
        self.known = known

    async def understands(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        return messages[-1].text in self.known

    async def may_become_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        return True


@pytest.mark.parametrize(
    ("known", "last"),
    [
        (("one", "two"), "two"),
        (("one", "one two"), "one two"),
        (("one",), "one two"),
        ((), "one two"),
    ],
)
def test_two_commands_are_not_joined(known: tuple[str, ...], last: str) -> None:
    world = World(llm=Commands(*known))
    events, _ = talk((ONE, 600), (SILENCE, 660), (TWO, 600), world=world)
    assert transcripts(events) == ["one", last]
    assert bool(of(ItemDeleted, events)) == (last == "one two")


@pytest.mark.parametrize(
    "detection",
    [
        replace(SEMANTIC, create_response=False),
        replace(SEMANTIC, interrupt_response=False),
    ],
    ids=["no answers by itself", "no interruptions"],
)
def test_without_automatic_responses_or_interruptions_nothing_is_joined(
    detection: TurnDetection,
) -> None:
    events, _ = talk((ONE, 600), (SILENCE, 600), (TWO, 600), detection=detection)
    assert transcripts(events) == ["one", "two"]
    assert not of(ItemDeleted, events)


def test_with_barge_in_off_nothing_is_joined() -> None:
    events, _ = talk((ONE, 600), PAUSE, (TWO, 300), (THREE, 300), barge_in="off")
    assert transcripts(events) == ["one", "two three"]
    assert not of(ItemDeleted, events)


def test_a_transcription_session_joins_nothing() -> None:
    events, _ = talk((ONE, 600), PAUSE, (TWO, 600), answers=False)
    assert transcripts(events) == ["one", "two"]


def test_push_to_talk_joins_nothing() -> None:
    async def scenario(session: Session) -> None:
        for level in (ONE, TWO):
            await speak(session, (level, 600))
            session.commit_input()
            await speak(session, (SILENCE, 200))

    events = run_session(World(), scenario, SessionSettings(turn_detection=None))
    assert transcripts(events) == ["one", "two"]


async def _pieces(session: Session) -> None:
    await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 600))


def test_a_cleared_continuation_leaves_the_answer() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await _pieces(session)
        await speak(session, (TWO, 180))
        session.clear_input()
        await speak(session, (SILENCE, 3000))

    events = run_session(world, scenario, SessionSettings(turn_detection=SEMANTIC))
    assert transcripts(events) == ["one"]
    assert texts(world) == [("user", "one"), ("assistant", "you said one. ")]


def test_speech_after_a_clear_is_not_joined() -> None:
    async def scenario(session: Session) -> None:
        await _pieces(session)
        session.clear_input()
        await speak(session, (TWO, 600), (SILENCE, 3000))

    events = run_session(World(), scenario, SessionSettings(turn_detection=SEMANTIC))
    assert transcripts(events) == ["one", "two"]


def test_speech_after_a_cancelled_response_is_not_joined() -> None:
    async def scenario(session: Session) -> None:
        await _pieces(session)
        session.cancel_response()
        await speak(session, (TWO, 600), (SILENCE, 3000))

    world = World(llm=EchoLlm(word_s=0.5))
    events = run_session(world, scenario, SessionSettings(turn_detection=SEMANTIC))
    assert transcripts(events) == ["one", "two"]


def test_a_deleted_item_does_not_return_in_a_continuation() -> None:
    async def scenario(session: Session) -> None:
        await _pieces(session)
        await speak(session, (TWO, 300))
        session.delete_item(next(i.id for i in session._conversation.history.items))
        await speak(session, (TWO, 300), (SILENCE, 3000))

    world = World()
    events = run_session(world, scenario, SessionSettings(turn_detection=SEMANTIC))
    assert transcripts(events) == ["one", "two"]


def joins() -> list[Continuation]:
    gc.collect()
    return [
        one for one in gc.get_objects() if type(one) is Continuation
    ]  # asks no proxy what it is


def test_abandoned_continuations_are_freed() -> None:
    of_others = joins()  # the traceback of a failed test keeps all of its objects
    kept: list[int] = []

    async def scenario(session: Session) -> None:
        for _ in range(20):
            await speak(session, (WORDLESS, 300), PAUSE)
        kept.append(len({id(one) for one in joins()} - {id(one) for one in of_others}))

    run_session(World(), scenario, SessionSettings(turn_detection=SEMANTIC))
    assert kept[0] <= 1


def test_late_transcripts_are_waited_for() -> None:
    """Both decodes are running when the sentence is over."""
    world = World(asr=LevelAsr(delay_s=1.5))
    events, _ = talk((ONE, 600), PAUSE, (TWO, 400), world=world)
    assert transcripts(events) == ["one", "one two"]
    assert len(of(ResponseCreated, events)) == 1
    assert texts(world) == JOINED


def test_a_failed_decode_of_the_continuation_keeps_the_former_item() -> None:
    world = World()

    async def scenario(session: Session) -> None:
        await _pieces(session)
        world.asr.broken = True
        await speak(session, (TWO, 300), (SILENCE, 3000))

    run_session(world, scenario, SessionSettings(turn_detection=SEMANTIC))
    assert ("user", "one") in texts(world)


def test_the_joined_transcript_is_kept_if_the_separate_decode_fails() -> None:
    class Alone(LevelAsr):
        async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
            if item.utterance.endswith(".alone"):
                raise OverloadedError("refused on purpose", retry_after_s=1, code="engine_busy")
            return await super().decode(item, priority)

    world = World(asr=Alone(), llm=Commands("one"))
    events, _ = talk((ONE, 600), (SILENCE, 660), (TWO, 600), world=world)
    assert transcripts(events) == ["one", "one two"]
    assert not of(TranscriptionFailed, events)


def test_a_response_that_the_client_requested_is_replaced_too() -> None:
    """`response.create` comes before the first words are known, so that they are answered during
    the continuation."""
    world = World(asr=LevelAsr(delay_s=0.7), llm=EchoLlm(word_s=0.8))

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), (ONE, 600), (SILENCE, 480))
        session.create_response(ResponseRequest())
        await speak(session, (SILENCE, 100), (TWO, 1600), (SILENCE, 6000))

    events = run_session(world, scenario, SessionSettings(turn_detection=SEMANTIC))
    assert transcripts(events) == ["one", "one two"]
    assert [done.status for done in of(ResponseDone, events)] == ["cancelled", "completed"]
    assert texts(world) == JOINED


@pytest.mark.parametrize("word_s", [0.3, 0.5, 0.7])
def test_a_response_ends_before_its_item_is_deleted(word_s: float) -> None:
    world = World(llm=EchoLlm(word_s))

    async def scenario(session: Session) -> None:
        await _pieces(session)
        world.asr.refuses = frozenset({DecodePriority.PARTIAL, DecodePriority.SPECULATIVE})
        await speak(session, (TWO, 160))
        off = replace(SEMANTIC, create_response=False)
        session.configure(SessionSettings(turn_detection=off))
        await speak(session, (TWO, 100), (SILENCE, 4000))

    events = run_session(world, scenario, SessionSettings(turn_detection=SEMANTIC))
    assert transcripts(events) == ["one", "one two"]
    assert texts(world) == [("user", "one two")]
    nothing_is_said_of_what_is_gone(events)


def test_a_session_that_ends_during_a_join_leaves_no_repeated_words() -> None:
    """The conversation outlives the session."""
    world = World()

    async def scenario(session: Session) -> None:
        watch = session._outbox._on_event

        def close_when_known(event: SessionEvent) -> None:
            watch(event)
            if isinstance(event, TranscriptionCompleted) and event.transcript == "one two":
                session.close()

        session._outbox._on_event = close_when_known
        await _pieces(session)
        await speak(session, (TWO, 600), (SILENCE, 1000))

    run_session(world, scenario, SessionSettings(turn_detection=SEMANTIC))
    assert texts(world) == [("user", "one two")]


class SlowToolLlm(ToolLlm):
    """A model that waits before it calls its tool."""

    def __init__(self, think_s: float) -> None:
        super().__init__()
        self.think_s = think_s

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        await asyncio.sleep(self.think_s)
        async for delta in super().reply(messages, tools, language=language, options=options):
            yield delta


@pytest.mark.parametrize("barge_in", ["on", "patient"])
@pytest.mark.parametrize("paced_by", ["server", "client"])
@pytest.mark.parametrize("think_s", [0.7, 0.8, 0.9, 1.0])
def test_no_tool_of_a_first_part_runs_during_the_continuation(
    think_s: float, paced_by: PlayoutPacing, barge_in: str
) -> None:
    world, tool = World(llm=SlowToolLlm(think_s)), Watched(is_read_only=False)
    world.providers = [tool]
    script = (ONE, 600), (SILENCE, 600), (TWO, 600), (THREE, 300)
    events, _ = talk(*script, world=world, paced_by=paced_by, barge_in=barge_in)
    assert transcripts(events) == ["one", "one two three"]
    assert len(tool.ran) == 1
    assert next(i.text for i in items(world) if isinstance(i, MessageItem)) == "one two three"


@pytest.mark.parametrize("noise", [(WORDLESS, 400), (UH_HUH, 500), (TWO, INTERRUPT_MS)])
def test_a_waiting_tool_runs_if_the_continuation_was_noise(noise: tuple[int, int]) -> None:
    world, tool = World(llm=SlowToolLlm(0.7)), Watched(is_read_only=False)
    world.providers = [tool]
    events, _ = talk((ONE, 600), (SILENCE, 600), noise, world=world)
    assert len(tool.ran) == 1
    assert [done.status for done in of(ResponseDone, events)] == ["completed"]


def test_no_client_call_is_sent_during_the_continuation() -> None:
    world = World(llm=SlowToolLlm(0.7))
    light = ToolSpec("add", "Adds.", {"type": "object"})
    world.providers = []
    script = (ONE, 600), (SILENCE, 600), (TWO, 900)
    events, _ = talk(*script, world=world, client_tools=(light,))
    assert transcripts(events) == ["one", "one two"]
    done = [(e.status, len(e.output)) for e in of(ResponseDone, events)]
    assert done == [("cancelled", 0), ("completed", 1)]
