"""One answer on its way to the user: what a draft holds, told and played; cut short on demand."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from core.errors import EarshotError, first_error
from core.events import (
    CancelReason,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ResponseEndReason,
    ResponseStatus,
    SessionEvent,
    TruncationPoint,
)
from core.ids import new_id
from core.items import AudioPart, Item, ItemStatus, MessageItem, TextPart
from core.ports import Clock
from engines.base import WordMark
from pipeline.conversation.history import History
from pipeline.playout.heard_text import HeardText
from pipeline.playout.playout import Playout, PlayoutWriter
from pipeline.response.draft import ResponseDraft
from pipeline.response.tool_items import ToolCallItems
from pipeline.shared.turn import Turn, TurnMark, TurnStatus
from pipeline.speech.synthesis import SpokenClause, merge_chunks
from pipeline.user_turn.continuation import HARDLY_HEARD_MS

logger = logging.getLogger(__name__)


class Response:
    """Delivers one draft. `run` raises only CancelledError; failures become a failed
    ResponseDone."""

    def __init__(
        self,
        draft: ResponseDraft,
        history: History,
        playout: Playout,
        clock: Clock,
        emit: Callable[[SessionEvent], None],
        finish_turn: Callable[[Turn, TurnStatus], None],
        used: Callable[[Item], None],
    ) -> None:
        """`used` takes the calls of its tools, and what they answered."""
        self.response_id = new_id("resp")
        self.item_id: str | None = None
        self.spoken = HeardText()
        self.is_done = False
        self._plan = draft.plan
        self.turn = draft.plan.turn
        self.turn.response_id = self.response_id
        self._draft = draft
        self._history, self._playout = history, playout
        self._clock, self._emit, self._finish_turn = clock, emit, finish_turn
        self._used = used
        self._text = ""
        self._item: MessageItem | None = None
        self._internal: list[str] = []
        "Items of its tools."
        self._output: dict[int, Item] = {}
        "Items that are done, by their place."
        self._begun = 0
        "Items, done or not."
        self.output_index = 0
        "Of what is said."
        told = history, emit, self._next_index, self._output
        self._handing_out = ToolCallItems(self.response_id, *told, draft.plan.remote)
        self._previous_item_id: str | None = None
        self._writer: PlayoutWriter | None = None
        self._truncated_ms: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled: CancelReason | None = None

    async def run(self) -> None:
        self._task = asyncio.current_task()
        self._open_gate()
        plan = self._plan
        self._emit(ResponseCreated(self.response_id, plan.modality, plan.terms))
        if self._cancelled is not None:
            self._draft.cancel()
            self._done("cancelled", reason=self._cancelled)
            return
        try:
            if self._plan.refusal is not None:
                raise self._plan.refusal
            await self._deliver()
        except asyncio.CancelledError:
            self._draft.cancel()
            self._stop_voice()
            self._finish_item(self._heard_text(), "incomplete")
            self._handing_out.break_off(in_conversation=self.in_conversation)
            self._done("cancelled", reason=self._cancelled or "client_cancelled")
            raise
        except EarshotError as exc:
            self._fail(exc)
        else:
            self._complete()

    def _complete(self) -> None:
        hit_limit = self._draft.hit_limit
        if self._is_cut:
            self._finish_item(self._heard_text(), "incomplete")
        else:
            self._finish_item(self._text, "incomplete" if hit_limit else "completed")
        for call in self._draft.calls:
            self._handing_out.finish(call)
        if hit_limit:
            self._done("incomplete", reason="max_output_tokens")
        else:
            self._done("completed")

    def cancel(self, reason: CancelReason) -> None:
        """At any time; one that has not begun ends as soon as it does."""
        self._cancelled = reason
        if self._task is not None:
            self._task.cancel()

    def truncate(self, audio_end_ms: float) -> None:
        """The client played only this much. Counts for an answer that still goes on, too."""
        assert self.item_id is not None
        if self._truncated_ms is not None:
            audio_end_ms = min(audio_end_ms, self._truncated_ms)  # nothing is unsaid twice
        self._truncated_ms = audio_end_ms
        if self._history.find(self.item_id) is not None:  # it may have been deleted
            self._history.truncate(self.item_id, self.heard(audio_end_ms))

    @property
    def total_ms(self) -> float:
        """Sound made so far."""
        return 0.0 if self._writer is None else self._writer.total_ms

    @property
    def is_cancelled(self) -> bool:
        """It ends, or is about to."""
        return self._cancelled is not None

    @property
    def is_heard(self) -> bool:
        """Some of it went to the speaker."""
        return self._writer is not None and self._writer.has_started

    @property
    def awaits_speaker(self) -> bool:
        """There is sound of it, and none went to the speaker yet."""
        writer = self._writer
        if writer is None or writer.is_dead:
            return False
        return writer.written > 0 and not writer.has_started

    def is_hardly_heard(self, now: float) -> bool:
        """Who has heard this much of it knows nothing yet, and has not refused it either."""
        writer = self._writer
        if self._cancelled == "client_cancelled":
            return False
        if writer is None:
            return self._plan.modality == "audio" or not self._text
        heard_ms = writer.heard_ms
        if self._playout.paced_by == "client":  # it was sent so much, and plays it in real time
            since_s = now - self.turn.marks.get(TurnMark.PLAYOUT_START, now)
            heard_ms = min(heard_ms, 1000 * since_s)
        if self._truncated_ms is not None:
            heard_ms = min(heard_ms, self._truncated_ms)
        is_all = writer.is_finished and heard_ms >= writer.total_ms
        return heard_ms < HARDLY_HEARD_MS and not is_all

    @property
    def has_acted(self) -> bool:
        """Something was changed for it, or is for its client to do."""
        return self._draft.has_acted or bool(self._draft.calls)

    @property
    def items(self) -> tuple[str, ...]:
        """Ids of what it added to the history."""
        said = [] if self.item_id is None else [self.item_id]
        return (*self._internal, *self._handing_out.items, *said)

    @property
    def asks(self) -> bool:
        """It has put a question."""
        return "?" in self._text

    @property
    def in_conversation(self) -> bool:
        return self._plan.terms.in_conversation

    def heard(self, heard_ms: float) -> str:
        """The words that a listener knows after this much of the sound."""
        return self.spoken.heard(heard_ms, self.total_ms)

    @property
    def cut(self) -> TruncationPoint | None:
        """What is known of it; None while nothing cut its sound."""
        return self.spoken.cut(self._heard_ms, self.total_ms) if self._is_cut else None

    def _open_gate(self) -> None:
        """The turn is confirmed: what the draft holds may leave."""
        self.turn.take(self._draft.marks)
        self._draft.marks = self.turn.marks
        self.turn.mark(TurnMark.GATE_OPEN, self._clock.now())
        self._draft.confirm(self._remember)

    def _remember(self, item: Item) -> None:
        self._internal.append(item.id)
        self._history.add(item, is_internal=True)
        self._used(item)

    async def _deliver(self) -> None:
        """What was made, and what is still being made. Raises what the draft failed with; when it
        could apologise, after that was delivered."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._draft.begin(tasks)
                tasks.create_task(self._draft.made())
                tasks.create_task(self._deliver_texts())
                tasks.create_task(self._deliver_sounds())
                tasks.create_task(self._deliver_calls())
        except* EarshotError as group:
            raise first_error(group) from group
        if self._draft.regret is not None:
            raise self._draft.regret

    async def _deliver_texts(self) -> None:
        """Those that wait already are told as one."""
        texts, is_over = self._draft.texts, False
        while not is_over:
            waiting = [await texts.get()]
            while not texts.empty():
                waiting.append(texts.get_nowait())
            is_over = waiting[-1] is None
            if said := [text for text in waiting if text is not None]:
                self._add_text("".join(said))

    async def _deliver_calls(self) -> None:
        while (delta := await self._draft.call_deltas.get()) is not None:
            self._handing_out.push(delta)

    async def _deliver_sounds(self) -> None:
        writer: PlayoutWriter | None = None
        rate_hz = self._plan.tts.info.rate_hz
        async with aclosing(merge_chunks(self._draft.sounds, rate_hz)) as sounds:
            async for sound in sounds:
                if writer is None:
                    await self._playout.drained()
                    writer = self._writer = self._playout.open(self.response_id, rate_hz)
                match sound:
                    case SpokenClause(text=text):
                        self.spoken.begin(text, writer.total_ms)
                    case WordMark():
                        self.spoken.word(sound)
                    case _:
                        await writer.write(sound)
        if writer is not None:
            self.spoken.end(writer.total_ms)
            await writer.finish()

    def _add_text(self, text: str) -> None:
        if self._item is None:
            empty = AudioPart("") if self._plan.modality == "audio" else TextPart("")
            self._item = MessageItem(new_id("item"), "assistant", (empty,), "in_progress")
            self.item_id = self._item.id
            self._previous_item_id = self._history.add(self._item)
            self.output_index = self._next_index()
            added = self._item, self._previous_item_id
            self._emit(OutputItemAdded(self.response_id, self.output_index, *added))
        self._text += text
        ids = self.response_id, self._item.id, self.output_index
        self._emit(OutputTextDelta(*ids, self._plan.modality, text))

    def _next_index(self) -> int:
        self._begun += 1
        return self._begun - 1

    @property
    def _is_cut(self) -> bool:
        """Its sound was cleared or truncated while it went on."""
        return self._truncated_ms is not None or (self._writer is not None and self._writer.is_dead)

    def _heard_text(self) -> str:
        """What was heard of the answer; of a written one, all that was sent."""
        return self._text if self._plan.modality == "text" else self.heard(self._heard_ms)

    @property
    def _heard_ms(self) -> float:
        heard_ms = 0.0 if self._writer is None else self._writer.heard_ms
        return heard_ms if self._truncated_ms is None else min(heard_ms, self._truncated_ms)

    def _stop_voice(self) -> None:
        if self._writer is not None and not (self._writer.is_dead or self._writer.is_finished):
            self._playout.clear()

    def _fail(self, error: EarshotError) -> None:
        logger.warning("! response %s: %s (%s)", self.response_id, error, error.code)
        writer = self._writer
        is_broken_off = writer is not None and writer.written > 0 and not writer.is_finished
        # Without any sound there is only the text to go by.
        text = self._heard_text() if self._is_cut or is_broken_off else self._text
        self._stop_voice()
        self._finish_item(text, "incomplete")
        self._handing_out.break_off(in_conversation=self.in_conversation)
        self._done("failed", error=error)

    def _finish_item(self, text: str, status: ItemStatus) -> None:
        if self._item is None:
            return
        part = AudioPart(text) if self._plan.modality == "audio" else TextPart(text)
        self._item = replace(self._item, parts=(part,), status=status)
        self._history.replace(self._item)
        has_audio = self._writer is not None and self._writer.written > 0
        index, previous = self.output_index, self._previous_item_id
        self._emit(OutputItemDone(self.response_id, index, self._item, previous, has_audio))
        self._output[index] = self._item

    def _done(
        self,
        status: ResponseStatus,
        *,
        reason: ResponseEndReason | None = None,
        error: EarshotError | None = None,
    ) -> None:
        self.is_done = True
        self._emit(
            ResponseDone(
                self.response_id,
                status,
                self._plan.modality,
                output=tuple(item for _, item in sorted(self._output.items())),
                reason=reason,
                error_code=None if error is None else error.code,
                error_message=None if error is None else str(error),
                usage=self._draft.usage,
                terms=self._plan.terms,
            )
        )
        if (limits := self._draft.rate_limits) is not None:
            self._emit(limits)
        if status == "cancelled" or status == "failed":
            self._finish_turn(self.turn, status)
        elif self.total_ms == 0:  # nothing to hear: written, or empty
            self._finish_turn(self.turn, "answered")
        elif self._is_cut:
            self._finish_turn(self.turn, "cancelled")
