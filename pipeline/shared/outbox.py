"""Sends the events of a session to the client, the trace, the logs and the metrics."""

import logging
from collections.abc import Callable

from core.audio import AudioFrame
from core.conversation.events import OutputItemDone, SessionEvent, TranscriptionCompleted
from core.conversation.items import MessageItem
from core.ports import DeviceLocation, Metrics
from core.queues import Outbox
from pipeline.shared.settings import PlayoutPacing, SessionSettings
from pipeline.shared.trace import SessionTrace
from pipeline.shared.turn import Turn, TurnStatus

transcripts = logging.getLogger("transcripts")
"Logger of transcripts and answers, used where it is switched on. No other logger gets words."

MAX_EVENTS = 4096
"Most events that a client may leave unread. A client further behind is not coming back."
MAX_AHEAD = 256
"Unread events at which new sound waits, so that a long answer does not cut off a slow line."


class SessionOutbox:
    """Output of one session. `on_event` is called with every event, after the client got it."""

    def __init__(
        self,
        trace: SessionTrace | None,
        metrics: Metrics,
        on_event: Callable[[SessionEvent], None],
        *,
        logs_words: bool,
    ) -> None:
        self.events: Outbox[SessionEvent] = Outbox(MAX_EVENTS)
        self._metrics, self._on_event = metrics, on_event
        self._logs_words = logs_words
        self._trace = trace

    def trace_settings(
        self, settings: SessionSettings, paced_by: PlayoutPacing, place: DeviceLocation
    ) -> None:
        """Traces the settings of the session."""
        if self._trace is not None:
            self._trace.settings(settings, paced_by, place)

    def trace_frame(self, frame: AudioFrame) -> None:
        """Traces a microphone frame."""
        if self._trace is not None:
            self._trace.frame(frame)

    def close(self) -> None:
        """Ends the trace."""
        if self._trace is not None:
            self._trace.close()

    def emit(self, event: SessionEvent) -> None:
        """Sends an event to the client, the trace and the log."""
        if self._trace is not None:
            self._trace.write(event)
        if self._logs_words:
            _log_words(event)
        if isinstance(event, TranscriptionCompleted) and event.rejected_words:
            self._metrics.count("earshot_asr_rejected_words", event.rejected_words)
        self.events.put(event)
        self._on_event(event)

    async def room(self) -> None:
        """Waits while the client is far behind. For sound, which is made faster than it is
        played."""
        await self.events.room(MAX_AHEAD)

    def finish_turn(self, turn: Turn, status: TurnStatus) -> None:
        """Records how the turn ended; only the first call sets the status. Emits the turn's
        timeline now or, while its answer is audible, when that ends
        (`pipeline.response.playback`)."""
        turn.status = turn.status or status
        if turn.is_reported or turn.is_sounding:
            return
        turn.is_reported = True
        timeline = turn.timeline(turn.status)
        for span in timeline.stages:
            seconds = (span.end_ms - span.start_ms) / 1000
            self._metrics.observe("earshot_stage_seconds", seconds, stage=span.stage)
        if timeline.response_latency_ms is not None:
            self._metrics.observe(
                "earshot_response_latency_seconds", timeline.response_latency_ms / 1000
            )
        if (hold_s := turn.gate_hold_s()) is not None:
            self._metrics.observe("earshot_gate_hold_seconds", hold_s)
        self._metrics.count("earshot_turns", status=turn.status)
        self.emit(timeline)


def _log_words(event: SessionEvent) -> None:
    match event:
        case TranscriptionCompleted(item_id=item_id, transcript=words) if words:
            transcripts.info("< %s: %s", item_id, words)
        case OutputItemDone(item=MessageItem(id=item_id, text=words)) if words:
            transcripts.info("> %s: %s", item_id, words)
        case _:
            pass
