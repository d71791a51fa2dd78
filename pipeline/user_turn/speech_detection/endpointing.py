"""Finds where utterances start, pause and end, from the speech probability of each frame.

Time is audio time, counted in samples at 16 kHz; no clock, no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from math import exp, log
from typing import Literal

from core.audio import ASR_RATE_HZ, ms_to_samples
from pipeline.user_turn.speech_detection.speech_offset import AudibleEnd

START_MS = 60
"Length of speech that counts as a start: a door slam is shorter, the shortest word is longer."
INTERRUPT_MS = 160
"""Length of speech that counts as a start while the assistant speaks. It is longer, so that the
assistant's own echo or a cough does not stop the answer."""
CANDIDATE_MS = 60
"Silence after which the utterance may be over. What can be prepared is begun now."
HYSTERESIS = 0.15
"""Speech that has begun continues while the probability is above threshold minus this. A
probability that flickers is not a pause."""
MAX_HANG_MS = 150
"""Longest time from the end of sound to the VAD's end of speech. A VAD still reports speech for a
while after a word. Where it does so for longer than this, it is trusted more than the sound
level."""
ONSET_MS = 60
"""Longest extra wait for a VAD that may be late at the beginning of a word, when something is
audible at the end of the silence."""
MAX_EARLY_MS = 20
"""Longest silence that may be assumed before it arrives: one packet. Speech in that packet
continues after the endpoint, as speech in the next packet would. With more, lost or late packets
would end a turn."""
MAX_UTTERANCE_MS = 60_000
"""Longest utterance. It is cut here and continues as the next one: recognisers and people lose
track of longer ones."""


class EdgeKind(Enum):
    """Kinds of edges between speech and silence."""

    STARTED = auto()
    CANDIDATE = auto()
    "First pause: the utterance is over unless it resumes."
    RESUMED = auto()
    "Speech after a candidate: what was prepared for the pause is void."
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class SpeechEdge:
    """A change between speech and silence, at a position in the stream."""

    kind: EdgeKind
    at: int
    """Sample of the stream. STARTED, RESUMED: the first one of speech. Otherwise: one past the last
    audible one, from which silence counts."""
    until: int
    """One past the last sample of speech, by the VAD or by a consonant after it. A decode must
    cover it."""


class Endpointer:
    """Finds the speech edges of one stream. Each frame gives at most one edge.

    `threshold`: VAD probability, 0 to 1, from which a frame is speech. `silence_ms`: silence that
    ends an utterance.

        edge = endpointer.push(vad.push(pcm), len(pcm))
        if edge is not None and edge.kind is EdgeKind.ENDED:
            ...  # the speech ended at sample edge.at
    """

    def __init__(self, *, threshold: float = 0.5, silence_ms: float = 500) -> None:
        self.threshold = threshold
        self.silence_ms = silence_ms
        "Silence in ms that ends the utterance; may change during an utterance."
        self.max_ms: float = MAX_UTTERANCE_MS
        "Longest utterance in ms."
        self.is_guarded = False
        "True if the assistant is speaking: a start then needs `INTERRUPT_MS` of speech."
        self.in_speech = False
        "True if an utterance has begun and is not over."
        self.speech_end = 0
        "One past the last sample of speech of the utterance, by the VAD."
        self._position = 0
        self._run_start = 0
        "Sample at which the present run of speech began (idle), or the utterance (in speech)."
        self._run = 0
        "Samples of unbroken speech while idle."
        self._candidate: int | None = None
        "Sample at which the pause began that was reported as CANDIDATE."
        self._reported_at = 0
        "Position of the stream when it was reported."
        self._pause_ms: float | None = None
        "Silence in ms that ends the present pause, in place of `silence_ms`."
        self._waited_for_vad = 0
        "Samples for which the endpoint already waits for the VAD to judge an audible sound."
        self._silent_from: int | None = None
        "End of sound, as of the newest frame; None: that frame was not silent."

    def is_speech(self, probability: float) -> bool:
        """Returns whether a frame of this probability (0 to 1) counts as speech now."""
        return probability >= self.threshold - (HYSTERESIS if self.in_speech else 0)

    def push(
        self, probability: float, samples: int, sound: AudibleEnd | None = None
    ) -> SpeechEdge | None:
        """Takes the VAD's probability (0 to 1) for the next `samples` (16 kHz). Returns the edge
        that they make, or None.

        `sound`: for a frame without speech, what is audible before `speech_end` and now. None: only
        the VAD counts.
        """
        start = self._position
        is_speech = self.is_speech(probability)
        self._position += samples
        if not self.in_speech:
            return self._idle(is_speech, start, samples)
        return self._speaking(start, sound, is_speech=is_speech)

    def set_delay(self, silence_ms: float, pause: int | None = None) -> None:
        """Sets the silence in ms that ends the present pause only. If the pause is already longer,
        the utterance ends with the next frame. `pause`: the candidate's `at`; no effect in any
        other pause."""
        if self._candidate is not None and pause in (None, self._candidate):
            self._pause_ms = silence_ms

    @property
    def missing_samples(self) -> int | None:
        """Samples of silence that are still missing for the endpoint, if they are few enough to
        assume (`MAX_EARLY_MS`). None: more is missing, or something is audible."""
        if self._silent_from is None:
            return None
        wanted = ms_to_samples(self._wait_ms, ASR_RATE_HZ)
        missing = max(0, wanted - (self._position - self._silent_from))
        return missing if missing <= ms_to_samples(MAX_EARLY_MS, ASR_RATE_HZ) else None

    def end_early(self) -> SpeechEdge | None:
        """Ends the utterance as if the `missing_samples` samples were silent. Returns ENDED, or
        None if more is missing. Positions count only samples that arrived: the next frame belongs
        to what comes next."""
        if self.missing_samples is None or self._silent_from is None:
            return None
        until = max(self.speech_end, self._silent_from)
        ended = SpeechEdge(EdgeKind.ENDED, self._silent_from, until)
        self.reset()
        return ended

    def reset(self) -> None:
        """Forgets the running utterance. Positions continue."""
        self.in_speech = False
        self._run = 0
        self._leave_pause()

    def _leave_pause(self) -> None:
        self._candidate = self._pause_ms = self._silent_from = None
        self._waited_for_vad = 0

    def _idle(self, is_speech: bool, start: int, samples: int) -> SpeechEdge | None:
        """Handles a frame outside an utterance. Returns STARTED once there is enough speech."""
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
        """Handles a frame within an utterance."""
        if is_speech:
            was_candidate = self._candidate is not None
            self._leave_pause()
            self.speech_end = self._position
            if was_candidate:  # before the cut at `max_ms`: RESUMED would otherwise be lost
                return SpeechEdge(EdgeKind.RESUMED, start, self._position)
        if self._position - self._run_start >= ms_to_samples(self.max_ms, ASR_RATE_HZ):
            self.reset()
            return SpeechEdge(EdgeKind.ENDED, self._position, self._position)
        return None if is_speech else self._silent(self._position - start, sound)

    def _silent(self, samples: int, sound: AudibleEnd | None) -> SpeechEdge | None:
        """Handles a silent frame within an utterance: it may begin a pause or end the utterance."""
        end = self._sound_end(sound)
        if self._candidate is not None and end > self._reported_at:
            self._leave_pause()  # the prepared decode does not cover this sound
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
            self._candidate, self._reported_at = end, self._position
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
        """Returns whether to wait on, because what is audible now may be the next word: the VAD
        will know a moment later."""
        if sound is None or not sound.is_now:
            return False
        self._waited_for_vad += samples
        return self._waited_for_vad <= ms_to_samples(ONSET_MS, ASR_RATE_HZ)


# How long a pause must be until the turn is over, by the probability that it is over. Pure
# functions.

Eagerness = Literal["low", "medium", "high", "auto"]
"Speed of the answer in a pause; Realtime's `eagerness` of `semantic_vad`."


@dataclass(frozen=True, slots=True)
class EndpointDelays:
    """Milliseconds of silence that end a turn, by how likely it is over."""

    unfinished: float
    "Delay when the turn is certainly not over."
    unknown: float
    "Delay when nothing is known."
    finished: float
    "Delay when the turn is certainly over."


DELAYS: Mapping[Eagerness, EndpointDelays] = {
    "low": EndpointDelays(1200, 900, 400),
    "medium": EndpointDelays(900, 600, 200),
    "auto": EndpointDelays(600, 450, 120),
    "high": EndpointDelays(450, 300, 120),
}
"Delays by `eagerness`. 120 ms is the least: stop consonants within words are as long."

LEAST_SURE, MOST_SURE = 0.05, 0.95
"Bounds of a single probability, so that sound and words can outvote each other."


def endpoint_delay_ms(eagerness: Eagerness, probability: float | None) -> float:
    """Returns the silence in ms that ends the turn. `probability`: 0 to 1 that it is over. None and
    0.5 say nothing; in between the delay is interpolated linearly."""
    delays = DELAYS[eagerness]
    if probability is None:
        return delays.unknown
    certainty = 2 * min(1.0, max(0.0, probability)) - 1
    extreme = delays.finished if certainty > 0 else delays.unfinished
    return delays.unknown + abs(certainty) * (extreme - delays.unknown)


def combine_probabilities(*probabilities: float | None) -> float | None:
    """Returns one probability that the turn is over, or None if all inputs are None.

    `probabilities`: probabilities (0 to 1) by sound, by words and by whether the command is
    understood. Their odds are multiplied, as for independent observations.
    """
    known = [_log_odds(probability) for probability in probabilities if probability is not None]
    return 1 / (1 + exp(-sum(known))) if known else None


def _log_odds(probability: float) -> float:
    bounded = min(MOST_SURE, max(LEAST_SURE, probability))
    return log(bounded / (1 - bounded))
