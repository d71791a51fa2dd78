"""Cuts an answer's tokens at its timestamps, as faster-whisper does, and finds the next window."""

from collections.abc import Sequence
from typing import NamedTuple, NotRequired, TypedDict

from engines.asr.whisper.prompt import TIMESTAMP_S

FRAME_S = 0.01
"Length of a frame of the mel spectrogram, in seconds."

_FRAMES_PER_TIMESTAMP = 2


class AlignedWord(TypedDict):
    """A word with its times in s from the item's first sample."""

    word: str
    start: float
    end: float
    probability: float


class TokenSegment(TypedDict):
    """A segment in the form of faster-whisper's word alignment, which writes into it."""

    seek: int
    "First frame of the window."
    start: float
    "Seconds from the item's first sample, as `end`."
    end: float
    tokens: list[int]
    words: NotRequired[list[AlignedWord]]
    "Words of the segment, after alignment."


class SegmentSplit(NamedTuple):
    """The segments of one window."""

    segments: list[TokenSegment]
    next_frame: int
    "First frame of the next window; at or after the window's end if all of it was decoded."
    is_complete: bool
    "True: the answer ends with a single timestamp, so there is no speech after it."


def split_segments(
    tokens: Sequence[int], first_timestamp: int, seek: int, frames: int
) -> SegmentSplit:
    """Returns the segments of a window's answer.

    first_timestamp: token of 0.00 s. seek, frames: first frame and length of the window.
    """

    def segment(part: Sequence[int], start: int, end: float) -> TokenSegment:
        offset_s = seek * FRAME_S
        return TokenSegment(
            seek=seek,
            start=offset_s + start * TIMESTAMP_S,
            end=offset_s + end * TIMESTAMP_S,
            tokens=list(part),
        )

    is_time = [token >= first_timestamp for token in tokens]
    is_complete = len(tokens) >= 2 and not is_time[-2] and is_time[-1]
    ends = [i for i in range(1, len(tokens)) if is_time[i] and is_time[i - 1]]
    if not ends:
        times = [token - first_timestamp for token in tokens if token >= first_timestamp]
        end = times[-1] if times and times[-1] else frames / _FRAMES_PER_TIMESTAMP
        return SegmentSplit([segment(tokens, 0, end)], seek + frames, is_complete)
    if is_complete:
        ends.append(len(tokens))
    segments = []
    for begin, end in zip([0, *ends], ends, strict=False):
        part = tokens[begin:end]
        segments.append(segment(part, part[0] - first_timestamp, part[-1] - first_timestamp))
    if is_complete:
        return SegmentSplit(segments, seek + frames, is_complete)
    last = tokens[ends[-1] - 1] - first_timestamp
    return SegmentSplit(segments, seek + last * _FRAMES_PER_TIMESTAMP, is_complete)


def last_end_s(segments: Sequence[TokenSegment]) -> float:
    """Returns the end of the last word in s, or of the last segment if there are no words."""
    ends = [word["end"] for segment in segments for word in segment["words"]]
    return ends[-1] if ends else segments[-1]["end"]
