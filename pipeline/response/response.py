"""Delivery of one response: its text, sound and tool calls, until it ends or is cancelled."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from core.conversation.events import (
    CancelReason,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ResponseEndReason,
    ResponseStatus,
    ServerToolItem,
    SessionEvent,
    TruncationPoint,
)
from core.conversation.ids import new_id
from core.conversation.items import AudioPart, Item, ItemStatus, MessageItem, TextPart
from core.errors import EarshotError, expected_failure
from core.ports import Clock
from engines.base import WordMark
from pipeline.conversation.history import History
from pipeline.playout.heard_text import HeardText
from pipeline.playout.playout import Playout, PlayoutWriter
from pipeline.response.draft import DraftRecipient, ResponseDraft
from pipeline.response.tool_items import ToolCallItems
from pipeline.shared.turn import Turn, TurnMark, TurnStatus
from pipeline.speech.synthesis import SpokenClause, merge_chunks
from pipeline.user_turn.continuation import RETRACTABLE_MS

logger = logging.getLogger(__name__)


class Response:
    """Delivers one draft to the user as text, sound and tool calls.

    A response is made by `ResponseCoordinator` and run once, as a task:

        response = Response(
            draft, history, playout, clock, emit, finish_turn, wait_until_settled
        )
        task = tasks.create_task(response.run())
        response.cancel("client_cancelled")  # from anywhere, at any time

    `run` raises only CancelledError. An engine's failure becomes a ResponseDone with status
    "failed".
    """

    def __init__(
        self,
        draft: ResponseDraft,
        history: History,
        playout: Playout,
        clock: Clock,
        emit: Callable[[SessionEvent], None],
        finish_turn: Callable[[Turn, TurnStatus], None],
        wait_until_settled: Callable[["Response"], Awaitable[object]],
    ) -> None:
        """Takes the draft to deliver and the session's parts that it is delivered through.

        history: history to which the response's items are added; an empty one for an out-of-band
        response.
        emit: sends an event to the client.
        finish_turn: reports how the turn ended.
        wait_until_settled: waits while the user may be going on with the sentence that the given
        response answers.
        """
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
        self._wait_until_settled = wait_until_settled
        self._text = ""
        self._item: MessageItem | None = None
        self._internal: list[str] = []
        "Ids of the internal items: the server's own tool calls and their results."
        self._output: dict[int, Item] = {}
        "Finished items by output index."
        self._output_count = 0
        "Number of output items begun so far, finished or not. The next one's index."
        self.output_index = 0
        "Output index of the message item."
        self._tool_items = ToolCallItems(
            self.response_id, history, emit, self._next_index, self._output, draft.plan.mcp_offer
        )
        self._previous_item_id: str | None = None
        self._writer: PlayoutWriter | None = None
        self._truncated_ms: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled: CancelReason | None = None

    async def run(self) -> None:
        """Delivers the response to its end. Raises only CancelledError."""
        self._task = asyncio.current_task()
        plan, draft = self._plan, self._draft
        # Emitted before `confirm`, which reports the tools that the draft has called already.
        self._emit(ResponseCreated(self.response_id, plan.modality, plan.parameters))
        draft.confirm(
            DraftRecipient(self._remember, self.turn.mark, lambda: self._wait_until_settled(self))
        )
        self.turn.mark(TurnMark.GATE_OPEN, self._clock.now())
        if self._cancelled is not None:
            draft.cancel()
            self._done("cancelled", reason=self._cancelled)
            return
        try:
            if plan.refusal is not None:
                raise plan.refusal
            async with asyncio.TaskGroup() as tasks:
                draft.begin(tasks)
                tasks.create_task(draft.wait_until_made())
                tasks.create_task(self._deliver_texts())
                tasks.create_task(self._deliver_sounds())
                tasks.create_task(self._deliver_calls())
        except asyncio.CancelledError:
            self._end_cancelled()
            raise
        except (EarshotError, BaseExceptionGroup) as exc:
            error = expected_failure(exc)
            if error is None:
                raise
            self._fail(error)
        else:
            # an apology was delivered in place of the answer, or after its first part
            if draft.apology_for is not None:
                self._fail(draft.apology_for)
            else:
                self._complete()

    def _complete(self) -> None:
        hit_limit = self._draft.hit_limit
        if self._is_cut:
            self._finish_item(self._heard_text(), "incomplete")
        else:
            self._finish_item(self._text, "incomplete" if hit_limit else "completed")
        for call in self._draft.calls:
            self._tool_items.finish(call)
        if hit_limit:
            self._done("incomplete", reason="max_output_tokens")
        else:
            self._done("completed")

    def cancel(self, reason: CancelReason) -> None:
        """Cancels the response at any time. One that has not begun ends as soon as it is run."""
        self._cancelled = reason
        if self._task is not None:
            self._task.cancel()

    def truncate(self, audio_end_ms: float) -> None:
        """Cuts the text in the history to what the client played, in ms of the response's sound.

        Also valid while the response is still being made.
        """
        assert self.item_id is not None
        if self._truncated_ms is not None:
            # an earlier, shorter truncation stays in force
            audio_end_ms = min(audio_end_ms, self._truncated_ms)
        self._truncated_ms = audio_end_ms
        if self._history.find(self.item_id) is not None:  # the client may have deleted the item
            self._history.truncate(self.item_id, self.text_heard_in(audio_end_ms))

    @property
    def total_ms(self) -> float:
        """Length of the sound made so far, in ms."""
        return 0.0 if self._writer is None else self._writer.total_ms

    @property
    def is_cancelled(self) -> bool:
        """True once `cancel` was called, even if the response has not ended yet."""
        return self._cancelled is not None

    @property
    def is_heard(self) -> bool:
        """True when some of its sound went to the speaker."""
        return self._writer is not None and self._writer.has_started

    @property
    def awaits_speaker(self) -> bool:
        """True while there is sound of this response, but none of it went to the speaker yet."""
        writer = self._writer
        if writer is None or writer.is_dead:
            return False
        return writer.written > 0 and not writer.has_started

    def is_hardly_heard(self, now: float) -> bool:
        """Returns whether less than `RETRACTABLE_MS` was played, so that the user knows nothing of
        the response yet.

        False when the client cancelled it: then the user has refused it.

        now: monotonic seconds up to which playout counts.
        """
        writer = self._writer
        if self._cancelled == "client_cancelled":
            return False
        if writer is None:
            # no sound yet: the user cannot have heard anything, but reads a text response at once
            return self._plan.modality == "audio" or not self._text
        heard_ms = writer.heard_ms
        # A client that paces itself gets sound faster than real time, and plays it in real time.
        if self._playout.paced_by == "client":
            since_s = now - self.turn.marks.get(TurnMark.PLAYOUT_START, now)
            heard_ms = min(heard_ms, 1000 * since_s)
        if self._truncated_ms is not None:
            heard_ms = min(heard_ms, self._truncated_ms)
        # a short answer that was played to its end has been heard, whatever its length
        is_all = writer.is_finished and heard_ms >= writer.total_ms
        return heard_ms < RETRACTABLE_MS and not is_all

    @property
    def has_acted(self) -> bool:
        """True when a tool changed something, or the client has a tool call to run."""
        return self._draft.has_acted or bool(self._draft.calls)

    @property
    def items(self) -> tuple[str, ...]:
        """Ids of the items that this response added to the history."""
        message_ids = [] if self.item_id is None else [self.item_id]
        return (*self._internal, *self._tool_items.items, *message_ids)

    @property
    def contains_question(self) -> bool:
        """True when the text so far contains a question."""
        return "?" in self._text

    @property
    def in_conversation(self) -> bool:
        """False for an out-of-band response."""
        return self._plan.parameters.in_conversation

    def text_heard_in(self, heard_ms: float) -> str:
        """Returns the words that were audible in the first `heard_ms` of its sound."""
        return self.spoken.text_until(heard_ms, self.total_ms)

    @property
    def cut(self) -> TruncationPoint | None:
        """Point where the sound was cut, and the words that were heard up to it.

        None while nothing cut it.
        """
        return self.spoken.cut(self._heard_ms, self.total_ms) if self._is_cut else None

    def _remember(self, item: Item) -> None:
        self._internal.append(item.id)
        self._history.add(item, is_internal=True)
        self._emit(ServerToolItem(self.response_id, item))

    async def _deliver_texts(self) -> None:
        """Sends the text. Deltas that are already waiting are joined into one event."""
        texts, is_over = self._draft.texts, False
        while not is_over:
            waiting = [await texts.get()]
            while not texts.empty():
                waiting.append(texts.get_nowait())
            is_over = waiting[-1] is None
            if texts_ready := [text for text in waiting if text is not None]:
                self._add_text("".join(texts_ready))

    async def _deliver_calls(self) -> None:
        while (delta := await self._draft.call_deltas.get()) is not None:
            self._tool_items.push(delta)

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
            self._emit(
                OutputItemAdded(
                    self.response_id, self.output_index, self._item, self._previous_item_id
                )
            )
        self._text += text
        self._emit(
            OutputTextDelta(
                self.response_id, self._item.id, self.output_index, self._plan.modality, text
            )
        )

    def _next_index(self) -> int:
        self._output_count += 1
        return self._output_count - 1

    @property
    def _is_cut(self) -> bool:
        """True when its sound was cleared or truncated before its end."""
        return self._truncated_ms is not None or (self._writer is not None and self._writer.is_dead)

    def _heard_text(self) -> str:
        """Returns the text that was heard. For a text response, all that was sent."""
        return self._text if self._plan.modality == "text" else self.text_heard_in(self._heard_ms)

    @property
    def _heard_ms(self) -> float:
        heard_ms = 0.0 if self._writer is None else self._writer.heard_ms
        return heard_ms if self._truncated_ms is None else min(heard_ms, self._truncated_ms)

    def _stop_voice(self) -> None:
        if self._writer is not None and not (self._writer.is_dead or self._writer.is_finished):
            self._playout.clear()

    def _end_cancelled(self) -> None:
        self._draft.cancel()
        self._stop_voice()
        self._finish_item(self._heard_text(), "incomplete")
        self._tool_items.break_off(in_conversation=self.in_conversation)
        self._done("cancelled", reason=self._cancelled or "client_cancelled")

    def _fail(self, error: EarshotError) -> None:
        logger.warning("! response %s: %s (%s)", self.response_id, error, error.code)
        writer = self._writer
        is_broken_off = writer is not None and writer.written > 0 and not writer.is_finished
        # Without any sound nothing says how much was heard, so all of the text is kept.
        text = self._heard_text() if self._is_cut or is_broken_off else self._text
        self._stop_voice()
        self._finish_item(text, "incomplete")
        self._tool_items.break_off(in_conversation=self.in_conversation)
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
                parameters=self._plan.parameters,
            )
        )
        if (limits := self._draft.rate_limits) is not None:
            self._emit(limits)
        if status == "cancelled" or status == "failed":
            self._finish_turn(self.turn, status)
        elif self.total_ms == 0:  # nothing was audible: a text response, or an empty one
            self._finish_turn(self.turn, "answered")
        # otherwise `PlaybackTracker` finishes the turn, when its sound ends
        elif self._is_cut:
            self._finish_turn(self.turn, "cancelled")
