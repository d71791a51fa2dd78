"""One answer: language model, tools, voice and playout side by side, cut short by cancellation."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from core.errors import EarshotError
from core.events import (
    CancelReason,
    Modality,
    OutputItemAdded,
    OutputItemDone,
    OutputText,
    ResponseCreated,
    ResponseDone,
    ResponseStatus,
    SessionEvent,
)
from core.ids import new_id
from core.items import (
    AudioPart,
    ItemStatus,
    MessageItem,
    TextPart,
)
from core.ports import Clock, ToolContext
from engines.base import Llm, Tts
from pipeline.chunker import Chunker
from pipeline.generation import generate
from pipeline.history import History
from pipeline.playout import Playout, PlayoutWriter
from pipeline.settings import DEFAULT
from pipeline.spoken import SpokenText
from pipeline.tools import Toolbox
from pipeline.turn import Mark, Turn, TurnStatus

logger = logging.getLogger(__name__)

MAX_WAITING_CLAUSES = 32
"A model writes faster than a voice speaks; beyond this it waits."


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """What to answer with; fixed before the answer begins."""

    turn: Turn
    modality: Modality
    language: str
    instructions: str
    voice: str
    speed: float
    llm: Llm
    tts: Tts
    text: str | None = None
    "Say exactly this (an announcement); the language model is not asked."
    refusal: EarshotError | None = None
    "It was asked for and cannot be given: it fails with this, so that nobody waits for it."


class Answer:
    """Runs one plan. `run` raises only CancelledError; failures become a failed ResponseDone."""

    def __init__(
        self,
        plan: AnswerPlan,
        history: History,
        toolbox: Toolbox,
        playout: Playout,
        context: ToolContext,
        clock: Clock,
        emit: Callable[[SessionEvent], None],
        finish_turn: Callable[[Turn, TurnStatus], None],
    ) -> None:
        self.response_id = new_id("resp")
        self.item_id: str | None = None
        self.spoken = SpokenText()
        self.is_done = False
        self.turn = plan.turn
        self.turn.response_id = self.response_id
        self._plan = plan
        self._history, self._toolbox, self._playout = history, toolbox, playout
        self._context, self._clock, self._emit = context, clock, emit
        self._finish_turn = finish_turn
        self._text = ""
        self._item: MessageItem | None = None
        self._previous_item_id: str | None = None
        self._writer: PlayoutWriter | None = None
        self._truncated_ms: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled: CancelReason | None = None

    async def run(self) -> None:
        plan = self._plan
        self._task = asyncio.current_task()
        self._emit(ResponseCreated(self.response_id, plan.modality))
        if self._cancelled is not None:
            self._done("cancelled", reason=self._cancelled)
            return
        try:
            if plan.refusal is not None:
                raise plan.refusal
            await (self._speak() if plan.modality == "audio" else self._write())
        except asyncio.CancelledError:
            self._stop_voice()
            self._finish_item(self._heard_text(), "incomplete")
            self._done("cancelled", reason=self._cancelled or "client_cancelled")
            raise
        except EarshotError as exc:
            self._fail(exc)
        else:
            if self._is_cut:
                self._finish_item(self._heard_text(), "incomplete")
            else:
                self._finish_item(self._text, "completed")
            self._done("completed")

    def cancel(self, reason: CancelReason) -> None:
        """At any time; one that has not begun ends as soon as it does."""
        self._cancelled = reason
        if self._task is not None:
            self._task.cancel()

    def truncate(self, audio_end_ms: float) -> None:
        """The client played only this much. Counts for an answer that still goes on, too."""
        assert self.item_id is not None
        self._truncated_ms = audio_end_ms
        self._history.truncate(self.item_id, self.heard(audio_end_ms))

    @property
    def total_ms(self) -> float:
        """Sound made so far."""
        return 0.0 if self._writer is None else self._writer.total_ms

    @property
    def is_heard(self) -> bool:
        """Some of it went to the speaker."""
        return self._writer is not None and self._writer.has_started

    def heard(self, heard_ms: float) -> str:
        """The words that a listener knows after this much of the sound."""
        return self.spoken.heard(heard_ms, self.total_ms)

    async def _write(self) -> None:
        async with aclosing(self._texts()) as deltas:
            async for _ in deltas:
                pass

    async def _speak(self) -> None:
        """Generate and speak side by side: the voice begins with the first clause."""
        clauses: asyncio.Queue[str | None] = asyncio.Queue(MAX_WAITING_CLAUSES)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._fill(clauses))
                tasks.create_task(self._voice(clauses))
        except BaseExceptionGroup as group:
            expected, bugs = group.split(EarshotError)
            if expected is None or bugs is not None:
                raise
            raise _first(expected) from group

    async def _fill(self, clauses: asyncio.Queue[str | None]) -> None:
        chunker = Chunker()
        async with aclosing(self._texts()) as deltas:
            async for delta in deltas:
                for clause in chunker.push(delta):
                    await clauses.put(clause)
        if (rest := chunker.flush()) is not None:
            await clauses.put(rest)
        await clauses.put(None)

    async def _voice(self, clauses: asyncio.Queue[str | None]) -> None:
        plan = self._plan
        voice = None if plan.voice == DEFAULT else plan.voice
        await self._playout.drained()
        writer = self._playout.open(self.response_id, plan.tts.info.rate_hz)
        self._writer = writer
        source = self._clauses(clauses, writer)
        frames = plan.tts.speak(source, language=plan.language, voice=voice, speed=plan.speed)
        async with aclosing(source), aclosing(frames):
            async for frame in frames:
                self.turn.mark(Mark.TTS_FIRST_AUDIO, self._clock.now())
                await writer.write(frame.pcm)
        self.spoken.end(writer.total_ms)
        await writer.finish()

    async def _clauses(
        self, clauses: asyncio.Queue[str | None], writer: PlayoutWriter
    ) -> AsyncGenerator[str, None]:
        """What the voice reads; when it asks for the next, the clause before is sound."""
        while (clause := await clauses.get()) is not None:
            self.spoken.begin(clause, writer.total_ms)
            yield clause

    async def _texts(self) -> AsyncGenerator[str, None]:
        """The answer's text as it is generated."""
        if self._plan.text is not None:
            self._add_text(self._plan.text)
            yield self._plan.text
            return
        plan = self._plan
        texts = generate(plan.llm, self._history, plan.instructions, self._toolbox, self._context)
        async with aclosing(texts):
            async for text in texts:
                self._add_text(text)
                yield text

    def _add_text(self, text: str) -> None:
        self.turn.mark(Mark.LLM_FIRST_TOKEN, self._clock.now())
        if self._item is None:
            empty = AudioPart("") if self._plan.modality == "audio" else TextPart("")
            self._item = MessageItem(new_id("item"), "assistant", (empty,), "in_progress")
            self.item_id = self._item.id
            self._previous_item_id = self._history.add(self._item)
            added = OutputItemAdded(self.response_id, 0, self._item, self._previous_item_id)
            self._emit(added)
        self._text += text
        self._emit(OutputText(self.response_id, self._item.id, 0, self._plan.modality, text))

    @property
    def _is_cut(self) -> bool:
        """Its sound was cleared or truncated while it went on."""
        return self._truncated_ms is not None or (self._writer is not None and self._writer.is_dead)

    def _heard_text(self) -> str:
        """What was heard of the answer; of a written one, all that was sent."""
        if self._plan.modality == "text":
            return self._text
        heard_ms = 0.0 if self._writer is None else self._writer.heard_ms
        if self._truncated_ms is not None:
            heard_ms = min(heard_ms, self._truncated_ms)
        return self.heard(heard_ms)

    def _stop_voice(self) -> None:
        if self._writer is not None and not self._writer.is_dead:
            self._playout.clear()

    def _fail(self, error: EarshotError) -> None:
        logger.warning("! response %s: %s (%s)", self.response_id, error, error.code)
        text = self._heard_text() if self._is_cut else self._text
        self._stop_voice()
        self._finish_item(text, "incomplete")
        self._done("failed", error=error)

    def _finish_item(self, text: str, status: ItemStatus) -> None:
        if self._item is None:
            return
        part = AudioPart(text) if self._plan.modality == "audio" else TextPart(text)
        self._item = replace(
            self._item,
            parts=(part,),
            status=status,
        )
        self._history.replace(self._item)
        has_audio = self._writer is not None and self._writer.written > 0
        self._emit(
            OutputItemDone(self.response_id, 0, self._item, self._previous_item_id, has_audio)
        )

    def _done(
        self,
        status: ResponseStatus,
        *,
        reason: CancelReason | None = None,
        error: EarshotError | None = None,
    ) -> None:
        self.is_done = True
        self._emit(
            ResponseDone(
                self.response_id,
                status,
                self._plan.modality,
                output=() if self._item is None else (self._item,),
                reason=reason,
                error_code=None if error is None else error.code,
                error_message=None if error is None else str(error),
            )
        )
        if status == "cancelled" or status == "failed":
            self._finish_turn(self.turn, status)
        elif self.total_ms == 0:  # nothing to hear: written, or empty
            self._finish_turn(self.turn, "answered")
        elif self._is_cut:
            self._finish_turn(self.turn, "cancelled")


def _first(group: BaseExceptionGroup[EarshotError]) -> EarshotError:
    """The first error of a group: later ones are its echo."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, EarshotError)
    return error
