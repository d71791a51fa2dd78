"""What is known of an utterance from its start until its words are."""

from dataclasses import dataclass, field, replace

from core.audio import Pcm
from engines.base import AsrResult
from pipeline.joining import Join, Said
from pipeline.settings import SessionSettings
from pipeline.speech_evidence import SpeechEvidence, gated, rejects_noise
from pipeline.transcription import Utterance
from pipeline.turn import Mark, Turn


@dataclass(slots=True)
class OpenUtterance:
    """The utterance that is being spoken."""

    utterance: Utterance
    said: Said
    is_announced: bool
    "The client was told that speech started, and will be told that it stopped."
    evidence: SpeechEvidence
    "That somebody speaks in its own audio."
    end: int | None = None
    "Where the speech ended, while it looks so."
    guessed: dict[Mark, float] = field(default_factory=dict[Mark, float])
    "When the pause began that may be its end."
    guess: tuple[str, float] | None = None
    "The words it then has, should it be over, and when they were known."
    is_full: bool = False

    @property
    def settings(self) -> SessionSettings:
        """As they were when it began: it is decoded by them."""
        return self.said.settings

    @property
    def turn(self) -> Turn:
        return self.said.turn

    @property
    def join(self) -> Join | None:
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

    @property
    def is_judged(self) -> bool:
        """Who says himself when he speaks is believed that he spoke."""
        settings = self.settings
        return settings.turn_detection is not None and rejects_noise(settings.no_speech_threshold)

    def judged(self, result: AsrResult) -> AsrResult:
        """Noise yields nothing. `result`: of its own audio alone."""
        return gated(result, self.evidence) if self.is_judged else result

    def together(self, result: AsrResult, join: Join) -> AsrResult:
        """The same of a decode of all: nothing if it says no more than was said before. What is
        new in it is then known."""
        join.new = join.added(result) if join.is_possible else ""
        is_said = not self.is_judged or join.is_said(result, self.said.evidence)
        if join.new and is_said:
            return result
        return replace(result, text="", words=(), segments=(), tokens=(), is_rejected=True)

    def supposed(self, result: AsrResult) -> AsrResult:
        """What it says, should it be over."""
        return self.judged(result) if self.join is None else self.together(result, self.join)

    def known_at(self, words: str, now: float) -> float:
        """When its final words were known: in the pause, if they are those of the guess."""
        return self.guess[1] if self.guess is not None and self.guess[0] == words else now

    def give_up(self) -> None:
        """Its words will never be known."""
        self.utterance.discard()
        self.said.decide()
        self.said.tell("")
