"""Speech probability per frame -> the edges of utterances. Time is audio time; no clock, no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from math import exp, log
from typing import Literal

from core.audio import ASR_RATE_HZ, ms_to_samples
from pipeline.user_turn.speech_offset import AudibleEnd

START_MS = 60
"Speech this long is a start: a door slam is shorter, the shortest word is longer."
INTERRUPT_MS = 160
"While the assistant speaks, more is asked for: its own echo and a cough must not stop it."
CANDIDATE_MS = 60
"Silence after which the utterance may be over: what can be prepared is prepared now."
HYSTERESIS = 0.15
"Speech goes on down to threshold - this: a probability that flickers is not a pause."
MAX_HANG_MS = 150
"A VAD that calls silence speech is not believed for so long; for longer, it must know better."
ONSET_MS = 60
"A VAD is as late in a word's beginning: a sound at the end of the silence is waited for."
SUPPOSED_MS = 20
"""Silence that may be supposed before it is heard: one packet's. Whoever speaks in it goes on after
an end, as in the next one; with more, packets that are lost or late would end a turn."""
MAX_UTTERANCE_MS = 60_000
"A longer one is cut here and goes on as the next: recognisers and people lose track."


class EdgeKind(Enum):
    STARTED = auto()
    CANDIDATE = auto()
    "A first pause; the utterance is over unless it resumes."
    RESUMED = auto()
    "Speech after a candidate: what was prepared for it is void."
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class SpeechEdge:
    edge: EdgeKind
    at: int
    """Sample of the stream: of the first speech for STARTED and RESUMED, else one past the last
    that could be heard, from which silence counts."""
    until: int
    "One past the last sample of speech, the VAD's or a consonant after it: decode no less."


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
        self.speech_end = 0
        "One past the last speech of the utterance, as the VAD has it."
        self._position = 0
        self._run_start = 0
        "Where the present run of speech began (idle), or the utterance (in speech)."
        self._run = 0
        "Samples of unbroken speech while idle."
        self._candidate: int | None = None
        "Where the pause began when it was told."
        self._told_at = 0
        "Where the stream was then."
        self._pause_ms: float | None = None
        "What this pause waits for, in place of `silence_ms`."
        self._held = 0
        "Samples for which the end waits for the VAD to say what sounds."
        self._silent_from: int | None = None
        "The end of sound, as of the newest frame; None: that was no silence."

    def is_speech(self, probability: float) -> bool:
        """Whether a frame of this probability would count as speech now."""
        return probability >= self.threshold - (HYSTERESIS if self.in_speech else 0)

    def push(
        self, probability: float, samples: int, sound: AudibleEnd | None = None
    ) -> SpeechEdge | None:
        """Take the VAD's word on the next `samples` (16 kHz); `sound`: what could be heard before
        `speech_end` and now, for a frame without speech. None: the VAD alone knows."""
        start = self._position
        is_speech = self.is_speech(probability)
        self._position += samples
        if not self.in_speech:
            return self._idle(is_speech, start, samples)
        return self._speaking(start, sound, is_speech=is_speech)

    def expect(self, silence_ms: float, pause: int | None = None) -> None:
        """Wait for so long in the present pause only; if it was longer already, the utterance ends
        with the next frame. `pause`: the candidate's `at`; without effect in another one."""
        if self._candidate is not None and pause in (None, self._candidate):
            self._pause_ms = silence_ms

    @property
    def missing(self) -> int | None:
        """Samples of silence with which the utterance ends, after what was heard, if that is no
        more than may be supposed. None: more is missing, or something sounds."""
        if self._silent_from is None:
            return None
        wanted = ms_to_samples(self._wait_ms, ASR_RATE_HZ)
        missing = max(0, wanted - (self._position - self._silent_from))
        return missing if missing <= ms_to_samples(SUPPOSED_MS, ASR_RATE_HZ) else None

    def suppose(self) -> SpeechEdge | None:
        """ENDED, if what is `missing` was silent as well. Positions count what was heard: the next
        frame belongs to what comes next."""
        if self.missing is None or self._silent_from is None:
            return None
        until = max(self.speech_end, self._silent_from)
        ended = SpeechEdge(EdgeKind.ENDED, self._silent_from, until)
        self.reset()
        return ended

    def reset(self) -> None:
        """Forget a running utterance; positions go on."""
        self.in_speech = False
        self._run = 0
        self._leave_pause()

    def _leave_pause(self) -> None:
        self._candidate = self._pause_ms = self._silent_from = None
        self._held = 0

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
        self.reset()
        self.in_speech = True
        self.speech_end = self._position
        return SpeechEdge(EdgeKind.STARTED, self._run_start, self._position)

    def _speaking(
        self, start: int, sound: AudibleEnd | None, *, is_speech: bool
    ) -> SpeechEdge | None:
        if is_speech:
            was_candidate = self._candidate is not None
            self._leave_pause()
            self.speech_end = self._position
            if was_candidate:  # before the cut: it would come without this frame
                return SpeechEdge(EdgeKind.RESUMED, start, self._position)
        if self._position - self._run_start >= ms_to_samples(self.max_ms, ASR_RATE_HZ):
            self.reset()
            return SpeechEdge(EdgeKind.ENDED, self._position, self._position)
        return None if is_speech else self._silent(self._position - start, sound)

    def _silent(self, samples: int, sound: AudibleEnd | None) -> SpeechEdge | None:
        end = self._sound_end(sound)
        if self._candidate is not None and end > self._told_at:
            self._leave_pause()  # what was prepared has not heard all of it
            return SpeechEdge(EdgeKind.RESUMED, self._position - samples, self._position)
        until = max(self.speech_end, end)
        silence = self._position - end
        self._silent_from = None if sound is not None and sound.is_now else end
        if silence >= ms_to_samples(self._wait_ms, ASR_RATE_HZ):
            if self._waits_for_vad(samples, sound):
                return None
            self.reset()
            return SpeechEdge(EdgeKind.ENDED, end, until)
        if self._candidate is None and silence >= ms_to_samples(CANDIDATE_MS, ASR_RATE_HZ):
            self._candidate, self._told_at = end, self._position
            return SpeechEdge(EdgeKind.CANDIDATE, end, until)
        return None

    @property
    def _wait_ms(self) -> float:
        return self.silence_ms if self._pause_ms is None else self._pause_ms

    def _sound_end(self, sound: AudibleEnd | None) -> int:
        if sound is None:
            return self.speech_end
        earliest = self.speech_end - ms_to_samples(MAX_HANG_MS, ASR_RATE_HZ)
        return max(min(self.speech_end, max(sound.last, earliest, self._run_start)), sound.after)

    def _waits_for_vad(self, samples: int, sound: AudibleEnd | None) -> bool:
        """Whether what sounds now may be the next word, which the VAD knows a moment later."""
        if sound is None or not sound.is_now:
            return False
        self._held += samples
        return self._held <= ms_to_samples(ONSET_MS, ASR_RATE_HZ)


# How long a pause must be until the turn is over, by how likely it is over. Pure.

Eagerness = Literal["low", "medium", "high", "auto"]


@dataclass(frozen=True, slots=True)
class EndpointDelays:
    """Milliseconds of silence, by the probability that the turn is over."""

    unfinished: float
    unknown: float
    finished: float


WAITS: Mapping[Eagerness, EndpointDelays] = {
    "low": EndpointDelays(1200, 900, 400),
    "medium": EndpointDelays(900, 600, 200),
    "auto": EndpointDelays(600, 450, 120),
    "high": EndpointDelays(450, 300, 120),
}
"""By `eagerness`. Below 120 ms nobody is answered: stops within words are as long."""

LEAST_SURE, MOST_SURE = 0.05, 0.95
"No single witness is believed more than so: sound and words can outvote each other."


def endpoint_delay_ms(eagerness: Eagerness, probability: float | None) -> float:
    """Silence that ends the turn. None and 0.5 tell nothing; between, it is a straight line."""
    waits = WAITS[eagerness]
    if probability is None:
        return waits.unknown
    sure = 2 * min(1.0, max(0.0, probability)) - 1
    other = waits.finished if sure > 0 else waits.unfinished
    return waits.unknown + abs(sure) * (other - waits.unknown)


def combine_probabilities(*witnesses: float | None) -> float | None:
    """One probability from how it sounds, what it says and whether it is understood; None: none of
    them can tell.

    Odds are multiplied, as of witnesses who know nothing of each other.
    """
    known = [_log_odds(one) for one in witnesses if one is not None]
    return 1 / (1 + exp(-sum(known))) if known else None


def _log_odds(probability: float) -> float:
    bounded = min(MOST_SURE, max(LEAST_SURE, probability))
    return log(bounded / (1 - bounded))
