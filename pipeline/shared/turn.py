"""Marks of one turn and what they tell: where the milliseconds went. Pure; takes `now`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from core.events import StageSpan, TruncationPoint, TurnTimeline

TurnStatus = Literal["answered", "rejected", "cancelled", "failed", "transcribed"]


class TurnMark(StrEnum):
    """Moments of a turn. Those of work done ahead come before the endpoint."""

    SPEECH_START = "speech_start"
    SPEECH_END = "speech_end"
    "The last speech was heard; for written input, when it came in."
    CANDIDATE = "candidate"
    "A first pause: work on the answer begins."
    ENDPOINT = "endpoint"
    "The turn is over."
    ASR_FINAL = "asr_final"
    LLM_FIRST_TOKEN = "llm_first_token"  # noqa: S105 - a word of a language model, not a secret
    FIRST_CLAUSE = "first_clause"
    "Enough text to speak."
    TTS_FIRST_AUDIO = "tts_first_audio"
    GATE_OPEN = "gate_open"
    "From here on the answer may leave the server: its turn is confirmed."
    PLAYOUT_START = "playout_start"
    "The first packet."
    PLAYOUT_END = "playout_end"
    "The last packet went; a client that paces itself has played it. Or where sound was cut."


SPANS: tuple[
    tuple[Literal["endpoint_wait", "asr", "llm", "tts", "playout"], TurnMark, tuple[TurnMark, ...]],
    ...,
] = (
    ("endpoint_wait", TurnMark.ENDPOINT, (TurnMark.SPEECH_END,)),
    ("asr", TurnMark.ASR_FINAL, (TurnMark.CANDIDATE, TurnMark.ENDPOINT)),
    ("llm", TurnMark.LLM_FIRST_TOKEN, (TurnMark.ASR_FINAL, TurnMark.SPEECH_END)),
    ("tts", TurnMark.TTS_FIRST_AUDIO, (TurnMark.LLM_FIRST_TOKEN,)),
    ("playout", TurnMark.PLAYOUT_START, (TurnMark.TTS_FIRST_AUDIO,)),
)
"""Stage, the mark that ends it, and the marks that may begin it (the first that is set). What
begins before the endpoint is speculation; playout begins with the gate at the earliest."""


@dataclass(slots=True)
class Turn:
    id: str
    item_id: str | None = None
    response_id: str | None = None
    status: TurnStatus | None = None
    "How it ended; the first that is set counts. With the first sound it is answered."
    is_sounding: bool = False
    "Its answer is being heard: there is another mark to come."
    is_traced: bool = False
    cut: TruncationPoint | None = None
    "Known when its sound has ended."
    marks: dict[TurnMark, float] = field(default_factory=dict[TurnMark, float])
    "Monotonic seconds. The first mark of a kind wins."

    def mark(self, mark: TurnMark, now: float) -> None:
        self.marks.setdefault(mark, now)

    def take(self, marks: Mapping[TurnMark, float]) -> None:
        """Those of work that was done for it before it was known to be over."""
        for mark, at in marks.items():
            self.mark(mark, at)

    def stages(self) -> tuple[StageSpan, ...]:
        """The stages that happened, in ms from the end of speech."""
        origin = self.marks.get(TurnMark.SPEECH_END)
        if origin is None:
            return ()
        spans = []
        for stage, end, begins in SPANS:
            begin = next((self.marks[b] for b in begins if b in self.marks), None)
            if end not in self.marks or begin is None:
                continue
            if stage == "playout":
                begin = max(begin, self.marks.get(TurnMark.GATE_OPEN, begin))
            if self.marks[end] < begin:  # a tool's "one moment" came before the model's first word
                continue
            is_early = stage != "endpoint_wait" and begin < self.marks.get(TurnMark.ENDPOINT, begin)
            start_ms, end_ms = (1000 * (at - origin) for at in (begin, self.marks[end]))
            spans.append(StageSpan(stage, round(start_ms, 1), round(end_ms, 1), is_early))
        return tuple(spans)

    def marks_ms(self) -> dict[str, float]:
        """Every moment, in ms from the end of speech."""
        origin = self.marks.get(TurnMark.SPEECH_END)
        if origin is None:
            return {}
        return {mark.value: round(1000 * (at - origin), 1) for mark, at in self.marks.items()}

    def gate_hold_s(self) -> float | None:
        """How long the first sound (where nothing is spoken: the first words) was ready and not let
        out; None: it was not ready when the gate opened."""
        ready = self.marks.get(TurnMark.TTS_FIRST_AUDIO, self.marks.get(TurnMark.LLM_FIRST_TOKEN))
        opened = self.marks.get(TurnMark.GATE_OPEN)
        if ready is None or opened is None or ready > opened:
            return None
        return opened - ready

    def response_latency_ms(self) -> float | None:
        """End of speech to first sound; to the first word where nothing is spoken."""
        origin = self.marks.get(TurnMark.SPEECH_END)
        end = self.marks.get(TurnMark.PLAYOUT_START, self.marks.get(TurnMark.LLM_FIRST_TOKEN))
        return None if origin is None or end is None else round(1000 * (end - origin), 1)

    def trace(self, status: TurnStatus) -> TurnTimeline:
        return TurnTimeline(
            turn_id=self.id,
            item_id=self.item_id,
            response_id=self.response_id,
            status=status,
            stages=self.stages(),
            response_latency_ms=self.response_latency_ms() if status == "answered" else None,
            marks=self.marks_ms(),
            cut=self.cut,
        )
