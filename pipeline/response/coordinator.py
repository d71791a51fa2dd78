"""Decides which responses a session makes: to the user's speech, to a client's request, or as
announcements."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import assert_never

from core.audio import Pcm
from core.conversation.events import ItemTruncated, OutputAudioDelta
from core.conversation.ids import new_id
from core.conversation.items import McpApprovalResponseItem
from core.errors import Conflict, EarshotError, RequestError
from engines.base import AsrResult
from pipeline.conversation.conversation import Conversation
from pipeline.conversation.history import History
from pipeline.playout.barge_in import BargeIn
from pipeline.playout.playout import Playout
from pipeline.response.planner import ResponsePlanner
from pipeline.response.playback import PlaybackTracker, truncate, truncate_at_playout
from pipeline.response.queue import AUTOMATIC, QueuedResponse, ResponseQueue
from pipeline.response.response import Response
from pipeline.response.retraction import Retraction
from pipeline.response.speculation import Speculation
from pipeline.services import SessionServices
from pipeline.shared.outbox import SessionOutbox
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.shared.turn import Turn, TurnMark
from pipeline.tools.mcp.session_servers import SessionMcpServers
from pipeline.user_turn.continuation import Continuation
from pipeline.user_turn.events import (
    InputActivity,
    UserSpeechDropped,
    UserSpeechPaused,
    UserSpeechResumed,
    UserSpeechStarted,
    UserTurnAbandoned,
    UserTurnEvent,
    UserTurnFailed,
    UserTurnMaybeOver,
    UserTurnTranscribed,
    UserWordsChanged,
)


@dataclass(frozen=True, slots=True)
class SpokenQuestion:
    """A question that a program asks the user."""

    turn: Turn
    "Turn of the announcement that speaks it."
    words: asyncio.Future[str | None]
    "The user's answer; None: the session closed."


class ResponseCoordinator:
    """Decides which responses a session makes, and when.

    It implements `TurnResponder`: `UserTurnController` calls it with the events of the user's turn.
    Through `Session` the client's requests come in (`create`, `cancel`, `truncate`). Every response
    goes into `queue`; the session's task `queue.run` runs them one after another.
    """

    def __init__(
        self,
        conversation: Conversation,
        services: SessionServices,
        playout: Playout,
        playback: PlaybackTracker,
        settings: Callable[[], SessionSettings],
        input_activity: InputActivity,
        outbox: SessionOutbox,
        on_idle: Callable[[], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Takes the parts of the session. `settings`: returns the settings in force. `on_idle`:
        called when no response runs and none may begin. `tasks`: the session's group, which runs
        all work on responses."""
        self._clock, self._metrics, self._tasks = services.clock, services.metrics, tasks
        self.queue = ResponseQueue(
            self._make,
            self._drop,
            self._queue_idle,
            settings,
            self._clock,
            input_activity,
            tasks,
        )
        self._on_idle, self._playback = on_idle, playback
        self._conversation, self._history = conversation, conversation.history
        self._playout, self._input_activity, self._settings = playout, input_activity, settings
        self._emit, self._finish_turn = outbox.emit, outbox.finish_turn
        self.mcp_servers = SessionMcpServers(services.mcp_policy, conversation.history, self._emit)
        self._planner = ResponsePlanner(conversation, services, settings, self.mcp_servers)
        self._speculation = Speculation(services.drafts, services.metrics, tasks)
        self._barge_in = BargeIn(playout, services.metrics, self._interrupt, tasks)
        self._retraction = Retraction(self._history, self.queue, self._clock, self._emit)
        self._requested: ResponseRequest | None = None
        "A requested response that waits for the transcript of the audio that was just committed."
        self._unanswered: Turn | None = None
        """A user turn that has no response yet: the client must request one, or the user goes on
        speaking."""
        self._question: SpokenQuestion | None = None
        "Question of a program whose answer is awaited."

    # Requests of clients.

    def create(self, request: ResponseRequest) -> None:
        """Makes a response that the client asks for. If a transcript is still under way, the
        response begins after it.

        Raises Conflict conversation_already_has_active_response, Conflict
        too_many_active_responses, or RequestError.
        """
        if not self._settings().answers:
            raise RequestError(
                "a transcription session cannot create responses", code="invalid_request"
            )
        if request.input is not None:
            request = replace(request, input=self._history.resolved(request.input))
        if request.mcp_servers is not None:
            request = replace(request, mcp_servers=self.mcp_servers.resolved(request.mcp_servers))
        if not request.in_conversation:
            self._answer_out_of_band(request)
            return
        if self.queue.has_conversation_response or self._requested is not None:
            raise Conflict(
                "a response is already being generated: wait for response.done, or cancel it",
                code="conversation_already_has_active_response",
            )
        if self._input_activity.is_transcribing:
            self._requested = request
        else:
            self._answer(self._unanswered or self._written_turn(), request)

    def _answer_out_of_band(self, request: ResponseRequest) -> None:
        """Makes an out-of-band response. A text response starts at once, a spoken one is queued."""
        if self.queue.is_full:
            message = "too many responses wait to be generated"
            raise Conflict(message, code="too_many_active_responses")
        self.queue.enqueue(self._written_turn(), request)

    def cancel(self, response_id: str | None = None) -> None:
        """Cancels a response by its id. Without an id: the one of the conversation.

        Raises Conflict response_cancel_not_active.
        """
        request = self._requested
        is_next = response_id is None and not self.queue.has_conversation_response
        if request is not None and is_next:
            # The response waits for a transcript. It is queued and cancelled there, so that the
            # client still gets its events: created, then done with status "cancelled".
            self._requested = None
            self.queue.enqueue(self._written_turn(), request)
        self.queue.cancel("client_cancelled", response_id)

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """Cuts an answer to its first `audio_end_ms`, because the client played no more of it.

        Raises RequestError item_not_found or invalid_value.
        """
        response = self.queue.find(item_id)
        truncate(response, self._history, item_id, audio_end_ms)
        self._emit(ItemTruncated(item_id, audio_end_ms))

    def decide_call(self, item: McpApprovalResponseItem) -> Callable[[], None]:
        """Stores the client's decision about an MCP call (approved or denied).

        Returns a function that queues the response which continues the call. Call it after the
        decision was reported to the client. Raises Conflict.
        """
        take_request = self.mcp_servers.approvals.decide(item)

        def continue_response() -> None:
            if (request := take_request()) is not None:
                self.queue.enqueue(self._written_turn(), request)

        return continue_response

    def say(self, text: str, voice: str = "", language: str = "") -> bool:
        """Queues an announcement after what is being spoken now. voice, language (ISO 639-1): those
        of the session if they are empty.

        Returns False if this session never answers, or too many announcements wait already.
        """
        if not self._may_announce:
            return False
        request = ResponseRequest(voice=voice or None, text_language=language or None)
        self.queue.enqueue(self._written_turn(), request, text=text)
        return True

    async def ask(self, question: str) -> str | None:
        """Speaks a question and returns the words that the user says after it. The assistant does
        not respond to them. Waits until it is cancelled.

        Returns None if another question waits, if the session cannot speak, or when it closes.
        """
        if self._question is not None or not self._may_announce:
            return None
        turn = self._written_turn()
        asked = SpokenQuestion(turn, asyncio.get_running_loop().create_future())
        self.queue.enqueue(turn, ResponseRequest(), text=question)
        self._question = asked
        try:
            return await asked.words
        finally:
            self._question = None

    # Implementation of `TurnResponder`.

    def handle(self, event: UserTurnEvent) -> None:
        """Handles an event of the user's turn before it returns."""
        match event:
            case UserSpeechStarted(turn=turn, continuation=continuation):
                self._speech_started(turn, continuation)
            case UserWordsChanged(turn=turn, words=words):
                self._barge_in.words(turn, words)
            case UserSpeechPaused(turn=turn):
                self._barge_in.speech_paused_or_resumed(turn, is_silent=True)
            case UserSpeechResumed(turn=turn):
                self._speculation.drop("resumed")
                self._barge_in.speech_paused_or_resumed(turn, is_silent=False)
            case UserTurnMaybeOver(turn=turn, result=result):
                self._barge_in.words(turn, result.text)
                if self._barge_in.is_open:
                    # While an answer is played, `_draft` below does nothing. This task begins the
                    # draft if the words interrupt that answer.
                    work = self._draft_unless_interrupted(turn, result)
                    self._tasks.create_task(work, name=f"interruption-{turn.id}")
                self._draft(turn, result)
            case UserSpeechDropped(turn=turn):
                self.queue.wake()
                self._barge_in.final(turn, "")
                self._speculation.drop("dropped")
            case UserTurnTranscribed(turn=turn, result=result):
                self._transcribed(turn, result)
            case UserTurnFailed(turn=turn, error=error):
                self._not_transcribed(turn, error)
            case UserTurnAbandoned(turn=turn):
                self._finish_turn(turn, "cancelled")
            case _:
                assert_never(event)

    def may_continue(self, turn: Turn) -> bool:
        """Returns whether new speech may continue this turn. It may not while only a wake word or a
        stop word can stop the answer."""
        return not self.ends_only_by_word and self._retraction.is_open(turn)

    def replaces_former(self, turn: Turn, words: str) -> bool:
        """Returns whether the turn replaces the earlier utterance that it continues.

        words: what the turn adds to that utterance.
        """
        is_interruption = self._barge_in.would_end(
            turn, words, is_over=not self._has_interruptible_answer
        )
        return is_interruption and self._retraction.may_replace(turn)

    async def is_command(self, words: str, language: str) -> bool | None:
        """Returns whether the words are a complete command; None: unknown. Raises EngineError."""
        return await self._planner.is_command(words, language)

    async def is_unfinished_command(self, words: str, language: str) -> bool | None:
        """See `ResponsePlanner.is_unfinished_command`."""
        return await self._planner.is_unfinished_command(words, language)

    async def check_interruption(self, turn: Turn, words: str) -> None:
        """Decides whether `words` interrupt the answer, before they are final."""
        await self._barge_in.check_interruption(turn, words, self._planner.is_command)

    def _speech_started(self, turn: Turn, continuation: Continuation | None) -> None:
        """Begins to judge whether speech over an answer is an interruption, if the session allows
        barge-in.

        continuation: the earlier utterance that this speech may continue.
        """
        settings = self._settings()
        if continuation is not None:
            self._retraction.begin(turn, continuation)
        if settings.may_interrupt:
            self._playback.client_stopped()
        policy = settings.interruption
        if policy is None:
            return
        if policy == "wake_word" and not self.ends_only_by_word:
            policy = "on"
        if self._playout.paced_by == "client" and self._playout.is_audible:
            # such a client stops playing by itself when it gets the event "speech started"
            self._interrupt()
        elif self._has_interruptible_answer:
            self._barge_in.begin(
                turn,
                policy,
                self._planner.language(),
                is_question=self._is_playing_question(),
                continuation=continuation,
            )

    @property
    def ends_only_by_word(self) -> bool:
        """True while an answer sounds that only a wake word or a stop word ends. Before its first
        sound any speech ends it. A client that plays the sound itself stops it at any speech."""
        return (
            self._settings().interruption == "wake_word"
            and self._playout.paced_by == "server"
            and self._playout.is_audible
        )

    async def _draft_unless_interrupted(self, turn: Turn, result: AsrResult) -> None:
        """Checks whether the words interrupt the answer that is being played. If so, begins a
        speculative response as `_draft` does."""
        if await self._barge_in.check_interruption(turn, result.text, self._planner.is_command):
            self._draft(turn, result)

    def _draft(self, turn: Turn, result: AsrResult) -> None:
        """Begins a speculative response: the turn may be over, with this transcript."""
        if not (result.text and self._may_speculate()) or self._answered_question is not None:
            return
        if self._barge_in.is_only_stop(turn, result.text):
            return
        plan = self._planner.plan(turn, AUTOMATIC, detected=result.language)
        if plan.refusal is None:
            prompt = self._planner.prompt(
                plan, *self._retraction.transcript_if_final(turn, result.text)
            )
            draft = self._planner.draft(plan, prompt, self._speculation.give_up)
            self._speculation.begin(draft)

    def _transcribed(self, turn: Turn, result: AsrResult) -> None:
        """Answers a turn whose transcript is final, or drops it if it is empty or no
        interruption."""
        self.queue.wake()
        if (outcome := self._retraction.outcome(turn, result.text)) is not None:
            self._metrics.count("earshot_turns_continued", outcome=outcome)
        is_interruption = self._barge_in.final(
            turn, result.text, is_over=not self._has_interruptible_answer
        )
        if not result.text:
            self._speculation.drop("noise")
            self._finish_turn(turn, "rejected")
            nothing = "no speech was understood in the committed audio"
            self.transcript_known(turn, RequestError(nothing, code="no_speech"))
            return
        self._conversation.language = result.language
        if (question := self._answered_question) is not None:
            self._take_answer(question, turn, result.text)
            return
        if not is_interruption and self._requested is None:
            self._speculation.drop("dropped")
            self._finish_turn(turn, "transcribed")
            self.decide()
            return
        writer = self._playout.writer
        if self._retraction.is_former_response_active(turn, writer.response_id if writer else None):
            self._interrupt()  # the client had asked for this response meanwhile
        self.finish_without_response()
        self._unanswered = turn
        self.decide()
        # No response was begun, for example because the user is speaking again. The next one will
        # have another prompt, so the draft is of no use.
        if not self.queue.has_response:
            self._speculation.drop("dropped")

    def _take_answer(self, question: SpokenQuestion, turn: Turn, words: str) -> None:
        """Gives the user's words to the program that asked. The assistant does not answer them."""
        question.words.set_result(words)
        self._speculation.drop("dropped")
        if self._requested is not None:  # push-to-talk: its client asked for a response
            with suppress(Conflict):
                self.cancel()
        self.finish_without_response()
        self._unanswered = turn
        self.finish_without_response()
        self.decide()

    def _not_transcribed(self, turn: Turn, error: EarshotError) -> None:
        """Ends a turn that could not be recognised, with an apology if the user expects an
        answer."""
        self.queue.wake()
        self._barge_in.final(turn, "")
        self._speculation.drop("dropped")
        self._finish_turn(turn, "failed")
        self.transcript_known(turn, error)
        if self._expects_answer() and (sentence := self._planner.apology(error)):
            self.say(sentence)

    def _expects_answer(self) -> bool:
        """Returns whether the user waits for a spoken response that nothing else will give."""
        settings = self._settings()
        detection = settings.turn_detection
        is_automatic = settings.answers and detection is not None and detection.create_response
        return is_automatic and settings.modality == "audio" and not self.queue.has_response

    def transcript_known(self, turn: Turn, error: EarshotError | None) -> None:
        """Continues after the transcript of an utterance or of an added item, or after its error.

        A response that the client requested meanwhile fails with the error. It is made after all if
        there is another transcript that it can answer, or if one is under way.
        """
        is_requested = self._requested is not None and self._unanswered is None
        if error is None or not is_requested or self._input_activity.is_transcribing:
            self.decide()
            return
        request, self._requested = self._requested, None
        assert request is not None
        self.queue.enqueue(turn, request, refusal=error)

    def decide(self) -> None:
        """Makes the response that is due now, if any."""
        settings = self._settings()
        detection = settings.turn_detection
        if self._input_activity.is_transcribing:
            return  # more words are coming; one response answers all of them
        if self._requested is not None:
            request, self._requested = self._requested, None
            self._answer(self._unanswered or self._written_turn(), request)
        elif not settings.answers or (detection and not detection.create_response):
            self.finish_without_response()
        elif detection is None or self._unanswered is None:
            return  # push-to-talk: the client's response.create is still to come
        # If the user speaks again, the response waits and answers that speech, too.
        elif not (self._input_activity.is_speaking and settings.may_interrupt):
            self._answer(self._unanswered, AUTOMATIC)

    def settings_changed(self) -> None:
        """Drops the speculative response, because the settings changed and it would be different
        now."""
        self._speculation.drop("changed")

    def finish_without_response(self) -> None:
        """Ends the unanswered turn without a response of its own.

        Its words stay in the history, so the next response takes them into account.
        """
        if self._unanswered is not None:
            self._finish_turn(self._unanswered, "transcribed")
            self._unanswered = None
            self._retraction.finish()

    # Wake words and stop words.

    def wake_word_detected(self) -> None:
        """Ends the answer that sounds: the user said the wake word over it and speaks next."""
        self._barge_in.end_by_wake_word(self._planner.language())

    def stop_word_detected(self) -> None:
        """Ends the answer that sounds: the user said a stop word over it, and nothing follows."""
        self._barge_in.end_by_stop_word()

    # Playout.

    def cut_playout(self) -> None:
        """Stops the voice. A finished response is cut to what was heard."""
        writer = self._playout.clear()
        response = self.queue.find_response(writer.response_id) if writer else None
        if writer is None or response is None or response.item_id is None or not response.is_done:
            return  # a response that still runs cuts itself short when it ends
        self._finish_turn(response.turn, "cancelled")
        truncate_at_playout(response, self._history, writer, self._playout.paced_by, self._emit)

    def close(self) -> None:
        """Ends all responses with the session."""
        if self._question is not None and not self._question.words.done():
            self._question.words.set_result(None)
        self._speculation.drop("dropped")
        self._barge_in.end()
        self.finish_without_response()
        self._retraction.finish()
        # a turn whose sound is playing is already "answered" and keeps that status
        for response in self.queue.close():
            self._finish_turn(response.turn, "cancelled")

    def deliver(self, response_id: str, pcm: Pcm) -> None:
        """Sends a piece of a response's sound to the client as an event, in a client-paced
        session."""
        response = self.queue.find_response(response_id)
        if response is not None and response.item_id is not None:
            self._emit(OutputAudioDelta(response_id, response.item_id, response.output_index, pcm))

    # Helpers.

    @property
    def _may_announce(self) -> bool:
        """True if this session answers, and not too many announcements wait."""
        return self._settings().answers and self.queue.may_announce

    @property
    def _answered_question(self) -> SpokenQuestion | None:
        """Question that the user's next words answer: it is being spoken, or was spoken."""
        question = self._question
        if question is None or question.words.done() or self.queue.is_waiting(question.turn):
            return None
        return question

    def _written_turn(self) -> Turn:
        turn = Turn(new_id("turn"))
        turn.mark(TurnMark.SPEECH_END, self._clock.now())
        return turn

    def _answer(self, turn: Turn, request: ResponseRequest) -> None:
        self._unanswered = None
        self.queue.enqueue(turn, request)

    def _drop(self, turn: Turn) -> None:
        self._finish_turn(turn, "cancelled")

    def _make(self, queued: QueuedResponse) -> Response:
        """Makes a queued response with the settings of this moment, when it begins."""
        self._retraction.finish()
        request = queued.request
        plan = self._planner.final_plan(queued.turn, request, queued.text, queued.refusal)
        prompt = self._planner.prompt(plan)
        draft = self._speculation.take(plan, prompt) or self._planner.draft(plan, prompt)
        history = self._history if request.in_conversation else History()
        return Response(
            draft,
            history,
            self._playout,
            self._clock,
            self._emit,
            self._finish_turn,
            self._retraction.wait_until_settled,
        )

    def _queue_idle(self) -> None:
        """Called when no response runs and none waits."""
        self._retraction.finish()
        self._on_idle()

    def _may_speculate(self) -> bool:
        """True when no response runs, is played or waits, and the server has time for
        speculation."""
        is_free = not self.queue.has_response and self._playout.writer is None
        is_next = self._requested is None and not self._input_activity.is_transcribing
        return is_free and is_next and self._planner.allows_speculation()

    @property
    def _has_interruptible_answer(self) -> bool:
        """True when there is an answer that the user could interrupt."""
        return self.queue.has_conversation_response or self._playout.writer is not None

    def _is_playing_question(self) -> bool:
        """True when the answer that is being played contains a question."""
        writer = self._playout.writer
        response = self.queue.find_response(writer.response_id) if writer else None
        return response is not None and response.contains_question

    def _interrupt(self) -> None:
        """Ends the answer that is played and those that wait: the user interrupted."""
        self.queue.interrupt()
        self.cut_playout()
