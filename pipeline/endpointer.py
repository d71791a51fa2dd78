"""Speech probability per frame -> the edges of utterances. Time is audio time; no clock, no I/O."""

from dataclasses import dataclass
from enum import Enum, auto

from core.audio import ASR_RATE_HZ, ms_to_samples

START_MS = 60
"Speech this long is a start: a door slam is shorter, the shortest word is longer."
INTERRUPT_MS = 160
"While the assistant speaks, more is asked for: its own echo and a cough must not stop it."
CANDIDATE_MS = 60
"Silence after which the utterance may be over: what can be prepared is prepared now."
HYSTERESIS = 0.15
"Speech goes on down to threshold - this: a probability that flickers is not a pause."
MAX_UTTERANCE_MS = 60_000
"A longer one is cut here and goes on as the next: recognisers and people lose track."


class Edge(Enum):
    STARTED = auto()
    CANDIDATE = auto()
    "A first pause; the utterance is over unless it resumes."
    RESUMED = auto()
    "Speech after a candidate: what was prepared for it is void."
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class SpeechEdge:
    edge: Edge
    at: int
    "Sample of the stream: of the first speech for STARTED and RESUMED, else one past the last."


class Endpointer:
    """One stream's speech edges. At most one edge per frame."""

    def __init__(self, *, threshold: float = 0.5, silence_ms: float = 500) -> None:
        self.threshold = threshold
        self.silence_ms = silence_ms
        "Silence that ends the utterance; may change while one is running."
        self.max_ms: float = MAX_UTTERANCE_MS
        self.is_guarded = False
        "The assistant is speaking: a start needs `INTERRUPT_MS` of speech."
        self.in_speech = False
        self._position = 0
        self._run_start = 0
        "Where the present run of speech began (idle), or the utterance (in speech)."
        self._run = 0
        "Samples of unbroken speech while idle."
        self._speech_end = 0
        self._is_candidate = False

    def push(self, probability: float, samples: int) -> SpeechEdge | None:
        """Take the VAD's word on the next `samples` (16 kHz)."""
        start = self._position
        self._position += samples
        if not self.in_speech:
            return self._idle(probability >= self.threshold, start, samples)
        return self._speaking(probability >= self.threshold - HYSTERESIS, start)

    def reset(self) -> None:
        """Forget a running utterance; positions go on."""
        self.in_speech = self._is_candidate = False
        self._run = 0

    def _idle(self, is_speech: bool, start: int, samples: int) -> SpeechEdge | None:
        if not is_speech:
            self._run = 0
            return None
        if self._run == 0:
            self._run_start = start
        self._run += samples
        needed_ms = INTERRUPT_MS if self.is_guarded else START_MS
        if self._run < ms_to_samples(needed_ms, ASR_RATE_HZ):
            return None
        self._run = 0
        self.in_speech, self._is_candidate = True, False
        self._speech_end = self._position
        return SpeechEdge(Edge.STARTED, self._run_start)

    def _speaking(self, is_speech: bool, start: int) -> SpeechEdge | None:
        if is_speech and self._is_candidate:  # before the cut: it would come without this frame
            self._is_candidate = False
            self._speech_end = self._position
            return SpeechEdge(Edge.RESUMED, start)
        if self._position - self._run_start >= ms_to_samples(self.max_ms, ASR_RATE_HZ):
            self.reset()
            return SpeechEdge(Edge.ENDED, self._position)
        if is_speech:
            self._speech_end = self._position
            return None
        silence = self._position - self._speech_end
        if silence >= ms_to_samples(self.silence_ms, ASR_RATE_HZ):
            self.reset()
            return SpeechEdge(Edge.ENDED, self._speech_end)
        if not self._is_candidate and silence >= ms_to_samples(CANDIDATE_MS, ASR_RATE_HZ):
            self._is_candidate = True
            return SpeechEdge(Edge.CANDIDATE, self._speech_end)
        return None
