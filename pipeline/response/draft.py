"""A response in the making: its text and its sound, before any of it leaves the server.

A draft may begin while the user's turn is only probably over. Until it is confirmed, nothing leaves
it, no tool changes anything, and no more than the first clause is spoken.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from core.errors import EarshotError, EngineError, expected_failure
from core.events import RateLimits, TokenUsage
from core.items import Item
from core.ports import Clock, Metrics, ToolContext
from engines.base import CallDelta, Message, ToolCall
from pipeline.response.generation import generate
from pipeline.response.llm_slot import with_llm_slots
from pipeline.response.plan import ResponsePlan
from pipeline.shared.turn import TurnMark
from pipeline.shared.work_time import WorkTime
from pipeline.speech.synthesis import (
    SpeechOutput,
    SpeechSynthesis,
    SpokenClause,
    synthesize_sentence,
)
from pipeline.tools.fillers import Fillers
from pipeline.tools.mcp.call_steps import McpCallStep
from pipeline.tools.rounds import ToolAccess
from pipeline.tools.toolbox import Toolbox
from serving.llm_slots import LlmSlots, SlotHolder

MAX_WAITING_TEXTS = 1024
"Most text deltas of an unconfirmed draft: more than a model writes in any pause of a user."
BROKEN_OFF = " … "
"Separator between an answer that its model did not finish and the apology."
MAX_WAITING_SOUNDS = 32
"Most frames of sound that wait: some seconds of the first clause. Then the voice waits."


class ResponseDraft:
    """The making of one response: generation and speech synthesis in a task, results in queues.

    `texts`, `sounds` and `call_deltas` each end with None, unless the draft fails. `made` raises
    the error then.

        draft = planner.draft(plan, prompt)
        draft.begin(tasks)                 # speculative: nothing leaves it
        draft.confirm(record)              # the turn is over: the rest may be made
        await draft.made()                 # or, if the user went on: draft.cancel()
    """

    def __init__(
        self,
        plan: ResponsePlan,
        prompt: Sequence[Message],
        toolbox: Toolbox,
        context: ToolContext,
        clock: Clock,
        metrics: Metrics,
        fillers: Fillers,
        slots: LlmSlots,
    ) -> None:
        self.plan, self.prompt = plan, tuple(prompt)
        self.texts: asyncio.Queue[str | None] = asyncio.Queue(MAX_WAITING_TEXTS)
        self.sounds: asyncio.Queue[SpeechOutput | None] = asyncio.Queue(MAX_WAITING_SOUNDS)
        self.usage = TokenUsage()
        self._rate_limits: tuple[RateLimits, float] | None = None
        "Rate limits of the model's server, and when they were received (monotonic seconds)."
        self.calls: list[ToolCall] = []
        "Tool calls for the client, complete when `texts` ends."
        self.call_deltas: asyncio.Queue[CallDelta | McpCallStep | None] = asyncio.Queue()
        """Tool calls for the client while they are written, and the steps of MCP calls. Ends with
        None, as `texts` does. Not bounded: the engines limit what they write."""
        self.hit_limit = False
        "True when the model reached `max_output_tokens` before it was done."
        self.marks: dict[TurnMark, float] = {}
        self.has_acted = False
        "True when a tool that changes something was called."
        self.apology_for: EarshotError | None = None
        """Error of a draft that failed and for which an apology was made, in place of the answer or
        after its first part."""
        self._toolbox, self._context, self._clock = toolbox, context, clock
        self._metrics, self._fillers = metrics, fillers
        self.slots, self.slot_holder = slots, SlotHolder()
        self.work = WorkTime(clock)
        self._is_confirmed = asyncio.Event()
        self.wait_until_settled: Callable[[], Awaitable[object]] = self._is_confirmed.wait
        "Awaited before a tool changes anything: the user may be going on with the sentence."
        self._recorded: list[Item] = []
        self._record: Callable[[Item], None] = self._recorded.append
        self._task: asyncio.Task[None] | None = None
        self._error: EarshotError | None = None

    @property
    def has_failed(self) -> bool:
        """True once the draft ended with an error."""
        return self._error is not None

    @property
    def rate_limits(self) -> RateLimits | None:
        """Rate limits that the model's server sent last, counted on to now. None: it sent none."""
        if self._rate_limits is None:
            return None
        limits, received_at = self._rate_limits
        return limits.after(self._clock.now() - received_at)

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Starts the work. Only the first call has an effect."""
        if self._task is None:
            self._task = tasks.create_task(self._run(), name=f"draft-{self.plan.turn.id}")

    def confirm(self, record: Callable[[Item], None]) -> None:
        """Lets the draft make all of the response: the turn is over.

        record: receives the internal items of its tools, the earlier ones at once.
        """
        for item in self._recorded:
            record(item)
        self._record = record
        self._is_confirmed.set()

    async def made(self) -> None:
        """Waits until the draft has ended. Raises the error that it failed with."""
        assert self._task is not None
        await asyncio.wait([self._task])
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Stops the work and closes every request to an engine."""
        self.slot_holder.is_over = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await (self._speak() if self.plan.modality == "audio" else self._write())
        except EarshotError as exc:
            self._error = exc
            return
        self.call_deltas.put_nowait(None)
        await self.texts.put(None)
        await self.sounds.put(None)

    async def _write(self) -> None:
        with self.work.busy("text"):
            async with aclosing(self._texts(lambda _: True)) as deltas:
                async for delta in deltas:
                    with self.work.held("text"):
                        await self.texts.put(delta)

    async def _speak(self) -> None:
        """Generates and speaks at the same time: the voice begins with the first clause."""
        confirmed = self._is_confirmed.wait
        metrics = self._metrics
        synthesis = SpeechSynthesis(
            self.plan, self.sounds, self._mark, confirmed, self.work, metrics
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._fill(synthesis))
                tasks.create_task(synthesis.run())
        except BaseExceptionGroup as group:
            error = expected_failure(group)
            if error is None:
                raise
            if not (_is_of_voice(error) and await self._apologise_by_fallback_voice(error)):
                raise error from group

    async def _apologise_by_fallback_voice(self, error: EarshotError) -> bool:
        """Speaks an apology with another engine's voice.

        Returns False if there is none or it fails.
        """
        fallback = self.plan.fallback_voice
        if fallback is None or not self._is_confirmed.is_set():
            return False
        sentence = self._fillers.apology(error, self.plan.language)
        if sentence is None:
            return False
        try:
            pcm = await synthesize_sentence(fallback, sentence, self.plan, self._metrics)
        except EarshotError:
            return False
        self.apology_for = error
        await self.texts.put(f"{BROKEN_OFF}{sentence}")
        await self.sounds.put(SpokenClause(sentence))
        await self.sounds.put(pcm)
        return True

    async def _fill(self, synthesis: SpeechSynthesis) -> None:
        def say(text: str) -> bool:
            """Inserts a filler, if the user would hear nothing else. Returns False if not."""
            if not self._is_confirmed.is_set() or not synthesis.has_caught_up or self.texts.full():
                return False
            self.texts.put_nowait(text + " ")
            synthesis.interject(text)
            return True

        with self.work.busy("text"):
            async with aclosing(self._texts_or_apology(say)) as deltas:
                async for delta in deltas:
                    with self.work.held("text"):
                        await self.texts.put(delta)
                        await synthesis.push(delta)
        await synthesis.finish()

    async def _texts_or_apology(self, say: Callable[[str], bool]) -> AsyncGenerator[str, None]:
        """Yields the text, and an apology after it or in its place if the generation fails."""
        has_begun = False
        try:
            async with aclosing(self._texts(say)) as deltas:
                async for delta in deltas:
                    has_begun = True
                    yield delta
        except EarshotError as exc:
            is_wanted = self._is_confirmed.is_set()
            sentence = self._fillers.apology(exc, self.plan.language) if is_wanted else None
            if sentence is None:
                raise
            self.apology_for = exc
            yield f"{BROKEN_OFF}{sentence}" if has_begun else sentence

    async def _texts(self, say: Callable[[str], bool]) -> AsyncGenerator[str, None]:
        """Yields the response's text as it is generated."""
        if self.plan.text is not None:
            self._mark(TurnMark.LLM_FIRST_TOKEN)
            yield self.plan.text
            return
        access = ToolAccess(
            self._toolbox,
            self._context,
            self._may_act,
            self._remember,
            self._fillers,
            say,
            self.call_deltas.put_nowait,
        )
        plan = with_llm_slots(self.plan, self._llm_slot, self._metrics)
        async with aclosing(generate(plan, self.prompt, access)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TokenUsage):
                    self._count_tokens(delta)
                elif isinstance(delta, RateLimits):
                    self._rate_limits = delta, self._clock.now()
                elif isinstance(delta, CallDelta):
                    self.call_deltas.put_nowait(delta)
                elif isinstance(delta, ToolCall):
                    # an unconfirmed draft hands its calls out later
                    if self._is_confirmed.is_set():
                        await self.wait_until_settled()
                    self.calls.append(delta)
                elif delta:
                    self._mark(TurnMark.LLM_FIRST_TOKEN)
                    yield delta

    @asynccontextmanager
    async def _llm_slot(self) -> AsyncIterator[None]:
        """Holds an LLM slot for one round. Waiting for the slot does not count as work."""
        async with AsyncExitStack() as stack:
            with self.work.held("text"):
                await stack.enter_async_context(self.slots.take(self.slot_holder))
            yield

    def _count_tokens(self, round_: TokenUsage) -> None:
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
        with self.work.held("text"):
            await self._is_confirmed.wait()
        await self.wait_until_settled()
        self.has_acted = True

    def _remember(self, item: Item) -> None:
        self._record(item)

    def _mark(self, mark: TurnMark) -> None:
        self.marks.setdefault(mark, self._clock.now())


def _is_of_voice(error: EarshotError) -> bool:
    return isinstance(error, EngineError) and error.stage == "tts"
