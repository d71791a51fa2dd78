"""Divides a transcript among the speakers, by the times of its words. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from engines.base import Segment, Word
from pipeline.transcription.diarisation.timeline import SpeakerSpan
from pipeline.transcription.stitching import join_texts

MIN_PAUSE_MS = 150
"""Pause on both sides with which a single word counts as a turn of its own, such as `Yes.`. Without
the pauses it is more likely an error at the edge of a window."""


@dataclass(frozen=True, slots=True)
class SpokenSegment:
    """Words that one speaker said without a break."""

    text: str
    start_ms: float
    end_ms: float
    speaker: str


class SpeakerTimes:
    """Knows who speaks when."""

    def __init__(self, spans: Sequence[SpeakerSpan]) -> None:
        """`spans`: in order, without overlap; none: the recording has no speech."""
        self._spans = spans or (SpeakerSpan(0.0, 0.0, "A"),)
        self._starts = [span.start_ms for span in self._spans]

    def speaker(self, start_ms: float, end_ms: float) -> str:
        """Returns who speaks longest in this time; if nobody does, who speaks shortly before or
        after it."""
        first = max(0, bisect_right(self._starts, start_ms) - 1)
        last = min(len(self._spans), bisect_right(self._starts, end_ms) + 1)
        lengths_ms: dict[str, float] = {}
        gaps_ms: dict[str, float] = {}
        for span in self._spans[first:last]:
            overlap_ms = min(end_ms, span.end_ms) - max(start_ms, span.start_ms)
            known_ms = lengths_ms.get(span.speaker, 0.0)
            lengths_ms[span.speaker] = known_ms + max(0.0, overlap_ms)
            gaps_ms[span.speaker] = min(-overlap_ms, gaps_ms.get(span.speaker, -overlap_ms))
        return max(lengths_ms, key=lambda name: (lengths_ms[name], -gaps_ms[name]))

    def speakers_of_words(self, words: Sequence[Word]) -> list[str]:
        """Returns the speaker of each word. A single word among those of others gets their speaker,
        unless there is a pause before and after it."""
        speakers = [self.speaker(word.start_ms, word.end_ms) for word in words]
        groups = [list(group) for _, group in groupby(range(len(words)), speakers.__getitem__)]
        for group in groups:
            (index, *others) = group
            if others or not 0 < index < len(words) - 1:
                continue
            before_ms = words[index].start_ms - words[index - 1].end_ms
            after_ms = words[index + 1].start_ms - words[index].end_ms
            if min(before_ms, after_ms) < MIN_PAUSE_MS:
                neighbour = index - 1 if before_ms <= after_ms else index + 1
                speakers[index] = speakers[neighbour]
        return speakers


def spoken_segments(
    segments: Sequence[Segment], words: Sequence[Word], times: SpeakerTimes
) -> list[SpokenSegment]:
    """Returns the segments, divided where the speaker changes.

    `words`: those of all segments; none if the recogniser gives no times of words. Then a segment
    is that of the person who speaks longest in it.
    """
    spoken: list[SpokenSegment] = []
    speakers = times.speakers_of_words(words)
    for segment, indices in _words_by_segment(segments, words):
        if not indices:
            speaker = times.speaker(segment.start_ms, segment.end_ms)
            spoken.append(
                SpokenSegment(segment.text.strip(), segment.start_ms, segment.end_ms, speaker)
            )
            continue
        parts = [list(group) for _, group in groupby(indices, speakers.__getitem__)]
        for part in parts:
            first, last = words[part[0]], words[part[-1]]
            text = segment.text if len(parts) == 1 else _text([words[i].text for i in part])
            spoken.append(
                SpokenSegment(text.strip(), first.start_ms, last.end_ms, speakers[part[0]])
            )
    return spoken


def _words_by_segment(
    segments: Sequence[Segment], words: Sequence[Word]
) -> Iterator[tuple[Segment, list[int]]]:
    """Yields each segment with the indices of its words: those whose middle is in it or before
    it, and all that are left in the last one."""
    index = 0
    for number, segment in enumerate(segments):
        first = index
        is_last = number == len(segments) - 1
        while index < len(words) and (
            is_last or words[index].start_ms + words[index].end_ms <= 2 * segment.end_ms
        ):
            index += 1
        yield segment, list(range(first, index))


def _text(words: Sequence[str]) -> str:
    """Joins words. Some recognisers give each word with the space before it."""
    has_spaces = any(word[:1].isspace() for word in words)
    return "".join(words) if has_spaces else join_texts(words)
