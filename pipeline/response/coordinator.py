"""The choice of which responses are made: to speech, to a client's request, or as announcements."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from core.audio import Pcm
from core.errors import Conflict, EarshotError, RequestError
from core.events import ItemTruncated, OutputAudioDelta
from core.ids import new_id
from core.items import McpApprovalResponseItem
from engines.base import AsrResult
from pipeline.conversation.conversation import Conversation
from pipeline.conversation.history import History
from pipeline.playout.barge_in import BargeIn
from pipeline.playout.playout import Playout
from pipeline.response.planner import ResponsePlanner
from pipeline.response.playback import truncate, truncate_at_playout
from pipeline.response.queue import ResponseQueue
from pipeline.response.response import Response
from pipeline.response.retraction import Retraction
from pipeline.response.speculation import Speculation
from pipeline.services import SessionServices
from pipeline.shared.outbox import SessionOutbox
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.shared.turn import Turn, TurnMark
from pipeline.tools.mcp.session_servers import SessionMcpServers
from pipeline.user_turn.continuation import Continuation
from pipeline.user_turn.events import InputActivity

BY_ITSELF = ResponseRequest()
"Request of a response that starts because the turn ended. No client asked for it."


class ResponseCoordinator:
    """Decides which responses a session makes, and when.

    It receives the events of the user's turn (`speech_started`, `supposed`, `understood` and
    others) and the client's requests (`create`, `cancel`, `truncate`). It puts responses into the
    queue `answering`, whose task `answering.run` runs them one after another.
    """

    def __init__(
        self,
        conversation: Conversation,
        surroundings: SessionServices,
        playout: Playout,
        ear: InputActivity,
        settings: Callable[[], SessionSettings],
        reporting: SessionOutbox,
        on_idle: Callable[[], None],
    ) -> None:
        self._clock = surroundings.clock
        self.answering = ResponseQueue(self._at_rest, self._clock, ear)
        self._on_idle = on_idle
        self._conversation, self._history = conversation, conversation.history
        self._playout, self._ear, self._settings = playout, ear, settings
        self._emit, self._finish_turn = reporting.emit, reporting.finish_turn
        self._used = reporting.used
        self.remote = SessionMcpServers(surroundings.remote, conversation.history, self._emit)
        self.planning = ResponsePlanner(conversation, surroundings, settings, self.remote)
        self._speculation = Speculation(surroundings.drafts, surroundings.metrics)
        self._barge_in = BargeIn(playout, surroundings.metrics, self._give_way)
        self.taking_back = Retraction(self._history, self.answering, self._clock, self._emit)
        self._wanted: ResponseRequest | None = None
        "A requested response that waits for the transcript of the audio that was just committed."
        self._unanswered: Turn | None = None
        """A user turn that has no response yet: the client must request one, or the user goes on
        speaking."""

    # Requests of clients.

    def create(self, request: ResponseRequest) -> None:
        """Makes a response that the client asks for, now or after the transcript that is under way.

        Raises Conflict conversation_already_has_active_response, Conflict
        too_many_active_responses, or RequestError.
        """
        if not self._settings().answers:
            raise RequestError("a transcription session gives no answers", code="invalid_request")
        if request.input is not None:
            request = replace(request, input=self._history.resolved(request.input))
        if request.mcp_servers is not None:
            request = replace(request, mcp_servers=self.remote.resolved(request.mcp_servers))
        if not request.in_conversation:
            self._answer_apart(request)
            return
        if self.answering.is_in_conversation or self._wanted is not None:
            raise Conflict(
                "a response is already being generated: wait for response.done, or cancel it",
                code="conversation_already_has_active_response",
            )
        if self._ear.is_transcribing:
            self._wanted = request
        else:
            self._answer(self._unanswered or self._written_turn(), request)

    def _answer_apart(self, request: ResponseRequest) -> None:
        """Makes an out-of-band response. A text response starts at once, a spoken one is queued."""
        if self.answering.is_full:
            message = "too many responses wait to be generated"
            raise Conflict(message, code="too_many_active_responses")
        self._enqueue(self._written_turn(), request)

    def cancel(self, response_id: str | None = None) -> None:
        """Cancels a response by its id. Without an id: the one of the conversation.

        Raises Conflict response_cancel_not_active.
        """
        is_next = self._wanted is not None and not self.answering.is_in_conversation
        # The response waits for a transcript. It is queued and cancelled there, so that the client
        # still gets its events: created, then done with status "cancelled".
        if self._wanted is not None and is_next and response_id is None:
            wanted, self._wanted = self._wanted, None
            self._enqueue(self._written_turn(), wanted)
        self.answering.cancel("client_cancelled", response_id)

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """Cuts an answer to its first `audio_end_ms`, because the client played no more of it.

        Raises RequestError item_not_found or invalid_value.
        """
        answer = self.answering.find(item_id)
        truncate(answer, self._history, item_id, audio_end_ms)
        self._emit(ItemTruncated(item_id, audio_end_ms))

    def decide_call(self, item: McpApprovalResponseItem) -> Callable[[], None]:
        """Stores the client's decision about an MCP call.

        Returns a function that continues the response. Call it after the decision was reported to
        the client. Raises Conflict.
        """
        take = self.remote.approvals.decide(item)

        def go_on() -> None:
            if (request := take()) is not None:
                self._enqueue(self._written_turn(), request)

        return go_on

    def say(self, text: str) -> bool:
        """Queues an announcement after what is being spoken now.

        Returns False if this session never answers, or too many announcements wait already.
        """
        if not (self._settings().answers and self.answering.may_announce):
            return False
        self._enqueue(self._written_turn(), ResponseRequest(), text=text)
        return True

    # Events of the user's turn.

    def speech_started(
        self, turn: Turn, join: Continuation | None, tasks: asyncio.TaskGroup
    ) -> None:
        """Begins to judge speech over an answer, if the session allows barge-in.

        join: the earlier utterance that this speech may continue.
        """
        settings = self._settings()
        policy = settings.interruption
        if policy is None:
            return
        if self._playout.paced_by == "client" and self._playout.is_audible:
            # such a client stops playing by itself when it gets the event "speech started"
            self._give_way()
        elif self._is_answering:
            how, asked = (policy, self.planning.language()), self._has_asked()
            self._barge_in.begin(turn, *how, is_question=asked, join=join, tasks=tasks)

    def goes_on(self, turn: Turn, words: str) -> bool:
        """Returns whether the turn replaces the earlier utterance that it continues.

        words: what the turn adds to that utterance.
        """
        is_meant = self._barge_in.ends(turn, words, is_over=not self._is_answering)
        return is_meant and self.taking_back.may(turn)

    def words_heard(self, turn: Turn, words: str) -> None:
        """Passes the transcript so far to the barge-in decision."""
        self._barge_in.words(turn, words)

    def speech_paused(self, turn: Turn) -> None:
        """Notes that the user paused; the turn may be over."""
        self._barge_in.silent(turn, is_silent=True)

    def speech_resumed(self, turn: Turn) -> None:
        """Drops the speculative response, because the user spoke on."""
        self._speculation.drop("resumed")
        self._barge_in.silent(turn, is_silent=False)

    def supposed(self, turn: Turn, result: AsrResult, tasks: asyncio.TaskGroup) -> None:
        """Begins a speculative response: the turn may be over, with this transcript."""
        self._barge_in.words(turn, result.text)
        if self._barge_in.is_open:
            tasks.create_task(self._suppose_over(turn, result, tasks), name=f"weigh-{turn.id}")
        self._draft(turn, result, tasks)

    async def _suppose_over(self, turn: Turn, result: AsrResult, tasks: asyncio.TaskGroup) -> None:
        """Does the same as `supposed` while an answer is played.

        That answer must end before another is begun.
        """
        if await self._barge_in.weigh(turn, result.text, self.planning.is_whole):
            self._draft(turn, result, tasks)

    def _draft(self, turn: Turn, result: AsrResult, tasks: asyncio.TaskGroup) -> None:
        if not (result.text and self._may_suppose()):
            return
        plan = self.planning.plan(turn, BY_ITSELF, self.planning.language(result.language))
        if plan.refusal is None:
            prompt = self.planning.prompt(plan, *self.taking_back.as_if(turn, result.text))
            self._speculation.begin(self.planning.draft(plan, prompt), tasks)

    async def weigh(self, turn: Turn, words: str) -> None:
        """Decides whether `words` interrupt the answer, before they are final."""
        await self._barge_in.weigh(turn, words, self.planning.is_whole)

    def understood(self, turn: Turn, result: AsrResult) -> None:
        """Answers a turn whose transcript is final, or drops it if it is empty or no
        interruption."""
        self.answering.heard()
        is_meant = self._barge_in.final(turn, result.text, is_over=not self._is_answering)
        if not result.text:
            self._speculation.drop("noise")
            self._finish_turn(turn, "rejected")
            nothing = "no speech was understood in the committed audio"
            self.words_known(turn, RequestError(nothing, code="no_speech"))
            return
        self._conversation.language = result.language
        if not is_meant and self._wanted is None:
            self._speculation.drop("dropped")
            self._finish_turn(turn, "transcribed")
            self.decide()
            return
        writer = self._playout.writer
        if self.taking_back.is_answered(turn, writer.response_id if writer else None):
            self._give_way()  # the client had asked for this response meanwhile
        self.put_aside()
        self._unanswered = turn
        self.decide()
        # no response was begun: it comes later with more words, or never
        if not self.answering.is_busy:
            self._speculation.drop("dropped")

    def speech_dropped(self, turn: Turn) -> None:
        """Drops the speculative response of speech that was discarded."""
        self.answering.heard()
        self._barge_in.final(turn, "")
        self._speculation.drop("dropped")

    def not_understood(self, turn: Turn, error: EarshotError) -> None:
        """Ends a turn that could not be recognised, with an apology if the user expects an
        answer."""
        self.answering.heard()
        self._barge_in.final(turn, "")
        self._speculation.drop("dropped")
        self._finish_turn(turn, "failed")
        self.words_known(turn, error)
        if self._expects_answer() and (sentence := self.planning.regret(error)):
            self.say(sentence)

    def _expects_answer(self) -> bool:
        """Returns whether the user waits for a spoken response that nothing else will give."""
        settings = self._settings()
        detection = settings.turn_detection
        by_itself = settings.answers and detection is not None and detection.create_response
        return by_itself and settings.modality == "audio" and not self.answering.is_busy

    def words_known(self, turn: Turn, error: EarshotError | None) -> None:
        """Continues after a transcript or an error. A requested response fails with the error.

        It does not fail if another transcript is there or under way.
        """
        is_wanted = self._wanted is not None and self._unanswered is None
        if error is None or not is_wanted or self._ear.is_transcribing:
            self.decide()
            return
        wanted, self._wanted = self._wanted, None
        assert wanted is not None
        self._enqueue(turn, wanted, refusal=error)

    def decide(self) -> None:
        """Makes the response that is due now, if any."""
        settings = self._settings()
        detection = settings.turn_detection
        if self._ear.is_transcribing:
            return  # more words are coming; one response takes them all
        if self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            self._answer(self._unanswered or self._written_turn(), wanted)
        elif not settings.answers or (detection and not detection.create_response):
            self.put_aside()
        elif detection is None or self._unanswered is None:
            return  # push-to-talk: the client's response.create is still to come
        elif not (self._ear.is_speaking and settings.may_interrupt):
            self._answer(self._unanswered, BY_ITSELF)

    def reconsider(self) -> None:
        """Drops the speculative response, because the settings changed and it would be different
        now."""
        self._speculation.drop("changed")

    def put_aside(self) -> None:
        """Ends the turn without a response of its own.

        The next response has its words in the history.
        """
        if self._unanswered is not None:
            self._finish_turn(self._unanswered, "transcribed")
            self._unanswered = None
            self.taking_back.finish()

    # Playout.

    def cut_playout(self) -> None:
        """Stops the voice. A finished response is cut to what was heard."""
        writer = self._playout.clear()
        answer = self.answering.find_response(writer.response_id) if writer else None
        if writer is None or answer is None or answer.item_id is None or not answer.is_done:
            return  # a response that still runs cuts itself short when it ends
        self._finish_turn(answer.turn, "cancelled")
        truncate_at_playout(answer, self._history, writer, self._playout.paced_by, self._emit)

    def close(self) -> None:
        """Ends all responses with the session."""
        self._speculation.drop("dropped")
        self._barge_in.end()
        self.put_aside()
        self.taking_back.finish()
        for answer in self.answering.close():  # a response that is being played ends with its sound
            self._finish_turn(answer.turn, "cancelled")

    def deliver(self, response_id: str, pcm: Pcm) -> None:
        """Sends sound of a client-paced session as events."""
        answer = self.answering.find_response(response_id)
        if answer is not None and answer.item_id is not None:
            self._emit(OutputAudioDelta(response_id, answer.item_id, answer.output_index, pcm))

    # Helpers.

    def _written_turn(self) -> Turn:
        turn = Turn(new_id("turn"))
        turn.mark(TurnMark.SPEECH_END, self._clock.now())
        return turn

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
            is_apart=not request.in_conversation,
            is_written=(request.modality or self._settings().modality) == "text",
            takes_all=request is BY_ITSELF,
        )

    def _make(
        self, turn: Turn, request: ResponseRequest, text: str | None, refusal: EarshotError | None
    ) -> Response:
        """Makes a queued response with the settings of this moment, when it begins."""
        self.taking_back.finish()
        plan = self.planning.final_plan(turn, request, text, refusal)
        prompt = self.planning.prompt(plan)
        draft = self._speculation.take(plan, prompt) or self.planning.draft(plan, prompt)
        history = self._history if request.in_conversation else History()
        voice = self._playout, self._clock
        answer = Response(draft, history, *voice, self._emit, self._finish_turn, self._used)
        draft.undisputed = lambda: self.taking_back.undisputed(answer)
        return answer

    def _at_rest(self) -> None:
        """Called when no response runs and none waits."""
        self.taking_back.finish()
        self._on_idle()

    def _may_suppose(self) -> bool:
        """True when no response runs, is played or waits, and the server has time for
        speculation."""
        is_free = not self.answering.is_busy and self._playout.writer is None
        is_next = self._wanted is None and not self._ear.is_transcribing
        return is_free and is_next and self.planning.may_work_ahead()

    @property
    def _is_answering(self) -> bool:
        """True when there is an answer that the user could interrupt."""
        return self.answering.is_in_conversation or self._playout.writer is not None

    def _has_asked(self) -> bool:
        """True when the answer that is being played contains a question."""
        writer = self._playout.writer
        answer = self.answering.find_response(writer.response_id) if writer else None
        return answer is not None and answer.asks

    def _give_way(self) -> None:
        """Ends the answer that is played and those that wait: the user interrupted."""
        self.answering.interrupt()
        self.cut_playout()
