"""Where everything goes that a session has to tell: the client, the trace, the metrics."""

import logging
from collections.abc import Callable

from core.audio import AudioFrame
from core.events import OutputItemDone, SessionEvent, TranscriptionCompleted
from core.items import Item, MessageItem
from core.ports import DeviceLocation, Metrics
from core.queues import Outbox
from pipeline.shared.settings import PlayoutPacing, SessionSettings
from pipeline.shared.trace import SessionTrace
from pipeline.shared.turn import Turn, TurnStatus

transcripts = logging.getLogger("transcripts")
"What was heard and what was said, where that is asked for; no other logger gets words."

MAX_EVENTS = 4096
"Words and sound that a client has not taken; one further behind is not coming back."
MAX_AHEAD = 256
"Sound waits while this many events do: a long answer is no reason to cut a slow line off."


class SessionOutbox:
    """One session's. `on_change` is called after every event."""

    def __init__(
        self,
        trace: SessionTrace | None,
        metrics: Metrics,
        on_change: Callable[[], None],
        *,
        logs_words: bool,
    ) -> None:
        self.events: Outbox[SessionEvent] = Outbox(MAX_EVENTS)
        self._metrics, self._on_change = metrics, on_change
        self._logs_words = logs_words
        self.watch: Callable[[SessionEvent], None] = lambda _: None
        "Told every event, too."
        self._trace = trace

    def configured(
        self, settings: SessionSettings, paced_by: PlayoutPacing, place: DeviceLocation
    ) -> None:
        if self._trace is not None:
            self._trace.configured(settings, paced_by, place)

    def used(self, item: Item) -> None:
        """A tool's call, or what it answered: no client is told, for it is the server's own."""
        if self._trace is not None:
            self._trace.used(item)

    def hear(self, frame: AudioFrame) -> None:
        if self._trace is not None:
            self._trace.hear(frame)

    def close(self) -> None:
        """Nothing more will come."""
        if self._trace is not None:
            self._trace.close()

    def emit(self, event: SessionEvent) -> None:
        if self._trace is not None:
            self._trace.write(event)
        if self._logs_words:
            _log_words(event)
        self.events.put(event)
        self.watch(event)
        self._on_change()

    async def room(self) -> None:
        """Wait while the client is far behind: for sound, which comes faster than it is heard."""
        await self.events.room(MAX_AHEAD)

    def finish_turn(self, turn: Turn, status: TurnStatus) -> None:
        """The turn ends like this; only the first call counts. While its answer is heard it is told
        when that ends (`pipeline.response.playback`), else now."""
        turn.status = turn.status or status
        if turn.is_traced or turn.is_sounding:
            return
        turn.is_traced = True
        traced = turn.trace(turn.status)
        for span in traced.stages:
            seconds = (span.end_ms - span.start_ms) / 1000
            self._metrics.observe("earshot_stage_seconds", seconds, stage=span.stage)
        if traced.response_latency_ms is not None:
            self._metrics.observe(
                "earshot_response_latency_seconds", traced.response_latency_ms / 1000
            )
        if (hold_s := turn.gate_hold_s()) is not None:
            self._metrics.observe("earshot_gate_hold_seconds", hold_s)
        self._metrics.count("earshot_turns", status=turn.status)
        self.emit(traced)


def _log_words(event: SessionEvent) -> None:
    match event:
        case TranscriptionCompleted(item_id=item_id, transcript=words) if words:
            transcripts.info("< %s: %s", item_id, words)
        case OutputItemDone(item=MessageItem(id=item_id, text=words)) if words:
            transcripts.info("> %s: %s", item_id, words)
        case _:
            pass
