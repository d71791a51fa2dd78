"""An utterance that goes on after its end: cut at a pause, it is heard again as one. No I/O.

Recognisers mishear half a sentence, and models its meaning. So what is said soon after an end,
while the answer is hardly heard, is decoded together with what came before it. In the end it takes
the place of that (`is_taken`), or stands by itself (`is_void`).
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from engines.base import AsrResult, Word
from pipeline.shared.settings import SessionSettings
from pipeline.shared.turn import Turn
from pipeline.transcription.audio_buffer import AudioBuffer
from pipeline.transcription.no_speech import NoSpeechCriterion, NoSpeechFilter, is_spoken
from pipeline.user_turn.endpointing import INTERRUPT_MS

RESUME_MS = 1000
"""Audio time from an end to the speech that goes on: with the wait before it, a pause of 1.1 to
1.6 s. Longer ones stand between sentences."""
HARDLY_HEARD_MS = 650
"Of an answer: a word or two, in which nobody can have understood it. A start takes 160 ms of them."
MAX_JOINS = 3
"Whoever pauses more often within a sentence says something else."
MAX_JOINED_MS = 20_000
"Of what was said before: it is decoded again. Longer speech has context enough in each piece."

_PUNCTUATION = re.compile(r"[^\w\s'-]|_")


@dataclass(slots=True)
class EndedUtterance:
    """An utterance that ended, as far as another one may go on with it."""

    turn: Turn
    settings: SessionSettings
    start: int
    "Sample of the session at which its own audio begins."
    audio: AudioBuffer
    "Its own."
    evidence: NoSpeechFilter
    "That somebody speaks in it, what it is joined to included."
    join: "Continuation | None" = None
    "To what it may go on, until it is known that it stands by itself."
    text: str = ""
    "Its words, with those of the joined one. Empty: not known yet, not understood, or noise."
    known: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, text: str) -> None:
        """There is no more to wait for."""
        self.text = text
        self.known.set()

    def decide(self) -> None:
        """Unless it takes the former one's place it stands by itself, and keeps nothing of it."""
        if self.join is not None and not self.join.is_taken:
            self.join.void.set()
            self.join = None

    @property
    def is_speech(self) -> bool:
        """It was no noise, as far as is known; recognisers refuse half a sentence, too."""
        return bool(self.text) or not self.evidence.is_none

    @property
    def samples(self) -> int:
        """Of audio that its words are in."""
        return self.end - self.first

    @property
    def end(self) -> int:
        """One past its last sample."""
        return self.start + self.audio.end

    @property
    def joins(self) -> int:
        return 0 if self.join is None else self.join.former.joins + 1

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Its own, and those whose words it holds."""
        return (self.turn, *(self.join.former.turns if self.join is not None else ()))

    @property
    def first(self) -> int:
        """Sample of the session at which the audio of its words begins."""
        return self.start if self.join is None else self.join.former.first


@dataclass(slots=True)
class Continuation:
    """From one utterance to the former one."""

    former: EndedUtterance
    pcm: Pcm
    "All between the beginning of the former one and the own audio of this one."
    was_joined: bool
    "The former one's audio holds another one's."
    evidence: NoSpeechFilter = field(default_factory=NoSpeechFilter)
    "That somebody speaks in the new audio."
    began_at: float = 0.0
    "Monotonic seconds: when its start was known."
    is_taken: bool = False
    "It takes the former one's place."
    void: asyncio.Event = field(default_factory=asyncio.Event)
    "It stands by itself."
    new: str = ""
    "What it adds to the former words, once that is known."

    @property
    def is_void(self) -> bool:
        return self.void.is_set()

    def beyond(self, words: str) -> str:
        """What a hypothesis adds: it may still change, so that only more words count as new. It
        covers enough audio before there is any that is new."""
        if self.evidence.is_none or not self.former.known.is_set():
            return ""
        return " ".join(words.split()[len(self.former.text.split()) :])

    def added(self, result: AsrResult) -> str:
        """What a decode of all adds to the former words; empty if it is the same as before."""
        said, words = _normal(self.former.text), _normal(result.text)
        if said[: len(words)] == words:
            return ""
        return " ".join(w.text for w in self.late(result)) or _after(said, result.text)

    def late(self, result: AsrResult) -> tuple[Word, ...]:
        """The words that were said in the new audio, as far as the recogniser tells."""
        begin_ms = samples_to_ms(len(self.pcm), ASR_RATE_HZ)
        return tuple(w for w in result.words if (w.start_ms + w.end_ms) / 2 >= begin_ms)

    def agrees(self, result: AsrResult) -> bool:
        """It begins with the former words."""
        said = _normal(self.former.text)
        return _normal(result.text)[: len(said)] == said

    def is_said(self, result: AsrResult, both: NoSpeechFilter, judge: NoSpeechCriterion) -> bool:
        """Whether words that are new were said, by the evidence for the new audio. What came before
        was judged when it ended; if nothing was understood in it, all words are new."""
        if judge is not NoSpeechCriterion.BOTH:
            return is_spoken(result, self.evidence, judge)
        words = result.text.split()
        if not self.former.text:
            return not self.evidence.is_none and both.allows(result.text)
        count = max(1, len(words) - len(self.former.text.split()))
        return self.evidence.allows(" ".join(words[-count:]))

    @property
    def is_possible(self) -> bool:
        """Something was said before, and it is in the audio that was joined."""
        return self.former.is_speech and self.was_joined == (self.former.join is not None)


class ContinuationWindow:
    """One session's: the last utterance and what was heard since, while it may go on."""

    def __init__(self) -> None:
        self._last: EndedUtterance | None = None
        self._since: list[Pcm] = []
        self._samples = 0

    def ended(self, said: EndedUtterance) -> None:
        """`said` was ended by a pause."""
        self.forget()
        detection = said.settings.turn_detection
        if (
            said.settings.answers
            and detection is not None
            and detection.create_response
            and said.settings.may_interrupt
        ):
            self._last = said

    def heard(self, pcm: Pcm) -> None:
        """The next samples without speech, or with too little to be a start yet."""
        if self._last is None:
            return
        self._since.append(pcm)
        self._samples += len(pcm)
        if self._samples > ms_to_samples(RESUME_MS + INTERRUPT_MS, ASR_RATE_HZ):
            self.forget()

    def forget(self) -> None:
        """What is said next stands by itself."""
        self._last = None
        self._since, self._samples = [], 0

    def last(self, speech: int, settings: SessionSettings) -> EndedUtterance | None:
        """The utterance that speech from this sample of the session on may go on with."""
        last = self._last
        if last is None or last.settings != settings or last.joins >= MAX_JOINS:
            return None
        if not last.is_speech:
            return None
        is_soon = speech - last.end <= ms_to_samples(RESUME_MS, ASR_RATE_HZ)
        is_short = last.samples <= ms_to_samples(MAX_JOINED_MS, ASR_RATE_HZ)
        return last if is_soon and is_short else None

    def join(self, last: EndedUtterance, start: int) -> Continuation:
        """To an utterance whose own audio begins at this sample."""
        gap = np.concatenate([*self._since, np.zeros(0, np.int16)])[: start - last.end]
        before = [] if last.join is None else [last.join.pcm]
        pcm = np.concatenate([*before, last.audio.pcm(), gap])
        self.forget()
        return Continuation(last, pcm, last.join is not None)


def _after(said: Sequence[str], text: str) -> str:
    """The words from the first one on that is another."""
    words, normal = text.split(), _normal(text)
    same = next(
        (at for at, pair in enumerate(zip(said, normal, strict=False)) if pair[0] != pair[1]),
        min(len(said), len(normal)),
    )
    return " ".join(words[same:])


def _normal(text: str) -> list[str]:
    """Word for word, as they sound."""
    return [_PUNCTUATION.sub("", word.lower()) for word in text.split()]
