"""The marks of a spoken turn: all of them, in their order, with the marks of the words."""

import asyncio
from dataclasses import replace

import pytest

from core.conversation.events import TranscriptionCompleted, TurnTimeline
from engines.base import AsrItem, AsrResult
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings, TurnDetection
from pipeline.shared.turn import TurnMark
from serving.asr.scheduling import DecodePriority
from serving.scheduling.llm_slots import DraftBudget
from tests.pipeline.fakes import LevelAsr, World, speak
from tests.pipeline.scenes import of, one_turn, run_session
from tests.pipeline.scripted import ToolLlm, Watched

HEARD = (TurnMark.SPEECH_START, TurnMark.SPEECH_END, TurnMark.CANDIDATE, TurnMark.ASR_FINAL)
MADE = (TurnMark.LLM_FIRST_TOKEN, TurnMark.FIRST_CLAUSE, TurnMark.TTS_FIRST_AUDIO)
PLAYED = (TurnMark.PLAYOUT_START, TurnMark.PLAYOUT_END)


@pytest.mark.parametrize(
    ("max_drafts", "order"),
    [
        (8, (*HEARD, *MADE, TurnMark.ENDPOINT, TurnMark.GATE_OPEN, *PLAYED)),
        (0, (*HEARD, TurnMark.ENDPOINT, TurnMark.GATE_OPEN, *MADE, *PLAYED)),
    ],
    ids=["begun in the pause", "begun at its end"],
)
def test_a_spoken_turn_has_every_mark_in_order(
    max_drafts: int, order: tuple[TurnMark, ...]
) -> None:
    (turn,) = of(TurnTimeline, run_session(World(drafts=DraftBudget(max_drafts)), one_turn))
    assert set(turn.marks) == set(TurnMark) == set(order)
    times = [turn.marks[mark] for mark in order]
    assert times == sorted(times)
    assert turn.marks[TurnMark.SPEECH_END] == 0


class Hesitant(LevelAsr):
    """A recogniser whose final words take 400 ms and may differ from those of the partials."""

    def __init__(self, final: str) -> None:
        super().__init__(0.02, is_incremental=True)
        self.final = final

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        if item.is_final:
            await asyncio.sleep(0.4)
        result = await super().decode(item, priority)
        return replace(result, text=self.final) if item.is_final else result


class SlowAtTheEnd(LevelAsr):
    """A recogniser whose final decode repeats the words of the pause and takes 100 ms more."""

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        if item.is_final:
            await asyncio.sleep(0.1)
        return await super().decode(item, priority)


def test_a_final_that_differs_from_the_partials_is_marked_when_it_comes() -> None:
    events = run_session(World(asr=Hesitant("one three")), one_turn)
    (turn,) = of(TurnTimeline, events)
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == ["one three"]
    assert turn.marks[TurnMark.ASR_FINAL] == pytest.approx(500 + 420, abs=20)
    assert turn.marks[TurnMark.ASR_FINAL] <= turn.marks[TurnMark.LLM_FIRST_TOKEN]
    spans = {span.stage: span for span in turn.stages}
    assert spans["asr"].end_ms == spans["llm"].start_ms == turn.marks[TurnMark.ASR_FINAL]
    assert not spans["llm"].is_speculative


@pytest.mark.parametrize("is_read_only", [True, False], ids=["joined", "by itself"])
def test_a_continuation_is_marked_as_transcribed_in_the_pause(
    is_read_only: bool,
) -> None:
    """It stands alone if a tool has changed something after the first part; otherwise both are
    joined."""
    world = World(asr=SlowAtTheEnd(), llm=ToolLlm(), providers=[Watched(is_read_only=is_read_only)])

    async def scene(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 700), (2000, 600), (0, 4000))

    events = run_session(
        world, scene, SessionSettings(turn_detection=TurnDetection(silence_ms=450))
    )
    words = [event.transcript for event in of(TranscriptionCompleted, events)]
    assert words == ["one", "one two" if is_read_only else "two"]
    marks = of(TurnTimeline, events)[-1].marks
    assert marks[TurnMark.ASR_FINAL] < marks[TurnMark.ENDPOINT]
    assert marks[TurnMark.ASR_FINAL] <= marks[TurnMark.LLM_FIRST_TOKEN]


def test_a_final_equal_to_the_partials_is_marked_in_the_pause() -> None:
    (turn,) = of(TurnTimeline, run_session(World(asr=Hesitant("one two")), one_turn))
    assert turn.marks[TurnMark.ASR_FINAL] < turn.marks[TurnMark.ENDPOINT]
