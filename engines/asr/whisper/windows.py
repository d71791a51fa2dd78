"""Length of the window that Whisper encodes for an utterance: up to 30 s, and the cost grows."""

from typing import TYPE_CHECKING

from core.audio import ASR_RATE_HZ, ms_to_samples, samples_to_ms

if TYPE_CHECKING:
    from engines.base import AsrPadding

WINDOW_SAMPLES = 30 * ASR_RATE_HZ
"Length of the window that Whisper was trained on: 30 s at 16 kHz."

FRAME_SAMPLES = 160
"Samples per mel frame: 10 ms."
WINDOW_FRAMES = WINDOW_SAMPLES // FRAME_SAMPLES
"Length of that window in mel frames."

TAIL_MS = 500
"Least silence after the audio in every window: without it the WER is 8 % instead of 3 %."

_TAIL_SAMPLES = ms_to_samples(TAIL_MS, ASR_RATE_HZ)
MAX_ITEM_SAMPLES = WINDOW_SAMPLES - _TAIL_SAMPLES
MAX_ITEM_MS = samples_to_ms(MAX_ITEM_SAMPLES, ASR_RATE_HZ)

_BUCKET_SAMPLES = 10 * ASR_RATE_HZ
"""Shortest window for weights that were trained on 30 s. In windows as long as the utterance they
repeat themselves (WER 78 to 111 %). Of 67 sentences tiny.en repeats 9 with 8 s, 1 with 10 s."""
_LONG_STEP_SAMPLES, _SHORT_STEP_SAMPLES = ASR_RATE_HZ, ASR_RATE_HZ // 4
"""Windows are rounded up to these steps (long and short windows), so that utterances of similar
length share a batch. In short windows much added silence does harm: the WER is 3.1 % with quarters
of a second, 3.6 % with whole seconds."""
_MIN_SAMPLES = 2 * ASR_RATE_HZ
"Shortest window. In shorter ones commands of one second become loops: WER 6 % instead of 3 %."


def window_frames(samples: int, padding: "AsrPadding") -> int:
    """Returns the length of an utterance's window in mel frames, whatever else is in the batch.

    samples: length of the audio, 16 kHz.
    """
    needed = min(samples + _TAIL_SAMPLES, WINDOW_SAMPLES)
    match padding:
        case "max":
            needed = WINDOW_SAMPLES
        case "bucket":
            needed = _round_up(needed, _BUCKET_SAMPLES)
        case "longest":
            needed = max(_round_up(needed, _LONG_STEP_SAMPLES), _BUCKET_SAMPLES)
        case "nopad":
            needed = max(_round_up(needed, _SHORT_STEP_SAMPLES), _MIN_SAMPLES)
    return 2 * -(-needed // (2 * FRAME_SAMPLES))  # even: the encoder halves it


def _round_up(samples: int, step: int) -> int:
    return -(-samples // step) * step


def all_window_frames(padding: "AsrPadding") -> tuple[int, ...]:
    """Returns the lengths of all possible windows in mel frames, the shortest first.

    Most utterances have the shortest windows.
    """
    lengths = range(0, WINDOW_SAMPLES + 1, _SHORT_STEP_SAMPLES)
    return tuple(sorted({window_frames(samples, padding) for samples in lengths}))
