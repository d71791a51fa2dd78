"""Finds the speech offset: where the audible sound of an utterance ends.

A VAD still reports speech for some 80 ms after the last word, in noise for 200 ms. Endpointing
should not wait for that too. Pure; time is samples of the stream.

Levels are measured in windows of 10 ms and in two bands, as each shows what the other hides: the
whole signal without its DC offset (voices), and its first difference (consonants, without hum and
rumble). A window is audible if it stands out from the quietest recent moment and is not far below
the loudest. The last audible window is examined in parts. Where the sound does not clearly fall, as
in loud noise, there is no result.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples

WINDOW_MS = 10
"Length of one window over which a level is measured."
PARTS = 4
"""Parts of a window, 2.5 ms each. The end of sound is the beginning of its last audible part:
resampling delays sound by 1 ms, so on the speaker's clock the silence is as long as asked for."""
FLOOR_MS = 400
"Newest audio in which the quietest moment is searched: it holds the stops of a word or the pause."
QUIET_WINDOWS = 4
"Length of the quietest moment in windows: a shorter one is chance."
PEAK_MS = 1500
"Newest audio in which the loudest windows are searched."
PEAK_WINDOWS = 3
"Number of loudest windows that are averaged: a single click is no voice."
ABOVE_FLOOR_DB = 6
"""Distance above the quietest moment from which a window is audible. Steady noise stays below it; a
quiet consonant does not."""
BELOW_PEAK_DB = 35
"""Distance below the peak from which a window is inaudible. A word that has faded further is not
audible, however quiet the room."""
FALL_DB = 10
"Least fall from peak to limit. Speech that stands out less ends where the VAD says."
FADE_MS_PER_DB = 1.0
"Time in which the end of a word fades by 1 dB."
STRONG_DB = 20
"""Distance below the peak within which sound after the VAD's end counts as a consonant. After a
stop, a VAD may take a last consonant (`lights`, over Opus) for silence. No noise that people leave
behind is as loud: of 140 recordings, none has as much after its end."""
CLOSURE_MS = 80
"Longest silence before such a consonant. A stop is shorter; later sound belongs to another word."
TAIL_MS = 250
"""Longest time after the VAD's end for such consonants. Sound that lasts longer is no part of a
word."""
FADED_DB = 30
"Level below its peak to which a word would fade if noise did not hide its end; about 1 ms per dB."

_WINDOW = ms_to_samples(WINDOW_MS, ASR_RATE_HZ)
_PART = _WINDOW // PARTS
_FLOOR = FLOOR_MS // WINDOW_MS
_KEPT = PEAK_MS // WINDOW_MS
_CLOSURE = CLOSURE_MS // WINDOW_MS
_TAIL = TAIL_MS // WINDOW_MS
_NOW = 2
"Number of newest windows that count as the present: 20 ms."

BandLevels = npt.NDArray[np.float64]
"Mean squares: of windows with shape (2, windows), of parts with shape (2, windows, PARTS)."


@dataclass(frozen=True, slots=True)
class AudibleEnd:
    """The last audible sound before a pause, and whether something is audible now."""

    last: int
    "Sample at which the last audible sound ended, if that is before the VAD's end of speech."
    is_now: bool
    "True if something is audible again, or still, in the newest 20 ms."
    after: int = 0
    "Sample at which a consonant ended that the VAD did not take for speech; 0: there was none."


class SpeechOffset:
    """Measures one utterance at a time. Levels are computed only when `before` asks, which is
    rare."""

    def __init__(self, late_ms: float = 0) -> None:
        """`late_ms`: minimum age of the audio when its frame arrives, in ms."""
        self.late_ms = late_ms
        self.begin(0, np.zeros(0, np.int16))

    def begin(self, at: int, pcm: Pcm) -> None:
        """Begins an utterance that starts at sample `at`. `pcm`: its first audio."""
        self._end = at
        "Sample at which the audio begins that is not measured yet."
        self._unmeasured: deque[Pcm] = deque()
        self._samples = 0
        "Number of samples in `_unmeasured`."
        self._forget()
        self._answered = -1
        "The `speech_end` that `_answer` is for."
        self._answer: tuple[int, int, BandLevels] | None = None
        """Sample of the last sound, sample of a consonant after it, and the audible level of each
        band."""
        self.push(pcm)

    def push(self, pcm: Pcm) -> None:
        """Adds the next samples of the utterance."""
        self._unmeasured.append(pcm)
        self._samples += len(pcm)
        # a long speech without a pause asks for no offset: keep only the newest audio
        if self._samples > 2 * _KEPT * _WINDOW:
            self._forget()
            while self._samples - len(self._unmeasured[0]) >= _KEPT * _WINDOW:
                dropped = len(self._unmeasured.popleft())
                self._samples -= dropped
                self._end += dropped

    def before(self, speech_end: int) -> AudibleEnd | None:
        """Returns the last sound before a VAD's end of speech, by all audio since; None if it is
        not known.

        The result settles within `FLOOR_MS` of silence and then stays.
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
        """Returns the values of `_answer`; None if the sound does not clearly fall. `silent`:
        number of windows after the VAD's end of speech."""
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
                # the window is audible but no part is, as with a low hum
                part = int(parts[-1]) if len(parts) else PARTS
                end = start + int(loud[-1]) * _WINDOW + part * _PART
                last = max(last, end + ms_to_samples(fade_ms, ASR_RATE_HZ))
        late = ms_to_samples(self.late_ms, ASR_RATE_HZ)
        strong = np.maximum(limits, peak * _power(-STRONG_DB))[:, None]
        tail = _tail((levels[:, before.shape[1] :] >= strong).any(axis=0))
        after = start + (before.shape[1] + tail) * _WINDOW - late if tail else 0
        return last - late, after, limits


def _tail(strong: npt.NDArray[np.bool_]) -> int:
    """Returns the windows from the VAD's end of speech to the end of a consonant after it; 0 if
    none."""
    end = 0
    for at in np.flatnonzero(strong[:_TAIL]):
        if at - end > _CLOSURE:
            break
        end = int(at) + 1
    return end


def _measured(pcm: Pcm) -> tuple[BandLevels, BandLevels]:
    """Returns the levels of whole windows and of their parts. `pcm`: a multiple of 160 samples.
    Sums of squares of 16-bit samples are exact in float64, so one pass gives both."""
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
