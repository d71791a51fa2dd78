"""What is known of an utterance from its start until its words are."""

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
    """The words of an utterance, should it be over."""

    words: str
    new: str
    "Those of them that are left if it stands by itself."
    known_at: float
    "Monotonic seconds."


@dataclass(slots=True)
class OpenUtterance:
    """The utterance that is being spoken."""

    utterance: TranscriptStream
    said: EndedUtterance
    is_announced: bool
    "The client was told that speech started, and will be told that it stopped."
    evidence: NoSpeechFilter
    "That somebody speaks in its own audio."
    judge: NoSpeechCriterion = NoSpeechCriterion.BOTH
    "Who says whether it was speech."
    end: int | None = None
    "Where the speech ended, while it looks so."
    guessed: dict[TurnMark, float] = field(default_factory=dict[TurnMark, float])
    "When the pause began that may be its end."
    guess: ProvisionalTranscript | None = None
    "Should it then be over."
    is_full: bool = False

    @property
    def settings(self) -> SessionSettings:
        """As they were when it began: it is decoded by them."""
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
        """The next samples of its own."""
        self.utterance.push(pcm)
        self.said.audio.push(pcm)

    def heard(self, probability: float, samples: int) -> None:
        """The VAD's word on the newest of them."""
        self.evidence.push(probability, samples)
        self.said.evidence.push(probability, samples)

    def judged(self, result: AsrResult) -> AsrResult:
        """Noise yields nothing. `result`: of its own audio alone."""
        return filter_no_speech(result, self.evidence, self.judge)

    def together(self, result: AsrResult, join: Continuation) -> AsrResult:
        """The same of a decode of all: nothing if it says no more than was said before. What is
        new in it is then known."""
        join.new = join.added(result) if join.is_possible else ""
        if join.new and join.is_said(result, self.said.evidence, self.judge):
            return result
        return rejected_result(result)

    def suppose(self, result: AsrResult, now: float) -> AsrResult:
        """What it says, should it be over."""
        join = self.join
        supposed = self.judged(result) if join is None else self.together(result, join)
        words = supposed.text
        self.guess = ProvisionalTranscript(
            words, join.new if join is not None and words else words, now
        )
        return supposed

    def known_at(self, words: str, now: float) -> float:
        """When its final words were known: in the pause, if they are those of the guess."""
        guess = self.guess
        return guess.known_at if guess is not None and words in (guess.words, guess.new) else now

    def give_up(self) -> None:
        """Its words will never be known."""
        self.utterance.discard()
        self.said.decide()
        self.said.tell("")
