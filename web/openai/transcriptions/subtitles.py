"""Segments as subtitles, SubRip and WebVTT, and as a table."""

from collections.abc import Sequence
from html import escape

from engines.base import Segment


def srt(segments: Sequence[Segment]) -> str:
    """SubRip: numbered cues, a comma before the milliseconds."""
    return "".join(
        f"{number}\n{_span(one, ',')}\n{_line(one.text)}\n\n"
        for number, one in enumerate(segments, 1)
    )


def vtt(segments: Sequence[Segment]) -> str:
    """WebVTT: what it would take for markup is escaped."""
    cues = (f"{_span(one, '.')}\n{escape(_line(one.text), quote=False)}\n\n" for one in segments)
    return "".join(("WEBVTT\n\n", *cues))


def tsv(segments: Sequence[Segment]) -> str:
    """Tab-separated, as whisper's own tool writes it: start and end in ms."""
    rows = (f"{one.start_ms:.0f}\t{one.end_ms:.0f}\t{_line(one.text)}\n" for one in segments)
    return "".join(("start\tend\ttext\n", *rows))


def _line(text: str) -> str:
    """One line: an empty one would end the cue."""
    return " ".join(text.split())


def _span(segment: Segment, point: str) -> str:
    """A cue that ends where it begins is never shown: it gets a millisecond."""
    start_ms = round(segment.start_ms)
    end_ms = max(round(segment.end_ms), start_ms + 1)
    return f"{_clock(start_ms, point)} --> {_clock(end_ms, point)}"


def _clock(ms: int, point: str) -> str:
    seconds, rest_ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{rest_ms:03}"
