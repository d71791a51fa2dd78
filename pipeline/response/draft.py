"""An answer in the making: its words and its sound, before anybody gets to hear of them.

It may begin while the user's turn is only suspected to be over. Until it is confirmed, nothing
leaves it, no tool changes anything, and no more than the first clause is spoken.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from core.errors import EarshotError, EngineError, first_error
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
"Deltas of an unconfirmed answer: longer than any pause lasts."
BROKEN_OFF = " … "
"Between an answer that its model did not finish and the sentence that says so."
MAX_WAITING_SOUNDS = 32
"Frames of the first clause, some seconds of sound; then the voice waits."


class ResponseDraft:
    """`texts` and `sounds` each end with None, unless it fails: `made` tells."""

    def __init__(
        self,
        plan: ResponsePlan,
        prompt: Sequence[Message],
        toolbox: Toolbox,
        context: ToolContext,
        clock: Clock,
        metrics: Metrics,
        fillers: Fillers,
        seats: LlmSlots,
    ) -> None:
        self.plan, self.prompt = plan, tuple(prompt)
        self.texts: asyncio.Queue[str | None] = asyncio.Queue(MAX_WAITING_TEXTS)
        self.sounds: asyncio.Queue[SpeechOutput | None] = asyncio.Queue(MAX_WAITING_SOUNDS)
        self.usage = TokenUsage()
        self._rate_limits: tuple[RateLimits, float] | None = None
        "And when they were told."
        self.calls: list[ToolCall] = []
        "For the client, complete when `texts` ends."
        self.call_deltas: asyncio.Queue[CallDelta | McpCallStep | None] = asyncio.Queue()
        """The same as they are written, and what becomes of the calls of its MCP servers; engines
        bound them. Ends as `texts` does."""
        self.hit_limit = False
        "The model had to stop before it was done."
        self.marks: dict[TurnMark, float] = {}
        self.has_acted = False
        "A tool was called that changes something."
        self.regret: EarshotError | None = None
        "It failed; an apology was made in its place, or after what there was."
        self._toolbox, self._context, self._clock = toolbox, context, clock
        self._metrics, self._fillers = metrics, fillers
        self.seats, self.claim = seats, SlotHolder()
        self.work = WorkTime(clock)
        self._is_confirmed = asyncio.Event()
        self.undisputed: Callable[[], Awaitable[object]] = self._is_confirmed.wait
        "Waited for before anything is changed: somebody may be going on his sentence."
        self._recorded: list[Item] = []
        self._record: Callable[[Item], None] = self._recorded.append
        self._task: asyncio.Task[None] | None = None
        self._error: EarshotError | None = None

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    @property
    def rate_limits(self) -> RateLimits | None:
        """What the model's server said last, as it is by now; None: nothing."""
        if self._rate_limits is None:
            return None
        limits, told_at = self._rate_limits
        return limits.after(self._clock.now() - told_at)

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Work on it from here on; only the first call counts."""
        if self._task is None:
            self._task = tasks.create_task(self._run(), name=f"draft-{self.plan.turn.id}")

    def confirm(self, record: Callable[[Item], None]) -> None:
        """The turn is over: all of it may be made, and what its tools did is remembered."""
        for item in self._recorded:
            record(item)
        self._record = record
        self._is_confirmed.set()

    async def made(self) -> None:
        """Wait for its end. Raises what it failed with."""
        assert self._task is not None
        await asyncio.wait([self._task])
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Nobody wants it any more: every request upstream is closed."""
        self.claim.is_over = True
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
        """Generate and speak side by side: the voice begins with the first clause."""
        confirmed = self._is_confirmed.wait
        metrics = self._metrics
        reading = SpeechSynthesis(self.plan, self.sounds, self._mark, confirmed, self.work, metrics)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._fill(reading))
                tasks.create_task(reading.run())
        except BaseExceptionGroup as group:
            expected, bugs = group.split(EarshotError)
            if expected is None or bugs is not None:
                raise
            error = first_error(expected)
            if not (_is_of_voice(error) and await self._apologise_by_spare_voice(error)):
                raise error from group

    async def _apologise_by_spare_voice(self, error: EarshotError) -> bool:
        """Says that the voice failed, with another one. False: there is none, or it fails too."""
        spare = self.plan.spare
        if spare is None or not self._is_confirmed.is_set():
            return False
        sentence = self._fillers.regret(error, self.plan.language)
        if sentence is None:
            return False
        try:
            pcm = await synthesize_sentence(spare, sentence, self.plan, self._metrics)
        except EarshotError:
            return False
        self.regret = error
        await self.texts.put(f"{BROKEN_OFF}{sentence}")
        await self.sounds.put(SpokenClause(sentence))
        await self.sounds.put(pcm)
        return True

    async def _fill(self, reading: SpeechSynthesis) -> None:
        def say(text: str) -> bool:
            """In between, if there is nothing else to listen to."""
            if not self._is_confirmed.is_set() or not reading.has_caught_up or self.texts.full():
                return False
            self.texts.put_nowait(text + " ")
            reading.interject(text)
            return True

        with self.work.busy("text"):
            async with aclosing(self._apologising(say)) as deltas:
                async for delta in deltas:
                    with self.work.held("text"):
                        await self.texts.put(delta)
                        await reading.push(delta)
        await reading.finish()

    async def _apologising(self, say: Callable[[str], bool]) -> AsyncGenerator[str, None]:
        """The text; after one that fails, or in its place, a sentence that says so."""
        has_begun = False
        try:
            async with aclosing(self._texts(say)) as deltas:
                async for delta in deltas:
                    has_begun = True
                    yield delta
        except EarshotError as exc:
            is_wanted = self._is_confirmed.is_set()
            sentence = self._fillers.regret(exc, self.plan.language) if is_wanted else None
            if sentence is None:
                raise
            self.regret = exc
            yield f"{BROKEN_OFF}{sentence}" if has_begun else sentence

    async def _texts(self, say: Callable[[str], bool]) -> AsyncGenerator[str, None]:
        """The answer's text as it is generated."""
        if self.plan.text is not None:
            self._mark(TurnMark.LLM_FIRST_TOKEN)
            yield self.plan.text
            return
        hands = ToolAccess(
            self._toolbox,
            self._context,
            self._may_act,
            self._remember,
            self._fillers,
            say,
            self.call_deltas.put_nowait,
        )
        plan = with_llm_slots(self.plan, self._seat, self._metrics)
        async with aclosing(generate(plan, self.prompt, hands)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TokenUsage):
                    self._spend(delta)
                elif isinstance(delta, RateLimits):
                    self._rate_limits = delta, self._clock.now()
                elif isinstance(delta, CallDelta):
                    self.call_deltas.put_nowait(delta)
                elif isinstance(delta, ToolCall):
                    if self._is_confirmed.is_set():  # else it is handed out when it is
                        await self.undisputed()
                    self.calls.append(delta)
                elif delta:
                    self._mark(TurnMark.LLM_FIRST_TOKEN)
                    yield delta

    @asynccontextmanager
    async def _seat(self) -> AsyncIterator[None]:
        """For one round; waiting for it is no work."""
        async with AsyncExitStack() as stack:
            with self.work.held("text"):
                await stack.enter_async_context(self.seats.take(self.claim))
            yield

    def _spend(self, round_: TokenUsage) -> None:
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
        await self.undisputed()
        self.has_acted = True

    def _remember(self, item: Item) -> None:
        self._record(item)

    def _mark(self, mark: TurnMark) -> None:
        self.marks.setdefault(mark, self._clock.now())


def _is_of_voice(error: EarshotError) -> bool:
    return isinstance(error, EngineError) and error.stage == "tts"
