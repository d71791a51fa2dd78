"""Tables for the pure parts of the pipeline."""

import asyncio
from itertools import pairwise

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, ms_to_samples
from core.conversation.events import StageSpan, TruncationPoint
from core.conversation.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    MessageItem,
    TextPart,
)
from core.errors import RequestError
from engines.base import WordMark
from pipeline.conversation.history import MAX_ITEMS, History
from pipeline.playout.heard_text import HeardText
from pipeline.playout.playout import (
    MAX_QUEUED_MS,
    PACED_RATE_HZ,
    REFILL_MS,
    ClientPlayoutClock,
    Playout,
    PlayoutWriter,
)
from pipeline.shared.settings import TurnDetection
from pipeline.shared.turn import Turn, TurnMark
from pipeline.speech.chunker import MAX_CHARS, ClauseChunker
from pipeline.transcription.partials import StablePrefix
from pipeline.user_turn.speech_detection.endpointing import (
    INTERRUPT_MS,
    MAX_UTTERANCE_MS,
    START_MS,
    EdgeKind,
    Endpointer,
)
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LoopClock, LoudVad

FRAME = 320
FRAME_MS = 20


def edges(pattern: str, endpointer: Endpointer) -> list[tuple[EdgeKind, int]]:
    """Returns edges with their positions in frames; in the pattern `s` is 20 ms of speech and `.`
    20 ms of silence."""
    out = []
    for char in pattern:
        edge = endpointer.push(1.0 if char == "s" else 0.0, FRAME)
        if edge is not None:
            out.append((edge.kind, edge.at // FRAME))
    return out


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("...ss...ss...", []),
        ("..sss", [(EdgeKind.STARTED, 2)]),
        ("sss..", [(EdgeKind.STARTED, 0)]),
        ("sss...", [(EdgeKind.STARTED, 0), (EdgeKind.CANDIDATE, 3)]),
        ("sss...s", [(EdgeKind.STARTED, 0), (EdgeKind.CANDIDATE, 3), (EdgeKind.RESUMED, 6)]),
        ("sss" + "." * 10, [(EdgeKind.STARTED, 0), (EdgeKind.CANDIDATE, 3), (EdgeKind.ENDED, 3)]),
        (
            "sss" + "." * 9 + "s" + "." * 10,
            [
                (EdgeKind.STARTED, 0),
                (EdgeKind.CANDIDATE, 3),
                (EdgeKind.RESUMED, 12),
                (EdgeKind.CANDIDATE, 13),
                (EdgeKind.ENDED, 13),
            ],
        ),
    ],
)
def test_endpointer_edges(pattern: str, expected: list[tuple[EdgeKind, int]]) -> None:
    assert edges(pattern, Endpointer(silence_ms=200)) == expected


def test_the_endpointer_needs_more_speech_while_the_assistant_speaks() -> None:
    endpointer = Endpointer()
    endpointer.is_guarded = True
    assert edges("s" * (START_MS // FRAME_MS) + "..", endpointer) == []
    assert edges("s" * (INTERRUPT_MS // FRAME_MS), endpointer)[0][0] is EdgeKind.STARTED


def test_the_endpointer_cuts_an_endless_utterance_and_starts_the_next() -> None:
    kinds = [k for k, _ in edges("s" * (2 * MAX_UTTERANCE_MS // FRAME_MS + 10), Endpointer())]
    assert kinds[:3] == [EdgeKind.STARTED, EdgeKind.ENDED, EdgeKind.STARTED]


def test_a_flickering_probability_is_not_a_pause() -> None:
    endpointer = Endpointer(threshold=0.5)
    out = [endpointer.push(p, FRAME) for p in [0.6] * 3 + [0.4, 0.6] * 20]
    assert [e.kind for e in out if e] == [EdgeKind.STARTED]


@pytest.mark.parametrize("chunk", [1, 160, 320, 333, 1600])
def test_speech_detection_loses_no_sample_for_any_size_of_frames(chunk: int) -> None:
    hearing = SpeechDetector(LoudVad())
    hearing.configure(TurnDetection(prefix_padding_ms=100, silence_ms=200))
    loud = np.where(np.arange(16_000) // 8000 % 2 == 1, 1000, 0).astype(np.int16)
    audio = np.concatenate([loud, np.zeros(8000, np.int16)])
    heard = [
        h
        for at in range(0, len(audio), chunk)
        for h in hearing.push(AudioFrame(audio[at : at + chunk], ASR_RATE_HZ, at))
    ]
    utterance = np.concatenate([h.pcm for h in heard if h.in_speech])
    end = ms_to_samples(200, ASR_RATE_HZ)
    assert len(utterance) == ms_to_samples(100, ASR_RATE_HZ) + 8000 + end
    assert utterance[1600] == 1000
    assert utterance[1599] == 0


def test_speech_detection_refuses_another_rate() -> None:
    frame = AudioFrame(np.zeros(960, np.int16), 48_000, 0)
    with pytest.raises(RequestError, match="48000 Hz"):
        list(SpeechDetector(LoudVad()).push(frame))


@pytest.mark.parametrize(
    ("hypotheses", "stable", "unstable"),
    [
        (["turn"], "", "turn"),
        (["turn", "turn on"], "turn", "on"),
        (["turn", "turn on the", "turn on the kitchen"], "turn on the", "kitchen"),
        (["a b", "a b", "x b"], "a b", ""),
        (["a b", "a b c", "a"], "a b", ""),
        ([""], "", ""),
        (["打开", "打开", "打开厨房"], "打开", "厨房"),
        (["打开", "打开厨房的灯", "打开厨房的 TV"], "打开厨房的", "TV"),
    ],
)
def test_the_stable_prefix_only_grows(hypotheses: list[str], stable: str, unstable: str) -> None:
    prefix = StablePrefix()
    seen = [prefix.push(text) for text in hypotheses]
    assert (seen[-1].stable, seen[-1].unstable) == (stable, unstable)
    assert all(b.stable.startswith(a.stable) for a, b in pairwise(seen))


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Hello.", ["Hello."]),
        ("It is 7.30 in the morning. Good day.", ["It is 7.30 in the morning.", "Good day."]),
        ("Yes, the lights are on, all of them.", ["Yes, the lights are on,", "all of them."]),
        ("No full stop", ["No full stop"]),
        ("", []),
        ("   \n ", []),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_clauses_for_any_sizes_of_pieces(text: str, clauses: list[str], size: int) -> None:
    chunker = ClauseChunker()
    out = [c for at in range(0, len(text), size) for c in chunker.push(text[at : at + size])]
    if (rest := chunker.flush()) is not None:
        out.append(rest)
    assert out == clauses


def test_the_chunker_cuts_text_without_full_stops() -> None:
    out = ClauseChunker().push("word " * 200)
    assert out
    assert all(len(clause) <= MAX_CHARS for clause in out)


@pytest.mark.parametrize(
    ("heard_ms", "text"),
    [(0, ""), (500, "one two"), (1000, "one two three four"), (1500, "one two three four five"),
     (9999, "one two three four five six")],
)  # fmt: skip
def test_the_heard_part_of_an_answer_follows_from_the_time(heard_ms: float, text: str) -> None:
    spoken = HeardText()
    spoken.begin("one two three four", 0)
    spoken.begin("five six", 1000)
    assert spoken.text_until(heard_ms, 2000) == text


def test_a_cut_is_counted_by_word_times_or_by_proportion() -> None:
    spoken = HeardText()
    assert spoken.cut(0, 0) == TruncationPoint(0, "proportion")
    spoken.begin("one two three four", 0)
    spoken.word(WordMark(0, 3, 0, 100))
    spoken.word(WordMark(0, 7, 100, 900))
    spoken.begin("five six", 1000)
    assert spoken.cut(900, 2000) == TruncationPoint(2, "word_times")
    assert spoken.cut(1500, 2000) == TruncationPoint(5, "proportion")


@pytest.mark.parametrize(
    ("at_ms", "clause"),
    [(-1, None), (0, (0, "one two")), (999.9, (0, "one two")), (1000, (1, "three"))],
)  # fmt: skip
def test_the_sounding_clause_at_a_time(at_ms: float, clause: tuple[int, str] | None) -> None:
    spoken = HeardText()
    assert spoken.clause_at(0) is None
    spoken.begin("one two", 0)
    spoken.begin("three", 1000)
    assert spoken.clause_at(at_ms) == clause


def test_the_timeline_of_a_turn_keeps_the_first_of_repeated_marks() -> None:
    turn = Turn("turn_1")
    for mark, now in [
        (TurnMark.SPEECH_END, 1.0), (TurnMark.ENDPOINT, 1.4), (TurnMark.ASR_FINAL, 1.5),
                      (TurnMark.ASR_FINAL, 9.0), (TurnMark.LLM_FIRST_TOKEN, 1.6)]:  # fmt: skip
        turn.mark(mark, now)
    assert turn.stages() == (
        StageSpan("endpoint_wait", 0, 400),
        StageSpan("asr", 400, 500),
        StageSpan("llm", 500, 600),
    )
    assert turn.response_latency_ms() == 600
    assert Turn("turn_2").stages() == ()


def test_the_messages_for_the_model_follow_from_the_history() -> None:
    history = History()
    assert history.add(MessageItem("u", "user", (AudioPart("hi"),))) is None
    history.add(FunctionCallItem("c", "call_1", "f", '{"a":1}'), is_internal=True)
    history.add(FunctionOutputItem("o", "call_1", "{}"), is_internal=True)
    history.add(FunctionOutputItem("lost", "call_9", "{}"), is_internal=True)
    assert history.add(MessageItem("a", "assistant", (TextPart("yes"),))) == "u"
    assert history.add(MessageItem("first", "user", (TextPart("0"),)), "root") is None
    history.add(MessageItem("empty", "user", (AudioPart(),)))
    messages = history.messages("Be kind.")
    assert [m.role for m in messages] == [
        "system",
        "user",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert messages[3].tool_calls[0].arguments == {"a": 1}


def test_the_history_refuses_invalid_items() -> None:
    history = History()
    history.add(MessageItem("u", "user", (TextPart("hi"),)))
    with pytest.raises(RequestError) as twice:
        history.add(MessageItem("u", "user"))
    assert twice.value.code == "item_already_exists"
    with pytest.raises(RequestError) as unknown:
        history.add(MessageItem("v", "user"), "nowhere")
    assert unknown.value.code == "item_not_found"
    with pytest.raises(RequestError, match="not an assistant message"):
        history.truncate("u", "h")


def test_the_history_keeps_a_bounded_number_of_items() -> None:
    history = History()
    for number in range(MAX_ITEMS + 50):
        history.add(MessageItem(f"item_{number}", "user", (TextPart("x"),)))
    assert len(history.items) == MAX_ITEMS
    assert history.items[-1].id == f"item_{MAX_ITEMS + 49}"


class Told:
    def __init__(self) -> None:
        self.events: list[str] = []

    def playout_started(self, writer: PlayoutWriter) -> None:
        self.events.append("started")

    def playout_stopped(self, writer: PlayoutWriter) -> None:
        self.events.append("stopped")

    def playout_cleared(self, writer: PlayoutWriter) -> None:
        self.events.append("cleared")


def paced(told: Told) -> Playout:
    clock = LoopClock()
    return Playout("server", told, clock, ClientPlayoutClock(clock), Counts())


def test_playout_is_paced_complete_and_bounded() -> None:
    told = Told()

    async def main() -> None:
        playout = paced(told)
        writer = playout.open("resp_1", PACED_RATE_HZ)
        assert playout.pull() is None
        async with asyncio.TaskGroup() as tasks:
            long = np.ones(PACED_RATE_HZ * 10 + 100, np.int16)
            writing = tasks.create_task(writer.write(long))
            await asyncio.sleep(0.01)
            assert not writing.done()  # 10 s exceed the limit of the queue
            assert writer.total_ms == MAX_QUEUED_MS
            frames = 0
            while not writing.done() or playout.writer is not None:
                frame = playout.pull()
                frames += frame is not None
                if frame is not None:
                    assert len(frame.pcm) == PACED_RATE_HZ // 50
                if writing.done() and not writer.is_finished:
                    await writer.finish()
                await asyncio.sleep(0)
        assert frames == 501
        assert writer.heard_ms == 10_020
        await playout.drained()

    run_virtual(main())
    assert told.events == ["started", "stopped"]


def test_a_waiting_voice_is_woken_for_several_frames_at_once() -> None:
    async def main() -> None:
        playout = paced(Told())
        writer = playout.open("resp_1", PACED_RATE_HZ)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.write(np.ones(PACED_RATE_HZ * 5, np.int16)))
            await asyncio.sleep(0.01)
            for pulled in range(1, REFILL_MS // PTIME_MS):
                assert playout.pull() is not None
                await asyncio.sleep(0)
                assert writer.total_ms == MAX_QUEUED_MS, pulled
            playout.pull()
            await asyncio.sleep(0.01)
            assert writer.total_ms == MAX_QUEUED_MS + REFILL_MS
            playout.clear()

    run_virtual(main())


def test_a_cleared_writer_wakes_up_and_accepts_nothing_more() -> None:
    told = Told()

    async def main() -> None:
        playout = paced(told)
        writer = playout.open("resp_1", PACED_RATE_HZ)
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(writer.write(np.ones(PACED_RATE_HZ * 10, np.int16)))
            await asyncio.sleep(0)
            playout.pull()
            assert playout.clear() is writer
            await writing
        assert writer.heard_ms == 20
        await writer.write(np.ones(PACED_RATE_HZ // 10, np.int16))
        assert playout.pull() is None
        assert playout.open("resp_2", PACED_RATE_HZ) is not writer

    run_virtual(main())
    assert told.events == ["started", "cleared"]
