"""Whisper hears windows of at most 30 s: where to cut long audio, how far to pad short audio."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples

Features = npt.NDArray[np.float32]
"Log-mel, shape (mels, frames)."

Padding = Literal["max", "bucket", "longest", "nopad"]
"""How much of the 30 s window an utterance fills. The encoder's cost grows with it.

max      always 30 s, as the official weights were trained
bucket   10, 20 or 30 s: several times cheaper, usually as good; the operator's choice
longest  the batch's longest utterance, at least 10 s
nopad    the batch's longest utterance, at least 2 s; only for weights trained on short windows
"""

WINDOW_SAMPLES = 30 * ASR_RATE_HZ
FRAME_SAMPLES = 160
"One mel frame, 10 ms."

TAIL_MS = 500
"Silence after the last word inside every window: without it WER is 8 %, not 3 %."

_TAIL_SAMPLES = ms_to_samples(TAIL_MS, ASR_RATE_HZ)
MAX_SEGMENT_SAMPLES = WINDOW_SAMPLES - _TAIL_SAMPLES

_BUCKET_SAMPLES = 10 * ASR_RATE_HZ
_MIN_SAMPLES = 2 * ASR_RATE_HZ
"Shorter windows make loops out of one-second commands: 6 % WER, not 3 %."
_SEARCH_SAMPLES = 10 * ASR_RATE_HZ
"A cut is looked for this far back: a segment is never shorter than two thirds of a window."
_PAUSE_SAMPLES = ms_to_samples(200, ASR_RATE_HZ)
"About the pause between two words spoken with care."


def segments(pcm: Pcm) -> list[Pcm]:
    """Consecutive parts that fit one window each, cut at the quietest 200 ms; none for no audio."""
    parts: list[Pcm] = []
    while len(pcm) > MAX_SEGMENT_SAMPLES:
        cut = _quietest(pcm[MAX_SEGMENT_SAMPLES - _SEARCH_SAMPLES : MAX_SEGMENT_SAMPLES])
        cut += MAX_SEGMENT_SAMPLES - _SEARCH_SAMPLES
        parts.append(pcm[:cut])
        pcm = pcm[cut:]
    return [*parts, pcm] if len(pcm) else parts


def window_frames(longest_samples: int, padding: Padding) -> int:
    """Mel frames of a batch's window, given its longest utterance. Even: the encoder halves it."""
    needed = min(longest_samples + _TAIL_SAMPLES, WINDOW_SAMPLES)
    match padding:
        case "max":
            needed = WINDOW_SAMPLES
        case "bucket":
            needed = -(-needed // _BUCKET_SAMPLES) * _BUCKET_SAMPLES
        case "longest":
            needed = max(needed, _BUCKET_SAMPLES)
        case "nopad":
            needed = max(needed, _MIN_SAMPLES)
    return 2 * -(-needed // (2 * FRAME_SAMPLES))


def stack(features: Sequence[Features], frames: int) -> npt.NDArray[np.float32]:
    """Shape (items, mels, frames). Each goes on with its own last frame, which must be silence."""
    return np.stack([_stretch(item, frames) for item in features])


def _stretch(features: Features, frames: int) -> Features:
    missing = max(0, frames - features.shape[1])
    return np.pad(features, ((0, 0), (0, missing)), mode="edge")[:, :frames]


def _quietest(pcm: Pcm) -> int:
    """The middle of the pause with the least energy, the last of equals, in samples."""
    energy = np.cumsum(np.concatenate([[0.0], pcm.astype(np.float64) ** 2]))
    spans = energy[_PAUSE_SAMPLES:] - energy[:-_PAUSE_SAMPLES]
    last = len(spans) - 1 - int(np.argmin(spans[::-1]))
    return last + _PAUSE_SAMPLES // 2
