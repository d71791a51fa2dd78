"""Joins an utterance to the one before it when an endpoint cut a sentence at a pause. No I/O.

Recognisers mishear half a sentence, and language models misunderstand it. So speech that begins
soon after an endpoint, while hardly any of the answer was audible, is decoded together with the
former utterance. In the end it either replaces the former one (`is_taken`) or stands alone
(`stands_alone`).

Where the former one is final, because a session only transcribes or the answer is well under way,
its sound and words still help to understand what follows (`UtteranceRecord.former`).
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
from pipeline.transcription.former_speech import FormerSpeech
from pipeline.transcription.no_speech import NoSpeechCriterion, NoSpeechFilter, is_spoken
from pipeline.transcription.stitching import join_texts
from pipeline.user_turn.speech_detection.endpointing import INTERRUPT_MS

RESUME_MS = 1000
"""Longest audio time from an endpoint to speech that may continue the sentence. With the
endpointing delay before it, that is a pause of 1.1 to 1.6 s. Longer pauses stand between
sentences."""
RETRACTABLE_MS = 650
"""Length of an answer, as played so far, below which it may be taken back. In a word or two the
user cannot have understood it. Detecting the new speech already takes 160 ms of this time."""
MAX_CONTINUATIONS = 3
"""Most utterances in a row that may be joined. A speaker who pauses more often is not within one
sentence."""
FORMER_MS = 3000
"""Longest audio time from an endpoint to speech that is decoded with the final utterance before it.
After longer pauses people say something else."""
MAX_FORMER_MS = 20_000
"Longest former audio that is decoded again. Longer speech has context enough in each utterance."

_PUNCTUATION = re.compile(r"[^\w\s'-]|_")


@dataclass(slots=True)
class UtteranceRecord:
    """Data of an utterance that are kept after its end, because the next one may continue it."""

    turn: Turn
    settings: SessionSettings
    start: int
    "Sample of the session at which its own audio begins."
    audio: AudioBuffer
    "All audio that is decoded for it, after that of the former utterance if it may continue one."
    own_start: int = 0
    "Sample of `audio` at which its own audio begins."
    before_speech: int = 0
    "Samples of `audio` before the first speech."
    evidence: NoSpeechFilter = field(default_factory=NoSpeechFilter)
    "VAD evidence of speech in its own audio."
    former_evidence: NoSpeechFilter = field(default_factory=NoSpeechFilter)
    "VAD evidence of speech in the utterances that it continues."
    continuation: "Continuation | None" = None
    "Link to the utterance that it may continue; None once it is known to stand alone."
    former: "UtteranceRecord | None" = None
    "Utterance shortly before it that it cannot replace, but is decoded with."
    text: str = ""
    """Words of the utterance, including those of the one it continues. Empty: not known yet, not
    understood, or noise."""
    known: asyncio.Event = field(default_factory=asyncio.Event)
    "Set when `text` is final."

    def set_text(self, text: str) -> None:
        """Sets the final words and wakes the tasks that wait for `known`."""
        self.text = text
        self.known.set()

    def settle_continuation(self) -> None:
        """Drops the link to the former utterance, unless this one replaces it."""
        if self.continuation is not None and not self.continuation.is_taken:
            self.continuation.alone_event.set()
            self.continuation = None

    @property
    def all_evidence(self) -> NoSpeechFilter:
        """VAD evidence of speech in it and in the utterances that it continues."""
        return self.evidence.with_former(self.former_evidence)

    def own_pcm(self) -> Pcm:
        """Returns its own audio, without that of the former one."""
        return self.audio.pcm(self.own_start)

    def former_speech(self, room: int) -> FormerSpeech | None:
        """Returns the speech that it is decoded with, at most `room` samples; None for nothing."""
        # After known words a recogniser hears more of them in a sound that is no voice.
        if self.former is None or self.evidence.is_none:
            return None
        return self.former.speech(room)

    def speech(self, room: int) -> FormerSpeech | None:
        """Returns its sound and words, after those of the utterances before it, as far as they fit
        into `room` samples. None while its words are not known, or if there are none."""
        pcm = self.own_pcm() if self.continuation is None else self.audio.pcm()
        if not self.text or len(pcm) > room:
            return None
        before = self.former.speech(room - len(pcm)) if self.former is not None else None
        if before is None:
            return FormerSpeech(pcm, self.text)
        words = join_texts([before.words, self.text])
        return FormerSpeech(np.concatenate([before.pcm, pcm]), words)

    def limit_former(self, samples: int) -> None:
        """Forgets the utterances before it that do not fit into `samples` with it."""
        record, room = self, samples - self.samples
        while record.former is not None:
            room -= record.former.samples
            if room < 0:
                record.former = None
                return
            record = record.former

    @property
    def is_speech(self) -> bool:
        """True unless the VAD saw no speech. An empty transcript is not enough: recognisers also
        reject half sentences."""
        return bool(self.text) or not self.all_evidence.is_none

    @property
    def samples(self) -> int:
        """Number of samples that hold its words, from `first` to `end`."""
        return self.end - self.first

    @property
    def end(self) -> int:
        """Sample of the session one past its last sample."""
        return self.start + self.audio.end - self.own_start

    @property
    def former_count(self) -> int:
        """Number of utterances that are joined before it."""
        return 0 if self.continuation is None else self.continuation.former.former_count + 1

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Turn of the utterance, then the turns of those that it continues, newest first."""
        return (
            self.turn,
            *(self.continuation.former.turns if self.continuation is not None else ()),
        )

    @property
    def first(self) -> int:
        """Sample of the session at which the audio of its words begins."""
        return self.start if self.continuation is None else self.continuation.former.first


@dataclass(slots=True)
class Continuation:
    """Link from one utterance to the former one, which it may continue."""

    former: UtteranceRecord
    samples: int
    "Samples from the beginning of the former utterance to the own audio of this one."
    was_joined: bool
    "True if these samples also hold an utterance before the former one."
    evidence: NoSpeechFilter = field(default_factory=NoSpeechFilter)
    "VAD evidence of speech in the new audio."
    began_at: float = 0.0
    "Monotonic seconds at which the start of the new speech was detected."
    is_taken: bool = False
    "True if the new utterance replaces the former one."
    alone_event: asyncio.Event = field(default_factory=asyncio.Event)
    "Set when the new utterance stands alone."
    words_added: str = ""
    "Words that it adds to the former ones, once they are known."

    @property
    def stands_alone(self) -> bool:
        return self.alone_event.is_set()

    def words_after_former(self, words: str) -> str:
        """Returns the words of a partial transcript of all audio beyond the former word count.
        Partials still change, so the words themselves are not compared. A partial covers enough
        audio before it can hold any new word."""
        if self.evidence.is_none or not self.former.known.is_set():
            return ""
        return " ".join(words.split()[len(self.former.text.split()) :])

    def new_words(self, result: AsrResult) -> str:
        """Returns the words that a decode of all audio adds to the former ones; empty if it adds
        none."""
        former, words = _normal(self.former.text), _normal(result.text)
        if former[: len(words)] == words:
            return ""
        return " ".join(w.text for w in self.words_in_new_audio(result)) or _after(
            former, result.text
        )

    def words_in_new_audio(self, result: AsrResult) -> tuple[Word, ...]:
        """Returns the words that lie in the new audio, by the recogniser's word times if it gives
        any."""
        begin_ms = samples_to_ms(self.samples, ASR_RATE_HZ)
        return tuple(w for w in result.words if (w.start_ms + w.end_ms) / 2 >= begin_ms)

    def agrees(self, result: AsrResult) -> bool:
        """Returns whether a decode of all audio begins with the former words."""
        former = _normal(self.former.text)
        return _normal(result.text)[: len(former)] == former

    def is_spoken(
        self, result: AsrResult, all_evidence: NoSpeechFilter, criterion: NoSpeechCriterion
    ) -> bool:
        """Returns whether the new words were really spoken, by the evidence for the new audio. The
        former words were judged when their utterance ended; if there were none, all words are new.

        `all_evidence`: evidence for all audio together.
        """
        if criterion is not NoSpeechCriterion.BOTH:
            return is_spoken(result, self.evidence, criterion)
        words = result.text.split()
        if not self.former.text:
            return not self.evidence.is_none and all_evidence.allows(result.text)
        count = max(1, len(words) - len(self.former.text.split()))
        return self.evidence.allows(" ".join(words[-count:]))

    @property
    def is_possible(self) -> bool:
        """True if the former utterance is speech and the audio before this one still matches it. It
        does not if the former one meanwhile turned out not to continue an even earlier one."""
        return self.former.is_speech and self.was_joined == (self.former.continuation is not None)


class ContinuationWindow:
    """Keeps the last utterance of a session and the audio since, while speech may still continue
    it."""

    def __init__(self) -> None:
        self._last: UtteranceRecord | None = None
        self._gap: list[Pcm] = []
        self._samples = 0

    def remember(self, utterance: UtteranceRecord) -> None:
        """Remembers `utterance`, which a pause ended."""
        self.forget()
        self._last = utterance

    def push(self, pcm: Pcm) -> None:
        """Adds the next samples after the endpoint: silence, or speech too short for a start
        yet."""
        if self._last is None:
            return
        self._gap.append(pcm)
        self._samples += len(pcm)
        if self._samples > ms_to_samples(FORMER_MS + INTERRUPT_MS, ASR_RATE_HZ):
            self.forget()

    def forget(self) -> None:
        """Forgets the last utterance: the next one stands alone."""
        self._last = None
        self._gap, self._samples = [], 0

    def last(self, speech: int, settings: SessionSettings) -> UtteranceRecord | None:
        """Returns the utterance that speech from sample `speech` of the session on may continue, or
        None."""
        last = self._last_within(RESUME_MS, speech, settings)
        if last is None or last.former_count >= MAX_CONTINUATIONS or not last.is_speech:
            return None
        detection = settings.turn_detection
        # Only an answer that the server began by itself, and that speech may stop, can be taken
        # back.
        if (
            settings.answers
            and detection is not None
            and detection.create_response
            and settings.may_interrupt
        ):
            return last
        return None

    def former(self, speech: int, settings: SessionSettings) -> UtteranceRecord | None:
        """Returns the utterance that speech from sample `speech` on is decoded with although it
        cannot replace it, or None."""
        return self._last_within(FORMER_MS, speech, settings)

    def _last_within(
        self, pause_ms: float, speech: int, settings: SessionSettings
    ) -> UtteranceRecord | None:
        last = self._last
        # With other settings the former audio would be decoded differently.
        if last is None or last.settings != settings:
            return None
        is_soon = speech - last.end <= ms_to_samples(pause_ms, ASR_RATE_HZ)
        is_short = last.samples <= ms_to_samples(MAX_FORMER_MS, ASR_RATE_HZ)
        return last if is_soon and is_short else None

    def continue_from(self, last: UtteranceRecord, start: int) -> tuple[Continuation, Pcm]:
        """Returns the link to `last` for an utterance whose own audio begins at sample `start`, and
        the audio before that."""
        gap = np.concatenate([*self._gap, np.zeros(0, np.int16)])[: start - last.end]
        was_joined = last.continuation is not None
        former = last.audio.pcm() if was_joined else last.own_pcm()
        pcm = np.concatenate([former, gap])
        self.forget()
        return Continuation(last, len(pcm), was_joined), pcm


def _after(former: Sequence[str], text: str) -> str:
    """Returns the words of `text` from the first one on that differs from `former`."""
    words, normal = text.split(), _normal(text)
    same = next(
        (at for at, pair in enumerate(zip(former, normal, strict=False)) if pair[0] != pair[1]),
        min(len(former), len(normal)),
    )
    return " ".join(words[same:])


def _normal(text: str) -> list[str]:
    """Returns the words in lower case and without punctuation, for comparison."""
    return [_PUNCTUATION.sub("", word.lower()) for word in text.split()]
