"""How long a window Whisper gets for an utterance, up to 30 s: the encoder's cost grows with it."""

from typing import TYPE_CHECKING

from core.pcm import ASR_RATE_HZ, ms_to_samples, samples_to_ms

if TYPE_CHECKING:
    from engines.base import AsrPadding

WINDOW_SAMPLES = 30 * ASR_RATE_HZ
FRAME_SAMPLES = 160
"One mel frame, 10 ms."
WINDOW_FRAMES = WINDOW_SAMPLES // FRAME_SAMPLES

TAIL_MS = 500
"Silence after the last word inside every window: without it WER is 8 %, not 3 %."

_TAIL_SAMPLES = ms_to_samples(TAIL_MS, ASR_RATE_HZ)
MAX_ITEM_SAMPLES = WINDOW_SAMPLES - _TAIL_SAMPLES
MAX_ITEM_MS = samples_to_ms(MAX_ITEM_SAMPLES, ASR_RATE_HZ)

_BUCKET_SAMPLES = 10 * ASR_RATE_HZ
_LONG_STEP_SAMPLES, _SHORT_STEP_SAMPLES = ASR_RATE_HZ, ASR_RATE_HZ // 4
"""Utterances of about the same length get the same window, and so share a batch. In short windows
what is added shows: WER is 3.1 %, with whole seconds 3.6 %."""
_MIN_SAMPLES = 2 * ASR_RATE_HZ
"Shorter windows make loops out of one-second commands: 6 % WER, not 3 %."


def window_frames(samples: int, padding: "AsrPadding") -> int:
    """Mel frames of an utterance's window. Never depends on what else is in the batch."""
    needed = min(samples + _TAIL_SAMPLES, WINDOW_SAMPLES)
    match padding:
        case "max":
            needed = WINDOW_SAMPLES
        case "bucket":
            needed = _up(needed, _BUCKET_SAMPLES)
        case "longest":
            needed = max(_up(needed, _LONG_STEP_SAMPLES), _BUCKET_SAMPLES)
        case "nopad":
            needed = max(_up(needed, _SHORT_STEP_SAMPLES), _MIN_SAMPLES)
    return 2 * -(-needed // (2 * FRAME_SAMPLES))  # even: the encoder halves it


def _up(samples: int, step: int) -> int:
    return -(-samples // step) * step


def usual_frames(padding: "AsrPadding") -> tuple[int, ...]:
    """Mel frames of all windows there are, the shortest first: those of most utterances."""
    lengths = range(0, WINDOW_SAMPLES + 1, _SHORT_STEP_SAMPLES)
    return tuple(sorted({window_frames(samples, padding) for samples in lengths}))
