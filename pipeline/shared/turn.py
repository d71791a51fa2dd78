"""Time marks of one turn, and the latencies of its stages. Pure; the caller passes the time."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from core.conversation.events import StageSpan, TruncationPoint, TurnTimeline
from core.conversation.speakers import HeardVoice, SpeakerMatch

TurnStatus = Literal["answered", "rejected", "cancelled", "failed", "transcribed"]
"Outcomes of a turn."


class TurnMark(StrEnum):
    """Moments of a turn. Marks of speculative work may come before ENDPOINT."""

    SPEECH_START = "speech_start"
    SPEECH_END = "speech_end"
    "End of the user's speech; for written input, its arrival."
    CANDIDATE = "candidate"
    "First pause: work on the answer begins."
    ENDPOINT = "endpoint"
    "The turn is over."
    ASR_FINAL = "asr_final"
    LLM_FIRST_TOKEN = "llm_first_token"  # noqa: S105 - a word of a language model, not a secret
    FIRST_CLAUSE = "first_clause"
    "There is enough text to speak."
    TTS_FIRST_AUDIO = "tts_first_audio"
    GATE_OPEN = "gate_open"
    "The turn is confirmed, so the answer may leave the server."
    PLAYOUT_START = "playout_start"
    "The first packet was sent."
    PLAYOUT_END = "playout_end"
    "The last packet was sent (server-paced) or played (client-paced), or the sound was cut."


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
"""Stage, the mark that ends it, and the marks that may begin it (the first that is set). A stage
that begins before the endpoint is speculative. Playout begins with the gate at the earliest."""


@dataclass(slots=True)
class Turn:
    """One turn: what the user said, and the response to it. Collects its time marks."""

    id: str
    item_id: str | None = None
    response_id: str | None = None
    status: TurnStatus | None = None
    "Outcome; the first value stays. A turn whose answer has begun to sound is answered."
    is_sounding: bool = False
    "True if its answer is audible, so that another mark will come."
    is_reported: bool = False
    "True if its timeline was emitted."
    cut: TruncationPoint | None = None
    "Point at which its sound was cut; known when the sound has ended."
    speaker: SpeakerMatch | None = None
    "Person whose voice the turn has; None: a guest, or not known yet."
    prompt_name: str = ""
    "Name of the speaker that the model sees before the words; empty: none."
    person_id: str | None = None
    """Id of the person whose profile the answer uses; empty: it uses nobody's. None: the voice was
    not compared, so the answer uses the profile of the conversation's last speaker."""
    confirm_voice: Callable[[], Awaitable[SpeakerMatch | None]] | None = field(
        default=None, compare=False, repr=False
    )
    "Compares the voice strictly, see `SpeakerRecognition.confirm`; None: there is none to compare."
    hear_voice: Callable[[], Awaitable[HeardVoice | None]] | None = field(
        default=None, compare=False, repr=False
    )
    "Returns the voice, so that it can be learned; None: there is none."
    spoken_codes: frozenset[str] = frozenset()
    "Names of the guards whose codes were said. The words of the turn no longer have the codes."
    is_speaker_fixed: bool = False
    """True once the first plan and prompt are made. A voice that is recognised later does not
    change them, because the draft of the answer would be lost."""
    marks: dict[TurnMark, float] = field(default_factory=dict[TurnMark, float])
    "Monotonic seconds. The first mark of a kind stays."

    def mark(self, mark: TurnMark, now: float) -> None:
        """Sets a mark, if it is not set yet."""
        self.marks.setdefault(mark, now)

    def fix_prompt_name(self) -> str:
        """Returns the name that the model sees before the words, which stays from now on."""
        self.is_speaker_fixed = True
        return self.prompt_name

    def fix_person(self, last_person_id: str) -> str:
        """Returns the id of the person whose profile the answer has, which stays from now on.
        `last_person_id`: person who spoke last in the conversation."""
        self.is_speaker_fixed = True
        if self.person_id is None:
            self.person_id = last_person_id
        return self.person_id

    def take(self, marks: Mapping[TurnMark, float]) -> None:
        """Adds the marks of work that was done before the turn was known to be over."""
        for mark, at in marks.items():
            self.mark(mark, at)

    def stages(self) -> tuple[StageSpan, ...]:
        """Returns the stages that happened, in ms from the end of speech."""
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
            # the filler of a slow tool was spoken before the model's first token
            if self.marks[end] < begin:
                continue
            is_early = stage != "endpoint_wait" and begin < self.marks.get(TurnMark.ENDPOINT, begin)
            start_ms, end_ms = (1000 * (at - origin) for at in (begin, self.marks[end]))
            spans.append(StageSpan(stage, round(start_ms, 1), round(end_ms, 1), is_early))
        return tuple(spans)

    def marks_ms(self) -> dict[str, float]:
        """Returns all marks, in ms from the end of speech."""
        origin = self.marks.get(TurnMark.SPEECH_END)
        if origin is None:
            return {}
        return {mark.value: round(1000 * (at - origin), 1) for mark, at in self.marks.items()}

    def gate_hold_s(self) -> float | None:
        """Returns how long the first sound (or the first text, where nothing is spoken) was ready
        before it might leave the server, in seconds. None: it was not ready when the gate
        opened."""
        ready = self.marks.get(TurnMark.TTS_FIRST_AUDIO, self.marks.get(TurnMark.LLM_FIRST_TOKEN))
        opened = self.marks.get(TurnMark.GATE_OPEN)
        if ready is None or opened is None or ready > opened:
            return None
        return opened - ready

    def response_latency_ms(self) -> float | None:
        """Returns the ms from the end of speech to the first sound, or to the first token where
        nothing is spoken."""
        origin = self.marks.get(TurnMark.SPEECH_END)
        end = self.marks.get(TurnMark.PLAYOUT_START, self.marks.get(TurnMark.LLM_FIRST_TOKEN))
        return None if origin is None or end is None else round(1000 * (end - origin), 1)

    def timeline(self, status: TurnStatus) -> TurnTimeline:
        """Returns the timeline for the client and the trace."""
        return TurnTimeline(
            turn_id=self.id,
            item_id=self.item_id,
            response_id=self.response_id,
            status=status,
            stages=self.stages(),
            response_latency_ms=self.response_latency_ms() if status == "answered" else None,
            marks=self.marks_ms(),
            cut=self.cut,
            speaker=self.speaker,
        )
