"""Cuts long audio at pauses, so that no word is torn and silence is not recognised."""

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from engines.base import Vad
from pipeline.transcription.no_speech import NoSpeechCriterion, NoSpeechFilter

SPEECH = {
    NoSpeechCriterion.BOTH: 0.5,
    NoSpeechCriterion.RECOGNISER: 0.15,
    NoSpeechCriterion.NONE: 0.15,
}
"""VAD probability from which speech begins. BOTH: as in the endpointer, because the VAD decides.
Else lower, because a whisper is speech, too."""
KEPT = {
    NoSpeechCriterion.BOTH: 0.5,
    NoSpeechCriterion.RECOGNISER: 1e-6,
    NoSpeechCriterion.NONE: 0.0,
}
"""VAD probability below which audio of a long recording is left out. A recogniser that judges for
itself gets all but the silence at which the default VAD's gate stays closed. The VAD gives a
whisper over the telephone 0.001 to 0.02, as it gives noise, but the recogniser understands it."""
GOES_ON = 0.7
"Share of the threshold down to which speech that has begun continues, as in the endpointer."
PAD_MS = 300
"Audio kept on both sides of the speech: onsets and last consonants are too quiet for a VAD."
LONG_PAUSE_MS = 3000
"Pause that ends a segment, however short: recognisers make words up in a long silence."
MIN_PAUSE_MS = 100
"Shortest pause. Shorter ones are inside a word: the closure of a `t` takes 50 to 80 ms."
MIN_SPEECH_MS = 60
"Least speech in a segment. Less is a click."
LEAD_MS = 300
"""Least audio before speech that a recogniser without a window gets: silence in place of what is
missing. With it PocketSphinx misheard 11.7 % of the words of 47 tightly cut commands, without it
14.5 %, in one run."""
QUIET_MS = 200
"Length of the quiet moment that is cut: about the pause between two carefully spoken words."

_PAD = ms_to_samples(PAD_MS, ASR_RATE_HZ)
_LEAD = ms_to_samples(LEAD_MS, ASR_RATE_HZ)
_LONG_PAUSE = ms_to_samples(LONG_PAUSE_MS, ASR_RATE_HZ)
_MIN_PAUSE = ms_to_samples(MIN_PAUSE_MS, ASR_RATE_HZ)
_MIN_SPEECH = ms_to_samples(MIN_SPEECH_MS, ASR_RATE_HZ)
_QUIET = ms_to_samples(QUIET_MS, ASR_RATE_HZ)
_STEP = ms_to_samples(10, ASR_RATE_HZ)


def missing_lead(before_speech: int) -> int:
    """Returns the samples of silence to add where there are `before_speech` before the speech."""
    return max(0, _LEAD - before_speech)


VadFrame: TypeAlias = tuple[int, int, float]
"A frame that a VAD judged: its first sample, one past its last, the probability of speech."


@dataclass(frozen=True, slots=True)
class AudioSegment:
    """A part of a recording that is recognised in one call."""

    start: int
    "Sample of the recording at which it begins."
    pcm: Pcm
    speech_end: int
    "Sample of the recording one past its last speech."
    evidence: NoSpeechFilter
    "VAD evidence of speech in it."
    lead: int
    "Samples of silence to add before it."
    vad_frames: tuple[VadFrame, ...] = ()
    "The VAD's judgement of its frames, and maybe of some before it."


class Segmenter:
    """Cuts a recording into segments as it arrives. Blocking (VAD): call it from a thread.

    A recording that fits the window stays whole and unchanged. Of a longer one, audio below `KEPT`
    is left out between segments. A segment ends at a long pause, or where it would exceed the
    window: at the longest pause in its last third, else at its last pause, else where it is
    quietest.

    `vad`: opened for this recording alone. `window_samples`: longest segment. `criterion`: which
    scores decide what is speech.
    """

    def __init__(
        self, vad: Vad, window_samples: int, criterion: NoSpeechCriterion = NoSpeechCriterion.BOTH
    ) -> None:
        self._vad, self._window = vad, window_samples
        self._threshold, self._kept = SPEECH[criterion], KEPT[criterion]
        self._buffer: Pcm = np.zeros(0, np.int16)
        self._base = 0
        "Sample of the recording at which the buffer begins."
        self._vad_position = 0
        "Samples of the recording that the VAD has judged."
        self._runs: list[tuple[int, int]] = []
        """Start and end of audio that is kept but in no segment yet. Pauses below MIN_PAUSE_MS are
        part of it."""
        self._in_speech = False
        self._speech_end = 0
        "One past the last sample that the VAD took for speech; 0: none yet."
        self._speech_start: int | None = None
        "First sample of the recording that the VAD took for speech; None: none yet."
        self._last_end = 0
        "Sample at which the last segment ended."
        self._vad_frames: deque[VadFrame] = deque()
        "Frames that are in no segment yet."

    @property
    def total(self) -> int:
        """Number of samples so far."""
        return self._base + len(self._buffer)

    def push(self, pcm: Pcm) -> list[AudioSegment]:
        """Adds samples (16 kHz). Returns the segments that they complete."""
        self._buffer = np.concatenate([self._buffer, pcm])
        self._listen()
        return self._complete(is_over=False) if self.total > self._window else []

    def end(self) -> list[AudioSegment]:
        """Ends the recording. Returns the last segments."""
        size = self._vad.frame_samples
        rest = self._buffer[self._vad_position - self._base :]
        if len(rest):
            self._judge(np.pad(rest, (0, size - len(rest))), len(rest))
        if whole := self.whole():
            return [whole] if self.total else []
        return self._complete(is_over=True)

    def tail(self) -> AudioSegment | None:
        """Returns the last segment that `end` would give if only silence came now; None during
        speech."""
        if not self._speech_end or self._vad_position - self._speech_end < _MIN_PAUSE:
            return None
        if whole := self.whole():
            return whole
        if not self._runs or self._vad_position - self._runs[-1][1] < _MIN_PAUSE:
            return None
        kept_end = self._runs[-1][1]
        end = min(kept_end + _PAD, self.total)
        pcm = self._slice(self._begin(), end)
        return self._segment(self._begin(), pcm, kept_end, end)

    def whole(self) -> AudioSegment | None:
        """Returns all audio so far as one segment; None once it exceeds the window."""
        if self.total > self._window:
            return None
        return self._segment(0, self._buffer, self._speech_end, self.total)

    def _segment(self, start: int, pcm: Pcm, speech_end: int, end: int) -> AudioSegment:
        """Returns the segment, which ends at the sample `end`, with the VAD's evidence and the
        silence that it lacks. Only a recording itself is cut tightly: later segments keep some of
        the pause."""
        before = _LEAD if start or self._speech_start is None else self._speech_start
        frames = tuple(frame for frame in self._vad_frames if frame[0] < end)
        evidence = NoSpeechFilter()
        for first, last, probability in frames:
            evidence.push(probability, last - first)
        return AudioSegment(start, pcm, speech_end, evidence, missing_lead(before), frames)

    def _listen(self) -> None:
        size = self._vad.frame_samples
        while self.total - self._vad_position >= size:
            at = self._vad_position - self._base
            self._judge(self._buffer[at : at + size], size)

    def _judge(self, frame: Pcm, samples: int) -> None:
        """Runs the VAD over one frame. `samples`: those of the frame that are not padding."""
        start, self._vad_position = self._vad_position, self._vad_position + samples
        needed = self._threshold * (GOES_ON if self._in_speech else 1)
        probability = self._vad.push(frame)
        self._vad_frames.append((start, self._vad_position, probability))
        self._in_speech = probability >= needed
        if self._in_speech:
            self._speech_end = self._vad_position
            if self._speech_start is None:
                self._speech_start = start
        elif probability < self._kept:
            return
        if self._runs and start - self._runs[-1][1] < _MIN_PAUSE:
            self._runs[-1] = self._runs[-1][0], self._vad_position
        else:
            self._runs.append((start, self._vad_position))

    def _complete(self, *, is_over: bool) -> list[AudioSegment]:
        segments: list[AudioSegment] = []
        while self._runs:
            end = self._segment_end(is_over=is_over)
            if end is None:
                self._forget(self._begin())
                return segments
            segments += self._take(end)
        self._forget(self._vad_position - _PAD)
        return segments

    def _begin(self) -> int:
        """Returns the sample at which the next segment begins."""
        return max(self._last_end, self._runs[0][0] - _PAD)

    def _segment_end(self, *, is_over: bool) -> int | None:
        """Returns the sample at which the next segment ends; None: not known yet."""
        limit = self._begin() + self._window
        starts = chain((start for start, _ in self._runs[1:]), (self._vad_position,))
        pauses = [
            (end, start)
            for (_, end), start in zip(self._runs, starts, strict=True)
            if end <= limit and start - end >= _MIN_PAUSE
        ]
        long = next((pause for pause in pauses if pause[1] - pause[0] >= _LONG_PAUSE), None)
        if long is None and self._vad_position <= limit and not is_over:
            return None
        if long is None and is_over and self._runs[-1][1] <= limit:
            return min(self._runs[-1][1] + _PAD, self.total, limit)
        chosen = long or _best(pauses, limit, self._window // 3)
        if chosen is None:
            search = limit - self._window // 3
            return search + quietest(self._slice(search, limit))
        end, start = chosen
        return min(end + _PAD, (end + start) // 2, limit)

    def _take(self, end: int) -> list[AudioSegment]:
        begin = self._begin()
        inside = [(a, min(b, end)) for a, b in self._runs if a < end]
        self._runs = [(max(a, end), b) for a, b in self._runs if b > end]
        pcm = self._slice(begin, end).copy()  # a view would keep the whole buffer
        is_click = sum(b - a for a, b in inside) < _MIN_SPEECH
        segments = [] if is_click else [self._segment(begin, pcm, inside[-1][1], end)]
        self._last_end = end
        self._forget(end)
        return segments

    def _slice(self, start: int, end: int) -> Pcm:
        return self._buffer[start - self._base : end - self._base]

    def _forget(self, before: int) -> None:
        gone = max(0, before - self._base)
        while self._vad_frames and self._vad_frames[0][0] < before:
            self._vad_frames.popleft()
        self._buffer = self._buffer[gone:]
        self._base += gone


def _best(pauses: list[tuple[int, int]], limit: int, third: int) -> tuple[int, int] | None:
    late = [pause for pause in pauses if pause[0] >= limit - third]
    if late:
        return max(late, key=lambda pause: (pause[1] - pause[0], pause[0]))
    # Below a third, windows would be mostly padding.
    return next((pause for pause in reversed(pauses) if pause[0] >= limit - 2 * third), None)


def quietest(pcm: Pcm) -> int:
    """Returns the middle of the `QUIET_MS` with the least energy, in samples; the last of equals.

    Energy near the middle counts more, so a gap that is shorter is cut in its own middle.
    """
    offset = len(pcm) % _STEP
    steps = pcm[offset:].reshape(-1, _STEP).astype(np.float32)
    energy = np.sum(steps * steps, axis=1, dtype=np.float64)
    half = _QUIET // _STEP // 2
    weights = np.concatenate([np.arange(1, half + 1), np.arange(half, 0, -1)])
    spans = np.convolve(energy, weights, "valid")
    last = len(spans) - 1 - int(np.argmin(spans[::-1]))
    return offset + (last + half) * _STEP
