"""Marks of one turn and what they tell: where the milliseconds went. Pure; takes `now`."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from core.events import StageSpan, TurnTraced

TurnStatus = Literal["answered", "rejected", "cancelled", "failed", "transcribed"]


class Mark(StrEnum):
    """Moments of a turn, in the order in which they happen."""

    SPEECH_END = "speech_end"
    "The last speech was heard; for written input, when it came in."
    ENDPOINT = "endpoint"
    ASR_FINAL = "asr_final"
    LLM_FIRST_TOKEN = "llm_first_token"  # noqa: S105 - a word of a language model, not a secret
    TTS_FIRST_AUDIO = "tts_first_audio"
    PLAYOUT_START = "playout_start"


SPANS: tuple[
    tuple[Literal["endpoint_wait", "asr", "llm", "tts", "playout"], Mark, tuple[Mark, ...]], ...
] = (
    ("endpoint_wait", Mark.ENDPOINT, (Mark.SPEECH_END,)),
    ("asr", Mark.ASR_FINAL, (Mark.ENDPOINT,)),
    ("llm", Mark.LLM_FIRST_TOKEN, (Mark.ASR_FINAL, Mark.SPEECH_END)),
    ("tts", Mark.TTS_FIRST_AUDIO, (Mark.LLM_FIRST_TOKEN,)),
    ("playout", Mark.PLAYOUT_START, (Mark.TTS_FIRST_AUDIO,)),
)
"Stage, the mark that ends it, and the marks that may begin it (the first that is set)."


@dataclass(slots=True)
class Turn:
    id: str
    item_id: str | None = None
    response_id: str | None = None
    is_traced: bool = False
    marks: dict[Mark, float] = field(default_factory=dict[Mark, float])
    "Monotonic seconds. The first mark of a kind wins."

    def mark(self, mark: Mark, now: float) -> None:
        self.marks.setdefault(mark, now)

    def stages(self) -> tuple[StageSpan, ...]:
        """The stages that happened, in ms from the end of speech."""
        origin = self.marks.get(Mark.SPEECH_END)
        if origin is None:
            return ()
        spans = []
        for stage, end, begins in SPANS:
            begin = next((self.marks[b] for b in begins if b in self.marks), None)
            if end in self.marks and begin is not None:
                times = (1000 * (begin - origin), 1000 * (self.marks[end] - origin))
                spans.append(StageSpan(stage, round(times[0], 1), round(times[1], 1)))
        return tuple(spans)

    def response_latency_ms(self) -> float | None:
        """End of speech to first sound; to the first word where nothing is spoken."""
        origin = self.marks.get(Mark.SPEECH_END)
        end = self.marks.get(Mark.PLAYOUT_START, self.marks.get(Mark.LLM_FIRST_TOKEN))
        return None if origin is None or end is None else round(1000 * (end - origin), 1)

    def trace(self, status: TurnStatus) -> TurnTraced:
        return TurnTraced(
            turn_id=self.id,
            item_id=self.item_id,
            response_id=self.response_id,
            status=status,
            stages=self.stages(),
            response_latency_ms=self.response_latency_ms() if status == "answered" else None,
        )
