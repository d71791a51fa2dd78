"""Computes word times from eSpeak NG's events. Pure; used in the synthesis thread only.

The library reports the beginning of each word, and the end of each of its own clauses, including
the pause. A word lasts until the next one begins; before a pause it lasts until the sound becomes
silent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from core.audio import Pcm, samples_to_ms
from engines.tts.shared.synthesis_thread import SpeechChunk, WordTiming

_MAX_SILENT_SAMPLE = 100
"Highest absolute sample value of the pause after a clause (1/300 of full scale)."

_SCRIPTS_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0xA4CF),  # Chinese, Japanese, Yi
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"Code point ranges of scripts without spaces between words."


@dataclass(frozen=True, slots=True)
class EspeakEvent:
    """The beginning of a word, or the end of one of eSpeak's clauses."""

    kind: Literal["word", "end"]
    char: int
    "Index in the text: of the word's first character, or one past the end of the clause."
    at_ms: float
    "Time since the text's first sample."


class ClauseWords:
    """Takes the library's samples and events for one text, and yields the samples with words.

    The last sound and the silence after it are held back until it is known whether a word ended
    with them. This takes microseconds, because synthesis is a thousand times faster than speech.
    """

    def __init__(self, text: str, rate_hz: int) -> None:
        self._text, self._rate_hz = text, rate_hz
        self._held_pcm: list[Pcm] = []
        self._words: list[WordTiming] = []
        self._open_word: EspeakEvent | None = None
        self._samples = 0
        self._audible_samples = 0
        "Index of the sample after the last one above _MAX_SILENT_SAMPLE."

    def push(self, pcm: Pcm, events: Sequence[EspeakEvent]) -> Iterator[SpeechChunk]:
        """Takes samples and the events within them; yields samples whose words are known."""
        for event in events:
            self._add_event(event, pcm)
        audible_end = _audible_end(pcm)
        if audible_end or self._words:
            yield from self._release()
        if audible_end:
            self._audible_samples = self._samples + audible_end
        self._held_pcm.append(pcm)
        self._samples += len(pcm)

    def finish(self, events: Sequence[EspeakEvent] = ()) -> Iterator[SpeechChunk]:
        """Ends the text and yields the rest. `events`: those after the last samples."""
        for event in events:
            self._add_event(event, np.zeros(0, np.int16))
        self._end_word(self._ms(self._audible_samples), len(self._text))
        yield from self._release()

    def _add_event(self, event: EspeakEvent, pcm: Pcm) -> None:
        samples_before = round(event.at_ms * self._rate_hz / 1000) - self._samples
        if audible_end := _audible_end(pcm[: max(samples_before, 0)]):
            self._audible_samples = self._samples + audible_end
        if event.kind == "end":
            # Without a full stop the library gives the index of the last character, not the end.
            is_last = event.char >= len(self._text) - 1
            end_char = len(self._text) if is_last else event.char
            self._end_word(min(event.at_ms, self._ms(self._audible_samples)), end_char)
        elif self._open_word is None:
            self._open_word = event
        elif self._is_next_word(self._open_word.char, event.char):
            self._end_word(event.at_ms, event.char)
            self._open_word = event

    def _is_next_word(self, char: int, later: int) -> bool:
        """Returns True if another word than that at `char` begins at `later`. eSpeak reports `3.5`
        as several words."""
        between = self._text[char:later]
        return later > char and (
            any(c.isspace() for c in between)
            or _is_script_without_spaces(self._text[later : later + 1])
        )

    def _end_word(self, at_ms: float, next_char: int) -> None:
        """Ends the open word, if there is one. `next_char`: index after it, spaces included."""
        open_word, self._open_word = self._open_word, None
        if open_word is None:
            return
        end_char = len(self._text[:next_char].rstrip())
        if not _is_script_without_spaces(self._text[open_word.char : open_word.char + 1]):
            word = (self._text[open_word.char :].split() or [""])[0]
            end_char = max(end_char, open_word.char + len(word))
        if not any(c.isalnum() for c in self._text[end_char:]):
            end_char = len(self._text)  # punctuation at the end (` !`) belongs to the last word
        end_ms = max(at_ms, open_word.at_ms)
        self._words.append(WordTiming(max(end_char, open_word.char), open_word.at_ms, end_ms))

    def _release(self) -> Iterator[SpeechChunk]:
        """Yields the samples that were held back, with the words that have ended."""
        words, self._words = tuple(self._words), []
        held_pcm, self._held_pcm = self._held_pcm, []
        if held_pcm:
            yield SpeechChunk(np.concatenate(held_pcm), words)
        elif words:
            yield SpeechChunk(np.zeros(0, np.int16), words)

    def _ms(self, samples: int) -> float:
        return samples_to_ms(samples, self._rate_hz)


def _audible_end(pcm: Pcm) -> int:
    """Returns the index after the last sample above _MAX_SILENT_SAMPLE; 0 if there is none."""
    audible = np.flatnonzero((pcm > _MAX_SILENT_SAMPLE) | (pcm < -_MAX_SILENT_SAMPLE))
    return int(audible[-1]) + 1 if len(audible) else 0


def _is_script_without_spaces(char: str) -> bool:
    return bool(char) and any(first <= ord(char) <= last for first, last in _SCRIPTS_WITHOUT_SPACES)
