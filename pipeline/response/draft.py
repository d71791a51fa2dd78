"""A response in the making: its text and its sound, before any of it leaves the server.

A draft may begin while the user's turn is only probably over. Until it is confirmed, nothing leaves
it, no tool changes anything, and no more than the first clause is spoken.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass

from core.conversation.items import Item
from core.conversation.usage import RateLimits, TokenUsage
from core.errors import EarshotError, EngineError, expected_failure
from core.ports import ToolContext
from engines.base import CallDelta, Message, ToolCall
from pipeline.response.generation import TextGeneration
from pipeline.response.plan import ResponsePlan
from pipeline.services import SessionServices
from pipeline.shared.turn import TurnMark
from pipeline.shared.work_time import WorkTime
from pipeline.speech.language.clause_language import in_own_languages
from pipeline.speech.synthesis import (
    ClauseQueue,
    SpeechOutput,
    SpeechPlan,
    SpeechStep,
    SpeechSynthesis,
    SpokenClause,
    speak_sentence,
)
from pipeline.speech.voices import choose_voice
from pipeline.tools.calls.rounds import ToolAccess
from pipeline.tools.fillers import Fillers
from pipeline.tools.mcp.call_steps import McpCallStep
from serving.scheduling.llm_slots import SlotHolder

MAX_WAITING_TEXTS = 1024
"Most text deltas of an unconfirmed draft: more than a model writes in any pause of a user."
BROKEN_OFF = " … "
"Separator between an answer that its model did not finish and the apology."
MAX_WAITING_SOUNDS = 32
"""Largest number of frames of sound that wait: some seconds of the first clause. At this number the
voice pauses."""


@dataclass(frozen=True, slots=True)
class DraftRecipient:
    """Functions of the response that delivers a confirmed draft; the draft reports to them."""

    record: Callable[[Item], None]
    "Called with each internal item: a call of a server's tool, or its result."
    mark: Callable[[TurnMark, float], None]
    "Sets a mark of the turn, in monotonic seconds."
    wait_until_settled: Callable[[], Awaitable[object]]
    """Awaited before a tool changes anything, because the user may be going on with the sentence.
    See `Retraction.wait_until_settled`."""


class ResponseDraft:
    """The making of one response: generation and speech synthesis in a task, results in queues.

    `texts`, `sounds` and `call_deltas` each end with None, unless the draft fails. Then
    `wait_until_made` raises the error.

        draft = planner.draft(plan, prompt)
        draft.begin(tasks)             # speculative: nothing leaves it
        draft.confirm(recipient)       # the turn is over: the rest may be made
        await draft.wait_until_made()  # or, if the user went on: draft.cancel()
    """

    def __init__(
        self,
        plan: ResponsePlan,
        prompt: Sequence[Message],
        context: ToolContext,
        services: SessionServices,
        fillers: Fillers,
        give_up: Callable[[], None] | None = None,
    ) -> None:
        """Creates a draft that has not begun.

        context: context of its tool calls.
        give_up: cancels the draft when its slot of the language model is needed for an answer that
        a user waits for. None: a user waits for this one.
        """
        self.plan, self.prompt = plan, tuple(prompt)
        self.texts: asyncio.Queue[str | None] = asyncio.Queue(MAX_WAITING_TEXTS)
        self.sounds: asyncio.Queue[SpeechOutput | None] = asyncio.Queue(MAX_WAITING_SOUNDS)
        self.usage = TokenUsage()
        "Tokens of all rounds of the language model so far."
        self._rate_limits: tuple[RateLimits, float] | None = None
        "Rate limits of the model's server, and when they were received (monotonic seconds)."
        self.calls: list[ToolCall] = []
        "Tool calls for the client, complete when `texts` ends."
        self.call_deltas: asyncio.Queue[CallDelta | McpCallStep | None] = asyncio.Queue()
        """Tool calls for the client while they are written, and the steps of MCP calls. Ends with
        None, as `texts` does. Not bounded: the engines limit what they write."""
        self.hit_limit = False
        "True when the model reached `max_output_tokens` before it was done."
        self._marks: dict[TurnMark, float] = {}
        "Marks set before the confirmation. Later ones go to the recipient."
        self.has_acted = False
        "True when a tool that changes something was called."
        self.apology_for: EarshotError | None = None
        """Error of a draft that failed and for which an apology was made, in place of the answer or
        after its first part."""
        self._toolbox, self._context, self._fillers = services.toolbox, context, fillers
        self._clock, self._metrics = services.clock, services.metrics
        self._voices, self._languages = services.engines.tts, services.languages
        self._slots = services.drafts.slots(plan.llm)
        self._slot_holder = SlotHolder(give_up)
        self.work = WorkTime(services.clock)
        self._is_confirmed = asyncio.Event()
        self._recipient: DraftRecipient | None = None
        "None until the draft is confirmed."
        is_spoken = plan.modality == "audio"
        self._clauses = ClauseQueue(plan.language) if is_spoken else None
        "Clauses for the voice. None for a text response."
        self._has_spoken = False
        "True once the voice has taken the first clause."
        self._recorded: list[Item] = []
        "Internal items made before the confirmation."
        self._task: asyncio.Task[None] | None = None
        "Task that makes the draft. None until `begin`."
        self._error: EarshotError | None = None
        "Error that the draft failed with. None: it has not failed."

    @property
    def has_failed(self) -> bool:
        """True once the draft ended with an error."""
        return self._error is not None

    @property
    def rate_limits(self) -> RateLimits | None:
        """Newest rate limits that the model's server sent, brought up to date for the time since.
        None: it sent none."""
        if self._rate_limits is None:
            return None
        limits, received_at = self._rate_limits
        return limits.after(self._clock.now() - received_at)

    @property
    def is_free_to_begin(self) -> bool:
        """True if the language model has a slot for a draft that no user waits for."""
        return self._slots.is_free_for_draft

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Starts the work in a task. Only the first call has an effect."""
        if self._task is None:
            self._task = tasks.create_task(self._run(), name=f"draft-{self.plan.turn.id}")

    def adopt(self) -> None:
        """Notes that a user waits for this draft from now on."""
        self._slots.adopt(self._slot_holder)

    def confirm(self, recipient: DraftRecipient) -> None:
        """Lets the draft make all of the response: the turn is over.

        The items and marks that the draft has made already are passed to `recipient` at once.
        """
        for mark, at_s in self._marks.items():
            recipient.mark(mark, at_s)
        for item in self._recorded:
            recipient.record(item)
        self._recipient = recipient
        self._is_confirmed.set()

    async def wait_until_made(self) -> None:
        """Waits until the draft has ended. Raises the error that it failed with."""
        assert self._task is not None
        await asyncio.wait([self._task])
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Stops the work and closes every request to an engine."""
        self._slot_holder.is_over = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._generate())
                if self._clauses is not None:
                    tasks.create_task(self._speak(self._clauses))
        except BaseExceptionGroup as group:
            error = expected_failure(group)
            if error is None:
                raise
            if not (_is_of_voice(error) and await self._apologise_by_fallback_voice(error)):
                self._error = error
                return
        self.call_deltas.put_nowait(None)
        await self.texts.put(None)
        await self.sounds.put(None)

    async def _generate(self) -> None:
        """Makes the text, and hands it piece by piece to the client and to the voice."""
        generation = TextGeneration(
            self.plan, self.prompt, self._tool_access(), self._llm_slot, self._metrics
        )
        has_begun = False
        with self.work.busy("text"):
            try:
                async with aclosing(generation.stream()) as deltas:
                    async for delta in deltas:
                        if not isinstance(delta, str):
                            await self._take(delta)
                        elif delta:
                            has_begun = True
                            self._mark(TurnMark.LLM_FIRST_TOKEN)
                            await self._add_text(delta)
            except EarshotError as exc:
                sentence = self._apology(exc)
                if sentence is None:
                    raise
                self.apology_for = exc
                await self._add_text(f"{BROKEN_OFF}{sentence}" if has_begun else sentence)
        if self._clauses is not None:
            await self._clauses.finish()

    def _apology(self, error: EarshotError) -> str | None:
        """Returns the apology that the user hears in place of an answer, or after its first part.

        None where nobody listens: for a text response, and for a draft that is not confirmed.
        """
        if self._clauses is None or not self._is_confirmed.is_set():
            return None
        return self._fillers.apology(error, self.plan.language)

    async def _add_text(self, text: str) -> None:
        """Adds text for the client, and for the voice if there is one. Waits while they lag."""
        with self.work.waiting("text"):
            await self.texts.put(text)
            if self._clauses is not None:
                await self._clauses.push(text)

    def _say_filler(self, sentence: str) -> bool:
        """Inserts a filler, if the user would hear nothing else. Returns False if not."""
        if self._clauses is None:
            return True  # a text needs no fillers
        is_silent = self._is_confirmed.is_set() and self._clauses.is_empty
        if not is_silent or self.texts.full():
            return False
        self.texts.put_nowait(sentence + " ")
        self._clauses.interject(sentence)
        return True

    async def _take(self, delta: TokenUsage | RateLimits | CallDelta | ToolCall) -> None:
        """Keeps what the generation yields besides text."""
        match delta:
            case TokenUsage():
                self._count_tokens(delta)
            case RateLimits():
                self._rate_limits = delta, self._clock.now()
            case CallDelta():
                self.call_deltas.put_nowait(delta)
            case ToolCall():
                # an unconfirmed draft hands its calls out later
                if self._recipient is not None:
                    await self._recipient.wait_until_settled()
                self.calls.append(delta)

    def _tool_access(self) -> ToolAccess:
        return ToolAccess(
            self._toolbox,
            self._context,
            self._may_act,
            self._remember,
            self._fillers,
            self._say_filler,
            self.call_deltas.put_nowait,
        )

    async def _speak(self, clauses: ClauseQueue) -> None:
        """Makes the sound of the clauses, with the times of their words."""
        steps: AsyncGenerator[SpeechStep, None] = clauses.clauses()
        if self._languages is not None:
            steps = in_own_languages(
                steps, self.plan.language, self._languages, self._speech_in_language
            )
        synthesis = SpeechSynthesis(
            self.plan.speech, steps, self._metrics, self._spoken_clause, has_words=True
        )
        async with aclosing(synthesis.stream()) as sounds:
            async for pcm in sounds:
                self._mark(TurnMark.TTS_FIRST_AUDIO)
                for word in synthesis.take_words():
                    await self._add_sound(word)
                await self._add_sound(pcm)
        for word in synthesis.take_words():
            await self._add_sound(word)

    def _speech_in_language(self, language: str) -> SpeechPlan:
        """Returns how a clause in another language is spoken. Raises RequestError."""
        choice = choose_voice(self._voices, language, self.plan.voice)
        return SpeechPlan(choice.tts, language, choice.voice, self.plan.speed)

    @asynccontextmanager
    async def _spoken_clause(self, clause: str) -> AsyncIterator[None]:
        """Is open while the voice speaks a clause. The second one waits for the confirmation."""
        if self._has_spoken:
            await self._is_confirmed.wait()
        self._has_spoken = True
        self._mark(TurnMark.FIRST_CLAUSE)
        await self.sounds.put(SpokenClause(clause))
        with self.work.busy("voice"):
            yield

    async def _add_sound(self, sound: SpeechOutput) -> None:
        """Adds sound for the client. Waits while the client has enough of it."""
        if self.sounds.full():
            with self.work.waiting("voice"):
                await self.sounds.put(sound)
        else:
            self.sounds.put_nowait(sound)

    async def _apologise_by_fallback_voice(self, error: EarshotError) -> bool:
        """Speaks an apology with another engine's voice.

        Returns False if there is none or it fails.
        """
        fallback = self.plan.fallback_voice
        if fallback is None or (sentence := self._apology(error)) is None:
            return False
        try:
            plan = SpeechPlan(fallback.tts, self.plan.language, fallback.voice)
            pcm = await speak_sentence(plan, sentence, self.plan.tts.info.rate_hz, self._metrics)
        except EarshotError:
            return False
        self.apology_for = error
        await self.texts.put(f"{BROKEN_OFF}{sentence}")
        await self.sounds.put(SpokenClause(sentence))
        await self.sounds.put(pcm)
        return True

    @asynccontextmanager
    async def _llm_slot(self) -> AsyncIterator[None]:
        """Holds an LLM slot for one round. Waiting for the slot does not count as work."""
        async with AsyncExitStack() as stack:
            with self.work.waiting("text"):
                await stack.enter_async_context(self._slots.take(self._slot_holder))
            yield

    def _count_tokens(self, round_: TokenUsage) -> None:
        """Adds the tokens of one round of the language model."""
        limit = self.plan.options.max_output_tokens
        self.hit_limit = limit is not None and round_.output_tokens >= limit
        self._metrics.count("earshot_llm_tokens", round_.input_tokens, kind="input")
        self._metrics.count("earshot_llm_tokens", round_.output_tokens, kind="output")
        self.usage = TokenUsage(
            self.usage.input_tokens + round_.input_tokens,
            self.usage.output_tokens + round_.output_tokens,
            self.usage.cached_tokens + round_.cached_tokens,
        )

    async def _may_act(self) -> None:
        """Waits until a tool may change something: the turn is over, and the user does not go on
        with the sentence."""
        with self.work.waiting("text"):
            await self._is_confirmed.wait()
        assert self._recipient is not None
        await self._recipient.wait_until_settled()
        self.has_acted = True

    def _remember(self, item: Item) -> None:
        """Passes an internal item to the recipient, or keeps it until there is one."""
        if self._recipient is None:
            self._recorded.append(item)
        else:
            self._recipient.record(item)

    def _mark(self, mark: TurnMark) -> None:
        """Sets a mark of the turn to now, or keeps it until there is a recipient."""
        if self._recipient is None:
            self._marks.setdefault(mark, self._clock.now())
        else:
            self._recipient.mark(mark, self._clock.now())


def _is_of_voice(error: EarshotError) -> bool:
    return isinstance(error, EngineError) and error.stage == "tts"
