"""Cuts clips into segments of one length, and joins what was computed of them. Pure.

A segment begins `overlap` frames before the end of the one before it. Codes of that stretch are
taken from the earlier segment, which has heard what came before; sound is faded from one to the
other.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engines.base.codec import Codes, Samples


@dataclass(frozen=True, slots=True)
class ClipSegment:
    """One stretch of a clip, in frames."""

    clip: int
    "Index of the clip."
    start: int
    "First frame."
    frames: int
    "Length; only the last segment of a clip may be shorter than the others."
    overlap: int
    "Number of its first frames that the segment before it has, too; 0 for the first segment."
    next_overlap: int
    "Number of its last frames that the segment after it has, too; 0 for the last segment."


def cut(clip_frames: Sequence[int], segment: int, overlap: int) -> list[ClipSegment]:
    """Returns the segments of clips of these lengths, each at most `segment` frames long."""
    if not 0 <= overlap < segment:
        raise ValueError(f"overlap {overlap} of segments of {segment} frames")
    found = []
    for clip, frames in enumerate(clip_frames):
        start = 0
        while True:
            length = min(segment, frames - start)
            is_last = start + length >= frames
            shared = (overlap if start else 0, 0 if is_last else overlap)
            found.append(ClipSegment(clip, start, length, *shared))
            if is_last:
                break
            start += segment - overlap
    return found


def batches(segments: Iterable[ClipSegment], rows: int) -> Iterator[list[ClipSegment]]:
    """Yields the segments in batches of at most `rows`, the longest first. So the segments of a
    batch are nearly equally long, and little padding is computed."""
    in_order = sorted(segments, key=lambda segment: -segment.frames)
    for first in range(0, len(in_order), rows):
        yield in_order[first : first + rows]


def join_codes(codes: Codes, segment: ClipSegment, computed: Codes) -> None:
    """Copies what was computed of a segment, shape (codebooks, frames), into its clip's codes,
    shape (1, codebooks, frames)."""
    start, end = segment.start + segment.overlap, segment.start + segment.frames
    codes[0, :, start:end] = computed[:, segment.overlap : segment.frames]


def join_sound(sound: Samples, segment: ClipSegment, computed: Samples, frame_samples: int) -> None:
    """Adds the sound of a segment to its clip's, which begins as zeros. Where two segments overlap,
    the first is faded out while the second is faded in."""
    piece = computed[: segment.frames * frame_samples].copy()
    if segment.overlap:
        rising = fade(segment.overlap * frame_samples)
        piece[: len(rising)] *= rising
    if segment.next_overlap:
        falling = fade(segment.next_overlap * frame_samples)[::-1]
        piece[-len(falling) :] *= falling
    start = segment.start * frame_samples
    sound[start : start + len(piece)] += piece


def fade(samples: int) -> Samples:
    """Returns the factors with which a segment is faded in. With those of the fade-out, the same in
    reverse, they add up to 1."""
    return np.arange(1, samples + 1, dtype=np.float32) / np.float32(samples + 1)
