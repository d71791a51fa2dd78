"""Where the sound of an utterance ends. A VAD holds on for some 80 ms after the last word, in noise
for 200; who waits in silence should not wait for that too. Pure; time is samples of the stream.

Measured in 10 ms windows and two bands, for what one hides the other shows: the whole signal
without its offset (voices), and its first difference (consonants; hum and rumble are gone). A
window is audible if it stands out from the quietest moment of late and is not far below the
loudest. The last of them is looked at in parts. Where sound does not clearly fall (loud noise),
nothing is said.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples

WINDOW_MS = 10
PARTS = 4
"""Of a window, 2.5 ms each. Sound ends where its last part begins: resampling delays it by 1 ms, so
by the clock of whoever speaks there is as much silence as was asked for."""
FLOOR_MS = 400
"The quietest moment is looked for in so much audio: the stops of a word or the pause are in it."
QUIET_WINDOWS = 4
"How long that moment is: a shorter one is chance."
PEAK_MS = 1500
PEAK_WINDOWS = 3
"The loudest of the utterance, averaged: one click is no voice."
ABOVE_FLOOR_DB = 6
"Steady noise stays within; a quiet consonant stands out more."
BELOW_PEAK_DB = 35
"A word that fades farther is not heard any more, however quiet the room."
FALL_DB = 10
"Speech that stands out less ends where the VAD says."
FADE_MS_PER_DB = 1.0
STRONG_DB = 20
"""After a stop a VAD may take a last consonant (`lights`, over Opus) for silence. No noise that
people leave behind is as loud: of 140 recordings none has so much after its end."""
CLOSURE_MS = 80
"A stop is silent for less; what comes later belongs to no word that is over."
TAIL_MS = 250
"Longer than any consonants: what lasts is no part of a word."
FADED_DB = 30
"What noise hides of a word's end: it would have faded to 30 dB below its peak, about 1 ms per dB."

_WINDOW = ms_to_samples(WINDOW_MS, ASR_RATE_HZ)
_PART = _WINDOW // PARTS
_FLOOR = FLOOR_MS // WINDOW_MS
_KEPT = PEAK_MS // WINDOW_MS
_CLOSURE = CLOSURE_MS // WINDOW_MS
_TAIL = TAIL_MS // WINDOW_MS
_NOW = 2
"Windows that are now."

BandLevels = npt.NDArray[np.float64]
"Mean squares, shape (2, windows); of parts, shape (2, windows, PARTS)."


@dataclass(frozen=True, slots=True)
class AudibleEnd:
    last: int
    "Sample at which the last audible sound ended, if that is before the VAD's end of speech."
    is_now: bool
    "Something is audible again, or still, in the newest 20 ms."
    after: int = 0
    "Sample at which a consonant ended that the VAD did not take for speech; 0: there was none."


class SpeechOffset:
    """Follows one utterance. Measuring waits for the first question, and there are few."""

    def __init__(self, late_ms: float = 0) -> None:
        """`late_ms`: by which what is heard is older than the frame it came in, at least."""
        self.late_ms = late_ms
        self.begin(0, np.zeros(0, np.int16))

    def begin(self, at: int, pcm: Pcm) -> None:
        """An utterance that starts at sample `at`, with its first audio."""
        self._end = at
        "Where what is not measured yet begins."
        self._unmeasured: deque[Pcm] = deque()
        self._samples = 0
        "That are not measured yet."
        self._forget()
        self._answered = -1
        "To which end of speech the last answer was."
        self._answer: tuple[int, int, BandLevels] | None = None
        "The last sound, that after it, and from which level on a window is audible."
        self.push(pcm)

    def push(self, pcm: Pcm) -> None:
        self._unmeasured.append(pcm)
        self._samples += len(pcm)
        if self._samples > 2 * _KEPT * _WINDOW:  # who speaks for long asks nothing
            self._forget()
            while self._samples - len(self._unmeasured[0]) >= _KEPT * _WINDOW:
                dropped = len(self._unmeasured.popleft())
                self._samples -= dropped
                self._end += dropped

    def before(self, speech_end: int) -> AudibleEnd | None:
        """The last sound before a VAD's end of speech, by all that was heard since.

        None: it cannot be told. The answer settles within `FLOOR_MS` of silence, then it stays.
        """
        self._measure()
        silent = max(0, self._end - speech_end) // _WINDOW
        if speech_end != self._answered or silent <= _FLOOR:
            self._answered = speech_end
            self._answer = self._listen(silent)
        if self._answer is None:
            return None
        last, after, limits = self._answer
        return AudibleEnd(last, bool((self._levels[:, -_NOW:] >= limits[:, None]).any()), after)

    def _forget(self) -> None:
        self._levels: BandLevels = np.zeros((2, 0))
        self._parts: BandLevels = np.zeros((2, 0, PARTS))

    def _measure(self) -> None:
        if self._samples < _WINDOW:
            return
        pcm = np.concatenate(self._unmeasured)
        count = len(pcm) // _WINDOW
        levels, parts = _measured(pcm[: count * _WINDOW])
        self._levels = np.concatenate([self._levels, levels], axis=1)[:, -_KEPT:]
        self._parts = np.concatenate([self._parts, parts], axis=1)[:, -_KEPT:]
        rest = pcm[count * _WINDOW :]
        self._unmeasured, self._samples = deque([rest]), len(rest)
        self._end += count * _WINDOW

    def _listen(self, silent: int) -> tuple[int, int, BandLevels] | None:
        levels = self._levels
        if levels.shape[1] <= QUIET_WINDOWS:
            return None
        sums = np.cumsum(levels[:, -_FLOOR:], axis=1)
        floor = (sums[:, QUIET_WINDOWS:] - sums[:, :-QUIET_WINDOWS]).min(axis=1) / QUIET_WINDOWS
        ordered = np.partition(levels, -PEAK_WINDOWS, axis=1)
        peak = ordered[:, -PEAK_WINDOWS:].sum(axis=1) / PEAK_WINDOWS
        limits = np.maximum(floor * _power(ABOVE_FLOOR_DB), peak * _power(-BELOW_PEAK_DB))
        is_clear = limits < peak * _power(-FALL_DB)
        if not is_clear.any():
            return None
        limits = np.where(is_clear, limits, np.inf)
        before = levels[:, : max(0, levels.shape[1] - silent)]
        start = self._end - levels.shape[1] * _WINDOW
        last = start
        for band in np.flatnonzero(is_clear):
            loud = np.flatnonzero(before[band] >= limits[band])
            if len(loud):
                hidden_db = FADED_DB - 10 * np.log10(peak[band] / limits[band])
                fade_ms = max(0.0, float(hidden_db)) * FADE_MS_PER_DB
                parts = np.flatnonzero(self._parts[band, loud[-1]] >= limits[band])
                part = int(parts[-1]) if len(parts) else PARTS  # too low a hum for any part
                end = start + int(loud[-1]) * _WINDOW + part * _PART
                last = max(last, end + ms_to_samples(fade_ms, ASR_RATE_HZ))
        late = ms_to_samples(self.late_ms, ASR_RATE_HZ)
        strong = np.maximum(limits, peak * _power(-STRONG_DB))[:, None]
        tail = _tail((levels[:, before.shape[1] :] >= strong).any(axis=0))
        after = start + (before.shape[1] + tail) * _WINDOW - late if tail else 0
        return last - late, after, limits


def _tail(strong: npt.NDArray[np.bool_]) -> int:
    """Windows after the VAD's end of speech up to the end of a consonant; 0 if there is none."""
    end = 0
    for at in np.flatnonzero(strong[:_TAIL]):
        if at - end > _CLOSURE:
            break
        end = int(at) + 1
    return end


def _measured(pcm: Pcm) -> tuple[BandLevels, BandLevels]:
    """Of whole windows: levels and those of their parts. Sums of squares of 16-bit samples are
    exact, so one pass over the samples does for both."""
    samples = pcm.reshape(-1, PARTS, _PART).astype(np.float64)
    rows = samples.reshape(-1, _WINDOW)
    steps = np.zeros_like(rows)
    np.subtract(rows[:, 1:], rows[:, :-1], out=steps[:, 1:])
    steps = steps.reshape(samples.shape)
    sums = samples.sum(axis=2)
    squares = np.stack(
        [np.einsum("ijk,ijk->ij", samples, samples), np.einsum("ijk,ijk->ij", steps, steps)]
    )
    levels, parts = squares.sum(axis=2) / _WINDOW, squares / _PART
    levels[0] -= np.square(sums.sum(axis=1) / _WINDOW)
    parts[0] -= np.square(sums / _PART)
    return levels, parts


def _power(db: float) -> float:
    return float(10 ** (db / 10))
