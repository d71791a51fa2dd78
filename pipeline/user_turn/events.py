"""Protocols by which the user turn reports to the session, and the reporter of partials."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from core.errors import EarshotError
from core.events import ErrorEvent, HypothesisChanged, SessionEvent
from engines.base import AsrResult
from pipeline.shared.turn import Turn
from pipeline.transcription.partials import PartialHypothesis
from pipeline.user_turn.continuation import Continuation


class UserTurnHandler(Protocol):
    """Receives the events of the user's turn. The session implements it."""

    def is_open(self, turn: Turn) -> bool:
        """Returns whether new speech may continue this turn: hardly any of its answer was
        audible."""
        ...

    def speech_started(self, turn: Turn, continuation: Continuation | None) -> None:
        """Called when speech begins. `continuation`: the utterance that it may continue."""
        ...

    def replaces_former(self, turn: Turn, words: str) -> bool:
        """Returns whether a turn that adds `words` to the utterance it continues replaces that
        one."""
        ...

    def words_heard(self, turn: Turn, words: str) -> None:
        """Called with the words so far; empty when the recogniser found none."""
        ...

    def speech_paused(self, turn: Turn) -> None:
        """Called at a pause: the utterance may be over."""
        ...

    def turn_maybe_over(self, turn: Turn, result: AsrResult) -> None:
        """Called in a pause with the transcript that holds if the utterance is over."""
        ...

    async def is_command(self, words: str, language: str) -> bool | None:
        """Returns whether the words are a complete command; None: unknown. Raises EngineError."""
        ...

    async def check_interruption(self, turn: Turn, words: str) -> None:
        """Called just before `understood`, to find out whether these words make sense as a command,
        where that decides about an interruption."""
        ...

    def speech_resumed(self, turn: Turn) -> None:
        """Called when speech continues after a pause."""
        ...

    def speech_dropped(self, turn: Turn) -> None:
        """Called when the utterance is dropped before it was over."""
        ...

    def understood(self, turn: Turn, result: AsrResult) -> None:
        """Called with the final transcript; its text is empty for noise."""
        ...

    def not_understood(self, turn: Turn, error: EarshotError) -> None:
        """Called when recognition failed."""
        ...

    def abandoned(self, turn: Turn) -> None:
        """Called when the session ends before the transcript is known."""
        ...


class InputActivity(Protocol):
    """State of the user's turn right now."""

    @property
    def is_speaking(self) -> bool:
        """True while an utterance is being spoken."""
        ...

    @property
    def is_transcribing(self) -> bool:
        """True while committed audio waits for its transcript."""
        ...


@dataclass(frozen=True, slots=True)
class PartialTranscripts:
    """Reports the partial transcripts of one utterance to the client and to the handler."""

    turn: Turn
    handler: UserTurnHandler
    emit: Callable[[SessionEvent], None]

    def hypothesis(self, agreed: PartialHypothesis, audio_ms: int) -> None:
        """Reports a new partial. `audio_ms`: audio of the utterance that it covers."""
        assert self.turn.item_id is not None
        self.emit(HypothesisChanged(self.turn.item_id, agreed.stable, agreed.unstable, audio_ms))
        self.handler.words_heard(self.turn, f"{agreed.stable} {agreed.unstable}".strip())

    def nothing_heard(self) -> None:
        """Reports that the recogniser found no words so far."""
        self.handler.words_heard(self.turn, "")

    def failed(self, error: EarshotError) -> None:
        """Reports that partials fail; the utterance itself goes on."""
        self.emit(ErrorEvent(error.code, f"live words are interrupted: {error}"))
