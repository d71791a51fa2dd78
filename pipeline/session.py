"""One client's connection: its ear, its answers, its settings, its tasks. Doors drive it."""

import asyncio
import logging
from dataclasses import dataclass
from typing import NoReturn

from core.audio import AudioFrame, Pcm
from core.errors import Conflict, EarshotError, RequestError
from core.events import (
    ItemAdded,
    ItemDone,
    ItemTruncated,
    OutputAudio,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
)
from core.ids import new_id
from core.items import Item
from core.ports import Clock, Metrics, ToolContext, TraceSink
from core.queues import DropOldest, Outbox
from engines.base import AsrResult
from pipeline.answer import Answer, AnswerPlan
from pipeline.answering import Answering
from pipeline.conversation import Conversation
from pipeline.engines import EngineSet
from pipeline.hearing import Hearing
from pipeline.listening import Listening
from pipeline.playout import PacedBy, Playout
from pipeline.settings import ResponseRequest, SessionSettings
from pipeline.tools import Toolbox
from pipeline.trace import Trace
from pipeline.turn import Mark, Turn, TurnStatus

logger = logging.getLogger(__name__)

MAX_LIVE_FRAMES = 50
"One second of 20 ms frames: what is older has lost its moment."
MAX_EVENTS = 4096
"A spoken answer of a minute and its words; a client further behind is not coming back."


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What sessions share: stateless model calls, tools, clock, metrics."""

    engines: EngineSet
    toolbox: Toolbox
    clock: Clock
    metrics: Metrics
    trace: TraceSink | None = None
    traces_words: bool = False


class _Closed(Exception):
    """Ends a session's task group, and with it every task; never leaves `run`."""


class Session:
    """See docs/realtime.md for what a client sees of it. Methods never block."""

    def __init__(
        self,
        settings: SessionSettings,
        conversation: Conversation,
        paced_by: PacedBy,
        surroundings: Surroundings,
    ) -> None:
        self.id = new_id("sess")
        self.conversation_id = conversation.id
        self.events: Outbox[SessionEvent] = Outbox(MAX_EVENTS)
        self._shared = surroundings
        self._clock, self._metrics = surroundings.clock, surroundings.metrics
        self._conversation, self._history = conversation, conversation.history
        self._trace: Trace | None = None
        if surroundings.trace is not None:
            words = surroundings.traces_words
            self._trace = Trace(surroundings.trace, self.id, self._clock, words=words)
        self._frames: DropOldest[AudioFrame] = DropOldest(MAX_LIVE_FRAMES)
        self._playout = Playout(paced_by, self, self._deliver)
        self._changed = asyncio.Event()
        "Set by every event: what a drain waits for may be over."
        self._answering = Answering(self._changed.set)
        self._hearing = Hearing(surroundings.engines.vad.open())
        self._listening = Listening(
            self._hearing,
            surroundings.engines,
            self._history,
            lambda: self.settings,
            self,
            self._clock,
            self._emit,
        )
        self._tasks: asyncio.TaskGroup | None = None
        self.running = asyncio.Event()
        "Set once the tasks are there to take commands."
        self._closing = asyncio.Event()
        self._wanted: ResponseRequest | None = None
        "A response that waits for the words of the audio that was just committed."
        self._unanswered: Turn | None = None
        "The push-to-talk turn that the next `create_response` answers."
        self.configure(settings)

    # What doors call.

    async def run(self) -> None:
        """Live until `close`. A bug in any of its tasks ends it, as an ExceptionGroup."""
        self._conversation.speakers.append(self)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self.running.set()
                tasks.create_task(self._listening.run(self._frames, tasks), name="listen")
                tasks.create_task(self._answering.run(tasks), name="answer")
                await self._until_closed()
        except* _Closed:
            logger.debug("= session %s closed", self.id)
        finally:
            self._listening.close()
            self._playout.clear()
            self._conversation.speakers.remove(self)
            self._frames.close()
            self.events.close()
            self._metrics.count("earshot_audio_frames_dropped", self._frames.dropped)

    def close(self) -> None:
        """Ask the session to end; idempotent."""
        self._closing.set()

    async def settled(self) -> None:
        """Wait until nothing is being said, transcribed, answered or played."""
        while (
            self._listening.is_active or self._answering.is_busy or self._playout.writer is not None
        ) and not self._closing.is_set():
            self._changed.clear()
            await self._changed.wait()

    def feed(self, frame: AudioFrame) -> None:
        """Live audio, 16 kHz; when the session lags a second behind, the oldest is dropped."""
        self._frames.put(frame)

    async def caught_up(self) -> None:
        """Wait until all that was fed is heard. For audio that comes faster than it was spoken."""
        await self._frames.drained()

    def configure(self, settings: SessionSettings) -> None:
        """Raises RequestError; the former settings then stay."""
        self._shared.engines.check(settings)
        self.settings = settings
        self._hearing.configure(settings.turn_detection)

    def commit_input(self) -> None:
        """Raises RequestError input_audio_buffer_commit_empty. A closing session does nothing."""
        if self._tasks is not None and not self._closing.is_set():
            self._listening.commit(self._tasks)

    def clear_input(self) -> None:
        self._listening.clear()

    def add_item(self, item: Item, previous_item_id: str | None = None) -> None:
        """Raises RequestError item_already_exists, item_not_found."""
        previous = self._history.add(item, previous_item_id)
        self._emit(ItemAdded(item, previous))
        self._emit(ItemDone(item, previous))

    def create_response(self, request: ResponseRequest) -> None:
        """Answer what was said and written so far; audio that was just committed is waited for.

        Raises Conflict conversation_already_has_active_response, RequestError.
        """
        if not self.settings.answers:
            raise RequestError("a transcription session gives no answers", code="invalid_request")
        if self._answering.is_busy or self._wanted is not None:
            raise Conflict(
                "a response is already being generated: wait for response.done, or cancel it",
                code="conversation_already_has_active_response",
            )
        if self._listening.is_transcribing:
            self._wanted = request
            return
        turn, self._unanswered = self._unanswered or self._written_turn(), None
        self._answer(turn, request)

    def cancel_response(self, response_id: str | None = None) -> None:
        """Raises Conflict response_cancel_not_active."""
        self._answering.cancel("client_cancelled", response_id)

    def clear_output(self) -> None:
        """Stop what is being played; an answer that is still generated goes on unheard."""
        self._cut_playout()

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """The client played only this much of an answer. Raises RequestError."""
        answer = self._answering.find(item_id)
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
        self._history.truncate(item_id, answer.heard(audio_end_ms))
        self._emit(ItemTruncated(item_id, audio_end_ms))

    def pull(self) -> AudioFrame | None:
        """The next 20 ms at 48 kHz for a server-paced session; None: silence."""
        return self._playout.pull()

    def say(self, text: str) -> None:
        """Announce something unasked, after what is being said."""
        turn = self._written_turn()
        self._answering.enqueue(
            lambda: self._make(turn, ResponseRequest(), text=text), is_announcement=True
        )

    # What listening reports.

    def speech_started(self) -> None:
        detection = self.settings.turn_detection
        if detection is not None and detection.interrupt_response:
            self._answering.interrupt()
            self._cut_playout()

    def understood(self, turn: Turn, result: AsrResult) -> None:
        detection = self.settings.turn_detection
        request, self._wanted = self._wanted, None
        if not result.text:
            self._finish_turn(turn, "rejected")
            if request is not None:
                self._refuse("no_speech", "no speech was understood in the committed audio")
        elif request is not None:
            self._answer(turn, request, result.language)
        elif not self.settings.answers or (detection and not detection.create_response):
            self._finish_turn(turn, "transcribed")
        elif detection is None:
            self._unanswered = turn  # push-to-talk: the client's response.create is still to come
        else:
            self._answer(turn, ResponseRequest(), result.language)

    def not_understood(self, turn: Turn, error: EarshotError) -> None:
        self._finish_turn(turn, "failed")
        if self._wanted is not None:
            self._wanted = None
            self._refuse(error.code, str(error))

    # What playout reports.

    def playout_started(self, response_id: str) -> None:
        self._hearing.guard(is_guarded=True)
        self._emit(PlayoutStarted(response_id))
        if (answer := self._answering.find_response(response_id)) is not None:
            answer.turn.mark(Mark.PLAYOUT_START, self._clock.now())
            self._finish_turn(answer.turn, "answered")

    def playout_stopped(self, response_id: str) -> None:
        self._hearing.guard(is_guarded=False)
        self._emit(PlayoutStopped(response_id))

    def playout_cleared(self, response_id: str) -> None:
        self._hearing.guard(is_guarded=False)
        self._emit(PlayoutCleared(response_id))

    # Within.

    async def _until_closed(self) -> NoReturn:
        await self._closing.wait()
        raise _Closed

    def _written_turn(self) -> Turn:
        turn = Turn(new_id("turn"))
        turn.mark(Mark.SPEECH_END, self._clock.now())
        return turn

    def _answer(self, turn: Turn, request: ResponseRequest, heard: str | None = None) -> None:
        self._answering.enqueue(lambda: self._make(turn, request, heard=heard))

    def _make(
        self,
        turn: Turn,
        request: ResponseRequest,
        *,
        text: str | None = None,
        heard: str | None = None,
    ) -> Answer:
        """Settings count at the moment when the answer begins."""
        settings, engines = self.settings, self._shared.engines
        language = settings.language or heard or engines.default_language
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
        )
        return Answer(
            plan,
            self._history,
            self._shared.toolbox,
            self._playout,
            ToolContext(self.conversation_id, language),
            self._clock,
            self._emit,
            self._finish_turn,
        )

    def _refuse(self, code: str, message: str) -> None:
        """A response was asked for and cannot be given: it fails, so that nobody waits for it."""
        response_id = new_id("resp")
        self._emit(ResponseCreated(response_id, self.settings.modality))
        self._emit(
            ResponseDone(
                response_id,
                "failed",
                self.settings.modality,
                error_code=code,
                error_message=message,
            )
        )

    def _cut_playout(self) -> None:
        """Stop the voice; of a complete answer, keep what was heard."""
        writer = self._playout.clear()
        if writer is None:
            return
        answer = self._answering.find_response(writer.response_id)
        if answer is None or answer.item_id is None or not answer.is_done:
            return  # a running one cuts itself short when it is cancelled
        if self._playout.paced_by == "server":
            self._history.truncate(answer.item_id, answer.heard(writer.heard_ms))
            self._emit(ItemTruncated(answer.item_id, round(writer.heard_ms)))

    def _deliver(self, response_id: str, pcm: Pcm) -> None:
        """Sound of a client-paced session goes out as events."""
        answer = self._answering.find_response(response_id)
        if answer is not None and answer.item_id is not None:
            self._emit(OutputAudio(response_id, answer.item_id, 0, pcm))

    def _finish_turn(self, turn: Turn, status: TurnStatus) -> None:
        if turn.is_traced:
            return
        turn.is_traced = True
        traced = turn.trace(status)
        for span in traced.stages:
            seconds = (span.end_ms - span.start_ms) / 1000
            self._metrics.observe("earshot_stage_seconds", seconds, stage=span.stage)
        if traced.response_latency_ms is not None:
            self._metrics.observe(
                "earshot_response_latency_seconds", traced.response_latency_ms / 1000
            )
        self._metrics.count("earshot_turns", status=status)
        self._emit(traced)

    def _emit(self, event: SessionEvent) -> None:
        if self._trace is not None:
            self._trace.write(event)
        self.events.put(event)
        self._changed.set()
