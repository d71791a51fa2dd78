"""State of an utterance from its start until its transcript is known."""

from dataclasses import dataclass, field

from core.audio import Pcm
from engines.base import AsrResult
from pipeline.shared.settings import SessionSettings
from pipeline.shared.turn import Turn, TurnMark
from pipeline.transcription.no_speech import (
    NoSpeechCriterion,
    NoSpeechFilter,
    filter_no_speech,
    rejected_result,
)
from pipeline.transcription.stream import TranscriptStream
from pipeline.user_turn.continuation import Continuation, EndedUtterance


@dataclass(frozen=True, slots=True)
class ProvisionalTranscript:
    """Words of an utterance as they would be if it is over."""

    words: str
    "All words of the utterance, including those of the one it continues."
    new: str
    "Words that remain if it stands alone."
    known_at: float
    "Monotonic seconds at which they were known."


@dataclass(slots=True)
class OpenUtterance:
    """The utterance that is being spoken."""

    utterance: TranscriptStream
    "Transcription of the utterance."
    said: EndedUtterance
    "Record of it that remains after its end; also holds its own audio."
    is_announced: bool
    "True if the client received SpeechStarted, so that it will also receive SpeechStopped."
    evidence: NoSpeechFilter
    "VAD evidence of speech in its own audio."
    judge: NoSpeechCriterion = NoSpeechCriterion.BOTH
    "Criterion for whether it was speech."
    end: int | None = None
    "Sample one past the speech, while a pause lasts."
    guessed: dict[TurnMark, float] = field(default_factory=dict[TurnMark, float])
    "Time marks of the pause that may be its end."
    guess: ProvisionalTranscript | None = None
    "Transcript that holds if that pause is its end."
    is_full: bool = False
    "True if it reached the longest length and takes no more audio."

    @property
    def settings(self) -> SessionSettings:
        """Settings from when it began; it is decoded by them."""
        return self.said.settings

    @property
    def turn(self) -> Turn:
        return self.said.turn

    @property
    def join(self) -> Continuation | None:
        return self.said.join

    @property
    def start(self) -> int:
        """Sample of the session at which the decoded audio begins."""
        return self.said.start - (0 if self.join is None else len(self.join.pcm))

    def push(self, pcm: Pcm) -> None:
        """Adds the next samples of its own audio."""
        self.utterance.push(pcm)
        self.said.audio.push(pcm)

    def heard(self, probability: float, samples: int) -> None:
        """Adds the VAD probability (0 to 1) of its newest `samples`."""
        self.evidence.push(probability, samples)
        self.said.evidence.push(probability, samples)

    def judged(self, result: AsrResult) -> AsrResult:
        """Returns the result, or an empty one for noise. `result`: a decode of its own audio
        only."""
        return filter_no_speech(result, self.evidence, self.judge)

    def together(self, result: AsrResult, join: Continuation) -> AsrResult:
        """Returns the result of a decode of all audio, or an empty one if it adds no spoken words.
        Sets `join.new`."""
        join.new = join.added(result) if join.is_possible else ""
        if join.new and join.is_said(result, self.said.evidence, self.judge):
            return result
        return rejected_result(result)

    def suppose(self, result: AsrResult, now: float) -> AsrResult:
        """Returns the transcript that holds if the utterance is over, and keeps it as `guess`."""
        join = self.join
        supposed = self.judged(result) if join is None else self.together(result, join)
        words = supposed.text
        self.guess = ProvisionalTranscript(
            words, join.new if join is not None and words else words, now
        )
        return supposed

    def known_at(self, words: str, now: float) -> float:
        """Returns when its final words were known: already in the pause, if they equal the
        guess."""
        guess = self.guess
        return guess.known_at if guess is not None and words in (guess.words, guess.new) else now

    def give_up(self) -> None:
        """Gives up: its words will never be known."""
        self.utterance.discard()
        self.said.decide()
        self.said.tell("")
