"""A session's trace: one record per event, times and sizes; words only where they are asked for."""

import dataclasses
from typing import Any

from core.events import HypothesisChanged, OutputAudio, SessionEvent
from core.ports import Clock, TraceSink

WORDS = ("transcript", "stable", "unstable", "delta", "item", "output", "message")
"Fields that hold what people said; a trace without transcripts leaves them out."


class Trace:
    """Writes what a session tells its client, so that a run can be studied afterwards."""

    def __init__(self, sink: TraceSink, session_id: str, clock: Clock, *, words: bool) -> None:
        self._sink, self._session_id, self._clock, self._words = sink, session_id, clock, words
        self._began = clock.now()

    def write(self, event: SessionEvent) -> None:
        if isinstance(event, OutputAudio):
            return  # as many as there are frames; playout events tell the same story
        if isinstance(event, HypothesisChanged) and not self._words:
            return
        self._sink.write(
            {
                "t_ms": round(1000 * (self._clock.now() - self._began), 1),
                "session": self._session_id,
                "event": type(event).__name__,
                **self._fields(event),
            }
        )

    def _fields(self, event: SessionEvent) -> dict[str, Any]:
        fields = dataclasses.asdict(event)
        return fields if self._words else {k: v for k, v in fields.items() if k not in WORDS}
