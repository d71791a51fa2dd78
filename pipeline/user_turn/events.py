"""Events of the user's turn, the Protocol that handles them, and the state of the user's input."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from core.conversation.events import ErrorEvent, HypothesisChanged, SessionEvent
from core.errors import EarshotError
from engines.base import AsrResult
from pipeline.shared.turn import Turn
from pipeline.transcription.partials import PartialHypothesis
from pipeline.user_turn.continuation import Continuation


@dataclass(frozen=True, slots=True)
class UserSpeechStarted:
    """Speech began: an utterance is open."""

    turn: Turn
    continuation: Continuation | None
    "Link to the former utterance, if this one may continue it."


@dataclass(frozen=True, slots=True)
class UserWordsChanged:
    """The words of the open utterance so far are known, or have changed."""

    turn: Turn
    words: str
    "Empty when the recogniser found none."


@dataclass(frozen=True, slots=True)
class UserSpeechPaused:
    """Speech paused: the utterance may be over."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class UserSpeechResumed:
    """Speech continued after a pause."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class UserTurnMaybeOver:
    """The words up to a pause are known. They are final if the utterance ends with this pause."""

    turn: Turn
    result: AsrResult


@dataclass(frozen=True, slots=True)
class UserSpeechDropped:
    """The utterance was dropped before it was over."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class UserTurnTranscribed:
    """The turn is over, and its transcript is final."""

    turn: Turn
    result: AsrResult
    "Its text is empty for noise."


@dataclass(frozen=True, slots=True)
class UserTurnFailed:
    """The turn is over, and its recognition failed."""

    turn: Turn
    error: EarshotError


@dataclass(frozen=True, slots=True)
class UserTurnAbandoned:
    """The session ended before the transcript was known."""

    turn: Turn


UserTurnEvent: TypeAlias = (
    UserSpeechStarted
    | UserWordsChanged
    | UserSpeechPaused
    | UserSpeechResumed
    | UserTurnMaybeOver
    | UserSpeechDropped
    | UserTurnTranscribed
    | UserTurnFailed
    | UserTurnAbandoned
)
"""Events of the user's turn, in the order in which they happen. Each is handled before the next
sample is taken: no queue lies between."""


class TurnResponder(Protocol):
    """Responds to the user's turns. The response coordinator implements it."""

    def handle(self, event: UserTurnEvent) -> None:
        """Handles an event before it returns."""
        ...

    def may_continue(self, turn: Turn) -> bool:
        """Returns whether new speech may continue this turn: hardly any of its answer was
        audible."""
        ...

    def replaces_former(self, turn: Turn, words: str) -> bool:
        """Returns whether a turn that adds `words` to the utterance it continues replaces that
        one."""
        ...

    async def is_command(self, words: str, language: str) -> bool | None:
        """Returns whether the words are a complete command; None: unknown. Raises EngineError."""
        ...

    async def is_unfinished_command(self, words: str, language: str) -> bool | None:
        """Returns True if the words are no command but more words could make them one, False if
        they are a complete command, None if neither is known. Raises EngineError."""
        ...

    async def check_interruption(self, turn: Turn, words: str) -> None:
        """Checks whether these words are a command, if that decides whether they interrupt an
        answer. Called just before `UserTurnTranscribed`."""
        ...


@dataclass(slots=True)
class InputActivity:
    """State of the user's input in one session. The parts that take input write it
    (`UserTurnController`, `ConversationItems`); all others read it."""

    is_speaking: bool = False
    "True while an utterance is open: begun, and neither committed nor dropped."
    utterances_due: int = 0
    "Number of committed utterances whose transcripts are not known yet."
    items_due: int = 0
    "Number of added items with audio whose transcripts are not known yet."

    @property
    def is_transcribing(self) -> bool:
        """True while a transcript is under way."""
        return self.utterances_due > 0 or self.items_due > 0

    @property
    def is_active(self) -> bool:
        """True while the user speaks or a transcript is under way."""
        return self.is_speaking or self.is_transcribing


@dataclass(frozen=True, slots=True)
class PartialTranscripts:
    """Reports the partial transcripts of one utterance to the client and as events."""

    turn: Turn
    on_event: Callable[[UserTurnEvent], None]
    emit: Callable[[SessionEvent], None]

    def hypothesis(self, agreed: PartialHypothesis, audio_ms: int) -> None:
        """Reports a new partial. `audio_ms`: audio of the utterance that it covers."""
        assert self.turn.item_id is not None
        self.emit(HypothesisChanged(self.turn.item_id, agreed.stable, agreed.unstable, audio_ms))
        words = f"{agreed.stable} {agreed.unstable}".strip()
        self.on_event(UserWordsChanged(self.turn, words))

    def nothing_heard(self) -> None:
        """Reports that the recogniser found no words so far."""
        self.on_event(UserWordsChanged(self.turn, ""))

    def failed(self, error: EarshotError) -> None:
        """Reports that partials fail; the utterance itself goes on."""
        self.emit(ErrorEvent(error.code, f"live words are interrupted: {error}"))
