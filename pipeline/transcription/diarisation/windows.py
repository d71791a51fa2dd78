"""Lays windows over the speech of a recording. The voice in each one becomes a vector. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from pipeline.transcription.segmenter import AudioSegment, VadFrame

Span = tuple[int, int]
"First sample, and one past the last."

SPEECH = 0.5
"VAD probability from which speech begins, as in the endpointer."

GOES_ON = 0.35
"VAD probability down to which speech that has begun continues."

MAX_GAP_MS = 200
"""Longest gap within a run of speech. People take turns with pauses that are hardly longer, and a
window must not hold two of them."""

WINDOW_MS = 1500
"""Length of a window. Shorter windows say less about a voice, and longer ones often hold two
speakers."""

STEP_MS = 750
"Step from one window to the next."

MIN_WINDOW_MS = 500
"Shortest run of which a vector is made. Engines refuse less speech."

_MAX_GAP = ms_to_samples(MAX_GAP_MS, ASR_RATE_HZ)
_WINDOW = ms_to_samples(WINDOW_MS, ASR_RATE_HZ)
_STEP = ms_to_samples(STEP_MS, ASR_RATE_HZ)
_MIN_WINDOW = ms_to_samples(MIN_WINDOW_MS, ASR_RATE_HZ)


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a run of speech. Times are samples of the recording."""

    start: int
    end: int
    run: Span
    "The run in which it lies: speech without a longer pause."


def speech_runs(frames: Iterable[VadFrame], start: int) -> list[Span]:
    """Returns the runs of speech from the sample `start` on."""
    runs: list[Span] = []
    is_speech = False
    for first, last, probability in frames:
        is_speech = probability >= (GOES_ON if is_speech else SPEECH)
        if not is_speech or last <= start:
            continue
        first = max(first, start)
        if runs and first - runs[-1][1] <= _MAX_GAP:
            runs[-1] = runs[-1][0], last
        else:
            runs.append((first, last))
    return runs


def segment_windows(segment: AudioSegment) -> list[tuple[Window, Pcm | None]]:
    """Returns the windows of a segment with their sound; None: too short for a vector."""
    windows: list[tuple[Window, Pcm | None]] = []
    for run in speech_runs(segment.vad_frames, segment.start):
        for window in windows_of(run):
            pcm = segment.pcm[window.start - segment.start : window.end - segment.start]
            windows.append((window, pcm if len(pcm) >= _MIN_WINDOW else None))
    return windows


def windows_of(run: Span) -> Sequence[Window]:
    """Returns the windows of a run, at least one. The last one ends with the run."""
    start, end = run
    last = max(start, end - _WINDOW)
    starts = [*range(start, last, _STEP), last]
    if len(starts) > 1 and starts[-1] - starts[-2] < _STEP // 2:
        del starts[-2]
    return [Window(at, min(at + _WINDOW, end), run) for at in starts]
