"""Which answers are given: to what was heard, to what was asked for, and what is said unasked."""

from collections.abc import Callable
from typing import Protocol

from core.audio import Pcm
from core.errors import Conflict, EarshotError, RequestError
from core.events import (
    ItemTruncated,
    OutputAudio,
)
from core.ids import new_id
from core.ports import ToolContext
from engines.base import AsrResult
from pipeline.answer import Answer, AnswerPlan
from pipeline.answering import Answering
from pipeline.conversation import Conversation
from pipeline.playout import Playout
from pipeline.reporting import Reporting
from pipeline.settings import ResponseRequest, SessionSettings
from pipeline.surroundings import Surroundings
from pipeline.turn import Mark, Turn


class Ear(Protocol):
    """What the listening side does right now."""

    @property
    def is_speaking(self) -> bool: ...

    @property
    def is_transcribing(self) -> bool: ...


class Responding:
    """One session's side that answers. `answering.run` gives the answers this one orders."""

    def __init__(
        self,
        conversation: Conversation,
        surroundings: Surroundings,
        playout: Playout,
        ear: Ear,
        settings: Callable[[], SessionSettings],
        reporting: Reporting,
        on_idle: Callable[[], None],
    ) -> None:
        self.answering = Answering(on_idle)
        self._conversation, self._history = conversation, conversation.history
        self._engines, self._toolbox = surroundings.engines, surroundings.toolbox
        self._playout, self._ear, self._settings = playout, ear, settings
        self._clock = surroundings.clock
        self._emit, self._finish_turn = reporting.emit, reporting.finish_turn
        self._wanted: ResponseRequest | None = None
        "A response that waits for the words of the audio that was just committed."
        self._unanswered: Turn | None = None
        "Words without an answer yet: the client has to ask for it, or the user goes on speaking."

    # What clients ask for.

    def create(self, request: ResponseRequest) -> None:
        """Raises Conflict conversation_already_has_active_response, RequestError."""
        if not self._settings().answers:
            raise RequestError("a transcription session gives no answers", code="invalid_request")
        if self.answering.is_busy or self._wanted is not None:
            raise Conflict(
                "a response is already being generated: wait for response.done, or cancel it",
                code="conversation_already_has_active_response",
            )
        if self._ear.is_transcribing:
            self._wanted = request
        else:
            self._answer(self._unanswered or self._written_turn(), request)

    def cancel(self, response_id: str | None = None) -> None:
        """Raises Conflict response_cancel_not_active."""
        if self._wanted is not None and response_id is None and not self.answering.is_busy:
            wanted, self._wanted = self._wanted, None
            self._enqueue(self._written_turn(), wanted)
        self.answering.cancel("client_cancelled", response_id)

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """Raises RequestError item_not_found, invalid_value."""
        answer = self.answering.find(item_id)
        if answer is None:
            raise RequestError(
                f"item {item_id!r} is no recent spoken answer",
                code="item_not_found",
                param="item_id",
            )
        if not 0 <= audio_end_ms <= answer.total_ms:
            raise RequestError(
                f"audio_end_ms {audio_end_ms} is not within 0 to {answer.total_ms:.0f} ms of audio",
                code="invalid_value",
                param="audio_end_ms",
            )
        answer.truncate(audio_end_ms)
        self._emit(ItemTruncated(item_id, audio_end_ms))

    def say(self, text: str) -> bool:
        """Announce something, after what is being said. False: this session never answers."""
        if not self._settings().answers:
            return False
        self._enqueue(self._written_turn(), ResponseRequest(), text=text)
        return True

    # What was heard.

    def interrupt(self) -> None:
        """The user speaks over the answer, if the session lets them."""
        detection = self._settings().turn_detection
        if detection is not None and detection.interrupt_response:
            self.answering.interrupt()
            self.cut_playout()

    def understood(self, turn: Turn, result: AsrResult) -> None:
        if result.text:
            self._conversation.language = result.language
            self.put_aside()
            self._unanswered = turn
            self.decide()
        else:
            self._finish_turn(turn, "rejected")
            nothing = "no speech was understood in the committed audio"
            self._give_up(turn, RequestError(nothing, code="no_speech"))

    def not_understood(self, turn: Turn, error: EarshotError) -> None:
        self._finish_turn(turn, "failed")
        self._give_up(turn, error)

    def decide(self) -> None:
        """Answer what was understood, if its moment has come."""
        settings = self._settings()
        detection = settings.turn_detection
        if self._ear.is_transcribing:
            return  # more words are on their way; one answer takes all
        if self._wanted is not None and self._unanswered is not None:
            wanted, self._wanted = self._wanted, None
            self._answer(self._unanswered, wanted)
        elif not settings.answers or (detection and not detection.create_response):
            self.put_aside()
        elif detection is None or self._unanswered is None:
            return  # push-to-talk: the client's response.create is still to come
        elif not (self._ear.is_speaking and detection.interrupt_response):
            self._answer(self._unanswered, ResponseRequest())

    def put_aside(self) -> None:
        """Words that get no answer of their own; the next answer knows them from the history."""
        if self._unanswered is not None:
            self._finish_turn(self._unanswered, "transcribed")
            self._unanswered = None

    # What is played.

    def cut_playout(self) -> None:
        """Stop the voice; of a complete answer, keep what was heard."""
        writer = self._playout.clear()
        if writer is None:
            return
        answer = self.answering.find_response(writer.response_id)
        if answer is None or answer.item_id is None or not answer.is_done:
            return  # a running one cuts itself short when it ends
        self._finish_turn(answer.turn, "cancelled")
        if self._playout.paced_by == "server":
            self._history.truncate(answer.item_id, answer.heard(writer.heard_ms))
            self._emit(ItemTruncated(answer.item_id, round(writer.heard_ms)))

    def playout_started(self, response_id: str) -> None:
        if (answer := self.answering.find_response(response_id)) is not None:
            answer.turn.mark(Mark.PLAYOUT_START, self._clock.now())
            self._finish_turn(answer.turn, "answered")

    def deliver(self, response_id: str, pcm: Pcm) -> None:
        """Sound of a client-paced session goes out as events."""
        answer = self.answering.find_response(response_id)
        if answer is not None and answer.item_id is not None:
            self._emit(OutputAudio(response_id, answer.item_id, 0, pcm))

    # Within.

    def _written_turn(self) -> Turn:
        turn = Turn(new_id("turn"))
        turn.mark(Mark.SPEECH_END, self._clock.now())
        return turn

    def _give_up(self, turn: Turn, error: EarshotError) -> None:
        """There were no words: a response that waits for them fails, unless others came."""
        if self._wanted is None or self._unanswered is not None or self._ear.is_transcribing:
            self.decide()
            return
        wanted, self._wanted = self._wanted, None
        self._enqueue(turn, wanted, refusal=error)

    def _answer(self, turn: Turn, request: ResponseRequest) -> None:
        self._unanswered = None
        self._enqueue(turn, request)

    def _enqueue(
        self,
        turn: Turn,
        request: ResponseRequest,
        *,
        text: str | None = None,
        refusal: EarshotError | None = None,
    ) -> None:
        self.answering.enqueue(
            lambda: self._make(turn, request, text, refusal),
            lambda: self._finish_turn(turn, "cancelled"),
            is_announcement=text is not None,
        )

    def _make(
        self,
        turn: Turn,
        request: ResponseRequest,
        text: str | None,
        refusal: EarshotError | None,
    ) -> Answer:
        """Settings count at the moment when the answer begins."""
        settings, engines = self._settings(), self._engines
        language = settings.language or self._conversation.language or engines.default_language
        self._conversation.language = language
        plan = AnswerPlan(
            turn=turn,
            modality=request.modality or settings.modality,
            language=language,
            instructions=request.instructions or settings.instructions,
            voice=request.voice or settings.voice,
            speed=settings.speed,
            llm=engines.language_model(settings.llm),
            tts=engines.voice,
            text=text,
            refusal=refusal,
        )
        return Answer(
            plan,
            self._history,
            self._toolbox,
            self._playout,
            ToolContext(self._conversation.id, language),
            self._clock,
            self._emit,
            self._finish_turn,
        )
