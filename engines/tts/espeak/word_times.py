"""From eSpeak NG's events to the words of a clause with their times. Pure; lives in its thread.

The library says where a word begins, and where one of its clauses ends, pause included. A word
lasts until the next one begins; before a pause it lasts until the sound falls silent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from core.audio import Pcm, samples_to_ms
from engines.tts.synthesis_thread import SpeechChunk, WordTiming

_QUIET = 100
"Samples at and below this are the pause after a clause (1/300 of full scale)."

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0xA4CF),  # Chinese, Japanese, Yi
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"Scripts that put no spaces between words."


@dataclass(frozen=True, slots=True)
class EspeakEvent:
    kind: Literal["word", "end"]
    char: int
    "Index into the text: where the word begins; one past the end."
    at_ms: float
    "Since the text's first sample."


class ClauseWords:
    """Feed what the library gives for one text; get it back with its words.

    The last sound and the silence after it wait here until it is known whether a word ended with
    them: some microseconds, as synthesis is a thousand times faster than speech.
    """

    def __init__(self, text: str, rate_hz: int) -> None:
        self._text, self._rate_hz = text, rate_hz
        self._held: list[Pcm] = []
        self._words: list[WordTiming] = []
        self._begun: EspeakEvent | None = None
        self._samples = 0
        self._loud = 0
        "One past the last sample that is not quiet."

    def push(self, pcm: Pcm, events: Sequence[EspeakEvent]) -> Iterator[SpeechChunk]:
        """`events` of the time of `pcm`."""
        for event in events:
            self._take(event, pcm)
        loud = _loud_end(pcm)
        if loud or self._words:
            yield from self._release()
        if loud:
            self._loud = self._samples + loud
        self._held.append(pcm)
        self._samples += len(pcm)

    def finish(self, events: Sequence[EspeakEvent] = ()) -> Iterator[SpeechChunk]:
        """The text is over; `events` came after its last samples."""
        for event in events:
            self._take(event, np.zeros(0, np.int16))
        self._end(self._ms(self._loud), len(self._text))
        yield from self._release()

    def _take(self, event: EspeakEvent, pcm: Pcm) -> None:
        before = round(event.at_ms * self._rate_hz / 1000) - self._samples
        if loud := _loud_end(pcm[: max(before, 0)]):
            self._loud = self._samples + loud
        if event.kind == "end":
            # Without a full stop, the library gives the last character's place, not the end.
            is_last = event.char >= len(self._text) - 1
            end_char = len(self._text) if is_last else event.char
            self._end(min(event.at_ms, self._ms(self._loud)), end_char)
        elif self._begun is None:
            self._begun = event
        elif self._is_next(self._begun.char, event.char):
            self._end(event.at_ms, event.char)
            self._begun = event

    def _is_next(self, char: int, later: int) -> bool:
        """Whether another word begins there, not a further part of the same (`3.5`)."""
        between = self._text[char:later]
        return later > char and (
            any(c.isspace() for c in between) or _is_unspaced(self._text[later : later + 1])
        )

    def _end(self, at_ms: float, next_char: int) -> None:
        begun, self._begun = self._begun, None
        if begun is None:
            return
        last = len(self._text[:next_char].rstrip())
        if not _is_unspaced(self._text[begun.char : begun.char + 1]):
            last = max(last, begun.char + len((self._text[begun.char :].split() or [""])[0]))
        if not any(c.isalnum() for c in self._text[last:]):
            last = len(self._text)  # ` !` is read with the word before it
        end_ms = max(at_ms, begun.at_ms)
        self._words.append(WordTiming(max(last, begun.char), begun.at_ms, end_ms))

    def _release(self) -> Iterator[SpeechChunk]:
        words, self._words = tuple(self._words), []
        held, self._held = self._held, []
        if held:
            yield SpeechChunk(np.concatenate(held), words)
        elif words:
            yield SpeechChunk(np.zeros(0, np.int16), words)

    def _ms(self, samples: int) -> float:
        return samples_to_ms(samples, self._rate_hz)


def _loud_end(pcm: Pcm) -> int:
    """One past its last sample above _QUIET; 0: there is none."""
    found = np.flatnonzero((pcm > _QUIET) | (pcm < -_QUIET))
    return int(found[-1]) + 1 if len(found) else 0


def _is_unspaced(char: str) -> bool:
    return bool(char) and any(first <= ord(char) <= last for first, last in _UNSPACED)
