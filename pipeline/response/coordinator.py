"""Which answers are given: to what was heard, to what was asked for, and what is said unasked."""

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
"Nobody asked for it but the turn's end."


class ResponseCoordinator:
    """One session's side that answers. `answering.run` gives the answers this one orders."""

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
        "A response that waits for the words of the audio that was just committed."
        self._unanswered: Turn | None = None
        "Words without an answer yet: the client has to ask for it, or the user goes on speaking."

    # What clients ask for.

    def create(self, request: ResponseRequest) -> None:
        """Raises Conflict conversation_already_has_active_response, RequestError."""
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
        """Out of band: written, it is given at once; spoken, after those before it."""
        if self.answering.is_full:
            message = "too many responses wait to be generated"
            raise Conflict(message, code="too_many_active_responses")
        self._enqueue(self._written_turn(), request)

    def cancel(self, response_id: str | None = None) -> None:
        """Raises Conflict response_cancel_not_active."""
        is_next = self._wanted is not None and not self.answering.is_in_conversation
        if self._wanted is not None and is_next and response_id is None:
            wanted, self._wanted = self._wanted, None
            self._enqueue(self._written_turn(), wanted)
        self.answering.cancel("client_cancelled", response_id)

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """Raises RequestError item_not_found, invalid_value."""
        answer = self.answering.find(item_id)
        truncate(answer, self._history, item_id, audio_end_ms)
        self._emit(ItemTruncated(item_id, audio_end_ms))

    def decide_call(self, item: McpApprovalResponseItem) -> Callable[[], None]:
        """The client allowed a call or not; returns what goes on with it, once that is told. Raises
        Conflict."""
        take = self.remote.approvals.decide(item)

        def go_on() -> None:
            if (request := take()) is not None:
                self._enqueue(self._written_turn(), request)

        return go_on

    def say(self, text: str) -> bool:
        """Announce something, after what is being said. False: this session never answers, or has
        too much to announce already."""
        if not (self._settings().answers and self.answering.may_announce):
            return False
        self._enqueue(self._written_turn(), ResponseRequest(), text=text)
        return True

    # What is heard.

    def speech_started(
        self, turn: Turn, join: Continuation | None, tasks: asyncio.TaskGroup
    ) -> None:
        """The user speaks over the answer, if the session lets them."""
        settings = self._settings()
        policy = settings.interruption
        if policy is None:
            return
        if self._playout.paced_by == "client" and self._playout.is_audible:
            self._give_way()  # such a client falls silent by itself when it hears of speech
        elif self._is_answering:
            how, asked = (policy, self.planning.language()), self._has_asked()
            self._barge_in.begin(turn, *how, is_question=asked, join=join, tasks=tasks)

    def goes_on(self, turn: Turn, words: str) -> bool:
        """Whether it takes the place of what it is joined to, to which it adds these words."""
        is_meant = self._barge_in.ends(turn, words, is_over=not self._is_answering)
        return is_meant and self.taking_back.may(turn)

    def words_heard(self, turn: Turn, words: str) -> None:
        self._barge_in.words(turn, words)

    def speech_paused(self, turn: Turn) -> None:
        self._barge_in.silent(turn, is_silent=True)

    def speech_resumed(self, turn: Turn) -> None:
        self._speculation.drop("resumed")
        self._barge_in.silent(turn, is_silent=False)

    def supposed(self, turn: Turn, result: AsrResult, tasks: asyncio.TaskGroup) -> None:
        """The turn may be over, with these words: begin the answer, for nobody's ears yet."""
        self._barge_in.words(turn, result.text)
        if self._barge_in.is_open:
            tasks.create_task(self._suppose_over(turn, result, tasks), name=f"weigh-{turn.id}")
        self._draft(turn, result, tasks)

    async def _suppose_over(self, turn: Turn, result: AsrResult, tasks: asyncio.TaskGroup) -> None:
        """The same over an answer, which must end before another is begun."""
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
        await self._barge_in.weigh(turn, words, self.planning.is_whole)

    def understood(self, turn: Turn, result: AsrResult) -> None:
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
            self._give_way()  # the client had asked for it meanwhile
        self.put_aside()
        self._unanswered = turn
        self.decide()
        if not self.answering.is_busy:  # it is answered later, with more words, or never
            self._speculation.drop("dropped")

    def speech_dropped(self, turn: Turn) -> None:
        self.answering.heard()
        self._barge_in.final(turn, "")
        self._speculation.drop("dropped")

    def not_understood(self, turn: Turn, error: EarshotError) -> None:
        self.answering.heard()
        self._barge_in.final(turn, "")
        self._speculation.drop("dropped")
        self._finish_turn(turn, "failed")
        self.words_known(turn, error)
        if self._expects_answer() and (sentence := self.planning.regret(error)):
            self.say(sentence)

    def _expects_answer(self) -> bool:
        """Who has just spoken waits for a voice that answers by itself, and hears nothing yet."""
        settings = self._settings()
        detection = settings.turn_detection
        by_itself = settings.answers and detection is not None and detection.create_response
        return by_itself and settings.modality == "audio" and not self.answering.is_busy

    def words_known(self, turn: Turn, error: EarshotError | None) -> None:
        """With an error there are none: a response that waits fails, unless others came."""
        is_wanted = self._wanted is not None and self._unanswered is None
        if error is None or not is_wanted or self._ear.is_transcribing:
            self.decide()
            return
        wanted, self._wanted = self._wanted, None
        assert wanted is not None
        self._enqueue(turn, wanted, refusal=error)

    def decide(self) -> None:
        """Answer what was understood, if its moment has come."""
        settings = self._settings()
        detection = settings.turn_detection
        if self._ear.is_transcribing:
            return  # more words are on their way; one answer takes all
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
        """The settings change, and with them what would be answered."""
        self._speculation.drop("changed")

    def put_aside(self) -> None:
        """Words that get no answer of their own; the next answer knows them from the history."""
        if self._unanswered is not None:
            self._finish_turn(self._unanswered, "transcribed")
            self._unanswered = None
            self.taking_back.finish()

    # What is played.

    def cut_playout(self) -> None:
        """Stop the voice; of a complete answer, keep what was heard."""
        writer = self._playout.clear()
        answer = self.answering.find_response(writer.response_id) if writer else None
        if writer is None or answer is None or answer.item_id is None or not answer.is_done:
            return  # a running one cuts itself short when it ends
        self._finish_turn(answer.turn, "cancelled")
        truncate_at_playout(answer, self._history, writer, self._playout.paced_by, self._emit)

    def close(self) -> None:
        """The session is over."""
        self._speculation.drop("dropped")
        self._barge_in.end()
        self.put_aside()
        self.taking_back.finish()
        for answer in self.answering.close():  # one that is heard ends with its sound
            self._finish_turn(answer.turn, "cancelled")

    def deliver(self, response_id: str, pcm: Pcm) -> None:
        """Sound of a client-paced session goes out as events."""
        answer = self.answering.find_response(response_id)
        if answer is not None and answer.item_id is not None:
            self._emit(OutputAudioDelta(response_id, answer.item_id, answer.output_index, pcm))

    # Within.

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
        """Settings count at the moment when the answer begins."""
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
        """Nothing is being answered, and nothing waits."""
        self.taking_back.finish()
        self._on_idle()

    def _may_suppose(self) -> bool:
        """Nothing else is being answered or waits to be."""
        is_free = not self.answering.is_busy and self._playout.writer is None
        is_next = self._wanted is None and not self._ear.is_transcribing
        return is_free and is_next and self.planning.may_work_ahead()

    @property
    def _is_answering(self) -> bool:
        """There is something that a user could interrupt."""
        return self.answering.is_in_conversation or self._playout.writer is not None

    def _has_asked(self) -> bool:
        """The answer that is being given has put a question."""
        writer = self._playout.writer
        answer = self.answering.find_response(writer.response_id) if writer else None
        return answer is not None and answer.asks

    def _give_way(self) -> None:
        """The user interrupts: what is said and what waits to be is out of date."""
        self.answering.interrupt()
        self.cut_playout()
