"""One text in, the assistant's answer out, without a live session: for doors of single requests."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Literal

from core.errors import Conflict, EarshotError
from core.ids import new_id
from core.items import Item, ItemStatus, MessageItem, TextPart
from core.limits import CapacityLimit
from core.ports import DeviceLocation, Metrics, ToolContext
from engines.base import Llm, LlmOptions
from pipeline.conversation.conversation import Conversation, Conversations
from pipeline.conversation.history import History
from pipeline.response.generation import generate
from pipeline.response.llm_slot import with_llm_slots
from pipeline.response.plan import ResponsePlan
from pipeline.services import SessionServices
from pipeline.shared.settings import DEFAULT, SessionSettings
from pipeline.shared.turn import Turn
from pipeline.speech.language_id import TextLanguageDetector
from pipeline.tools.fillers import Fillers
from pipeline.tools.rounds import ToolAccess
from pipeline.tools.toolbox import Toolbox
from serving.llm_slots import LlmSlots, SlotHolder

# Texts while they are written, and between them what is said while their writer is busy.

FillerSink = Callable[[str], bool]
"Takes a sentence. False: not now, try again."


@dataclass(frozen=True, slots=True)
class FillerText:
    """A sentence over a silence; it is no part of the texts."""

    sentence: str


@asynccontextmanager
async def single_error_group() -> AsyncIterator[asyncio.TaskGroup]:
    """For tasks that hand their errors over themselves: the body's comes out as it was raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


async def stream_with_fillers(
    write: Callable[[FillerSink], AsyncGenerator[str, None]], tasks: asyncio.TaskGroup
) -> AsyncGenerator[str | FillerText, None]:
    """What `write` makes, at most a piece ahead of its reader, and what it says, when the reader
    has taken all there was. Closing it closes that. Raises EarshotError, as it does."""
    made = asyncio.Queue[str | FillerText | EarshotError | None]()
    room = asyncio.Semaphore(1)

    def say(sentence: str) -> bool:
        is_free = made.empty()
        if is_free:
            made.put_nowait(FillerText(sentence))
        return is_free

    async def fill() -> None:
        end: EarshotError | None = None
        try:
            async with aclosing(write(say)) as texts:
                async for text in texts:
                    await room.acquire()
                    made.put_nowait(text)
        except EarshotError as error:
            end = error
        made.put_nowait(end)

    filling = tasks.create_task(fill(), name="texts")
    try:
        while (piece := await made.get()) is not None:
            if isinstance(piece, EarshotError):
                raise piece
            yield piece
            if isinstance(piece, str):
                room.release()
    finally:
        filling.cancel()
        await asyncio.wait([filling])


MAX_PARALLEL = 32
"Answers at once: more than a language model gives at a bearable pace."

RETRY_AFTER_S = 2


@dataclass(frozen=True, slots=True)
class OneShotRequest:
    text: str
    conversation_id: str | None = None
    "None: it belongs to none, and nothing of it is remembered."
    language: str | None = None
    "None: the conversation's, or what the text is written in."
    model: str = DEFAULT
    temperature: float | None = None
    max_output_tokens: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    usual_temperature: float | None = None
    "What its door is used to; counts where nobody has said another."
    place: DeviceLocation | None = None
    "Where it was asked; None: where its conversation was held last."
    is_spoken: bool = False
    "Its answer is read to somebody, who is not to be left in silence."


class OneShotResponses:
    """Questions of all doors, each answered with the tools and history that a session would have.

    `usual`: what holds where neither the question nor its conversation's profile says otherwise.
    """

    def __init__(
        self,
        surroundings: SessionServices,
        conversations: Conversations,
        languages: TextLanguageDetector,
        *,
        usual: SessionSettings | None = None,
        max_parallel: int = MAX_PARALLEL,
    ) -> None:
        self._engines, self._toolbox = surroundings.engines, surroundings.toolbox
        self._drafts, self._metrics = surroundings.drafts, surroundings.metrics
        self._instructions, self._clock = surroundings.instructions, surroundings.clock
        self._conversations, self._languages = conversations, languages
        self._usual = usual or SessionSettings()
        self._places = CapacityLimit(
            max_parallel, "questions are being answered", retry_after_s=RETRY_AFTER_S
        )
        self._busy: set[str] = set()
        self._fillers = Fillers()
        "One for all: most questions are alone in their conversation."

    @property
    def count(self) -> int:
        """Questions that are being answered."""
        return self._places.taken

    async def drain(self) -> None:
        """Take no new questions; wait until those under way are answered."""
        await self._places.drain()

    def conversation(self, conversation_id: str | None) -> Conversation:
        """To keep open for announcements; without an id a new one that is remembered."""
        return self._conversations.get(conversation_id)

    @asynccontextmanager
    async def open(self, question: OneShotRequest) -> AsyncIterator["OneShotResponse"]:
        """The answer to one question. A conversation takes one at a time.

        Raises NotFound model_not_found; Conflict; Overloaded.
        """
        llm = self._engines.language_model(question.model)
        conversation = self._conversation(question)
        with self._places.take(), self._alone(conversation), conversation.held():
            plan = await self._plan(question, conversation, llm)
            conversation.language = plan.language
            conversation.place = question.place or conversation.place
            seats, means = self._drafts.seats(llm), (self._toolbox, self._fillers)
            async with single_error_group() as tasks:
                yield OneShotResponse(
                    question.text, conversation, plan, *means, seats, tasks, self._metrics
                )

    async def _plan(
        self, question: OneShotRequest, conversation: Conversation, llm: Llm
    ) -> ResponsePlan:
        settings, engines = self._usual, self._engines
        if conversation.profile is not None:
            settings = conversation.profile.applied(settings)
        language = question.language or settings.language
        if language is None:
            usual = conversation.language or engines.default_language
            language = await self._languages.of(question.text, usual, llm.languages)
        temperature, most = question.temperature, question.max_output_tokens
        options = LlmOptions(
            settings.answer_temperature if temperature is None else temperature,
            settings.max_output_tokens if most is None else most,
            top_p=question.top_p,
            repetition_penalty=question.repetition_penalty,
            usual_temperature=question.usual_temperature,
        )
        return ResponsePlan(
            turn=Turn(new_id("turn")),
            modality="audio" if question.is_spoken else "text",
            language=language,
            instructions=self._instructions.prompt(
                settings.instructions,
                language,
                self._clock.wall().date(),
                question.place or conversation.place,
            ),
            voice=settings.voice,
            speed=settings.speed,
            llm=llm,
            tts=engines.voice,
            options=options,
            tools=settings.tools,
        )

    def _conversation(self, question: OneShotRequest) -> Conversation:
        if question.conversation_id is None:
            return Conversation(new_id("conv"))
        # A chat connection asks under the id that the server gave its conversation.
        known = self._conversations.has(question.conversation_id)
        return self._conversations.get(question.conversation_id, is_named=not known)

    @contextmanager
    def _alone(self, conversation: Conversation) -> Iterator[None]:
        """Raises Conflict."""
        if conversation.id in self._busy:
            raise Conflict(
                "this conversation is being answered: wait for the end, or name another one",
                code="conversation_already_has_active_response",
                param="conversation_id",
            )
        self._busy.add(conversation.id)
        try:
            yield
        finally:
            self._busy.remove(conversation.id)


class OneShotResponse:
    """One question and its answer: `texts`, once."""

    def __init__(
        self,
        question: str,
        conversation: Conversation,
        plan: ResponsePlan,
        toolbox: Toolbox,
        fillers: Fillers,
        seats: LlmSlots,
        tasks: asyncio.TaskGroup,
        metrics: Metrics,
    ) -> None:
        self.plan = plan
        "In which language it is answered, and with which voice it would be spoken."
        self.conversation_id = conversation.id
        self.given = ""
        "Of the answer, so far, without what was said in between."
        self._question, self._toolbox, self._seats = question, toolbox, seats
        self._fillers = fillers
        self._tasks, self._metrics = tasks, metrics
        self._history: History = conversation.history
        self._place = conversation.place

    async def texts(self) -> AsyncGenerator[str, None]:
        """The answer as it is written; one that is spoken with sentences in between while tools are
        slow. What was given of it, without those, is in the history, also when it is closed early.
        Raises EngineError, Overloaded, RequestError."""
        is_spoken = self.plan.modality == "audio"
        pieces = (
            stream_with_fillers(self._written, self._tasks)
            if is_spoken
            else self._written(_unheard)
        )
        async with aclosing(self._given(pieces)) as given:
            async for text in given:
                yield text

    async def text(self) -> str:
        """All of it. Raises as `texts`."""
        async with aclosing(self._given(self._written(_unheard))) as given:
            return "".join([text async for text in given]).strip()

    async def _given(
        self, pieces: AsyncGenerator[str | FillerText, None] | AsyncGenerator[str, None]
    ) -> AsyncGenerator[str, None]:
        self._add("user", self._question, "completed")
        status: ItemStatus = "incomplete"
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, FillerText):
                        yield f" {piece.sentence} " if self.given else f"{piece.sentence} "
                    else:
                        self.given += piece
                        yield piece
            status = "completed"
        finally:
            if self.given:
                self._add("assistant", self.given, status)

    async def _written(self, say: FillerSink) -> AsyncGenerator[str, None]:
        context, fillers = self._context(), self._fillers
        hands = ToolAccess(self._toolbox, context, _at_once, self._record, fillers, say)
        prompt = self._history.messages(self.plan.instructions)
        plan = with_llm_slots(self.plan, lambda: self._seats.take(SlotHolder()), self._metrics)
        async with aclosing(generate(plan, prompt, hands)) as deltas:
            async for delta in deltas:
                if isinstance(delta, str) and delta:
                    yield delta

    def _context(self) -> ToolContext:
        return ToolContext(self.conversation_id, self.plan.language, self._place)

    def _add(self, role: Literal["user", "assistant"], text: str, status: ItemStatus) -> None:
        self._history.add(MessageItem(new_id("item"), role, (TextPart(text),), status))

    def _record(self, item: Item) -> None:
        self._history.add(item, is_internal=True)


def _unheard(_: str) -> bool:
    """Nobody listens: what bridges a silence is taken, and dropped."""
    return True


async def _at_once() -> None:
    """A written question is over when it is sent."""
