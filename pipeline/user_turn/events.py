"""What a session does about what is heard, moment by moment, and how it learns of the words."""

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
    """The session, as its ear sees it."""

    def is_open(self, turn: Turn) -> bool:
        """Whether what is said now may go on this turn: its answer is hardly heard."""
        ...

    def speech_started(self, turn: Turn, join: Continuation | None) -> None:
        """`join`: what it may go on."""
        ...

    def goes_on(self, turn: Turn, words: str) -> bool:
        """Whether a turn that adds these words to what it is joined to takes its place."""
        ...

    def words_heard(self, turn: Turn, words: str) -> None:
        """So far; empty when the recogniser found none."""
        ...

    def speech_paused(self, turn: Turn) -> None:
        """Maybe it is over."""
        ...

    def supposed(self, turn: Turn, result: AsrResult) -> None:
        """In a pause: these are its words, if it is over."""
        ...

    async def is_whole(self, words: str, language: str) -> bool | None:
        """Whether these words are a whole command; None: it cannot be told. Raises EngineError."""
        ...

    async def weigh(self, turn: Turn, words: str) -> None:
        """Just before `understood`: what would come of these words, if that matters."""
        ...

    def speech_resumed(self, turn: Turn) -> None: ...

    def speech_dropped(self, turn: Turn) -> None:
        """It came to nothing before it was over."""
        ...

    def understood(self, turn: Turn, result: AsrResult) -> None: ...

    def not_understood(self, turn: Turn, error: EarshotError) -> None: ...

    def abandoned(self, turn: Turn) -> None:
        """The session ends before its words are known."""
        ...


class InputActivity(Protocol):
    """What the listening side does right now."""

    @property
    def is_speaking(self) -> bool: ...

    @property
    def is_transcribing(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class PartialTranscripts:
    """Passes on what is heard of one utterance while it is spoken."""

    turn: Turn
    reactions: UserTurnHandler
    emit: Callable[[SessionEvent], None]

    def hypothesis(self, agreed: PartialHypothesis, audio_ms: int) -> None:
        assert self.turn.item_id is not None
        self.emit(HypothesisChanged(self.turn.item_id, agreed.stable, agreed.unstable, audio_ms))
        self.reactions.words_heard(self.turn, f"{agreed.stable} {agreed.unstable}".strip())

    def nothing_heard(self) -> None:
        self.reactions.words_heard(self.turn, "")

    def failed(self, error: EarshotError) -> None:
        self.emit(ErrorEvent(error.code, f"live words are interrupted: {error}"))
