"""One-shot responses: one text in, one answer out, without a live session."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from core.access.limits import CapacityLimit
from core.conversation.ids import new_id
from core.conversation.items import Item, ItemStatus, MessageItem, TextPart
from core.errors import Conflict, EarshotError
from core.ports import DeviceLocation, ToolSpec
from core.tasks import single_error
from engines.base import AnswerFormat
from pipeline.conversation.conversation import Conversation, Conversations
from pipeline.response.generation import GeneratedDelta, TextGeneration
from pipeline.response.plan import ResponsePlan
from pipeline.response.planner import ResponsePlanner
from pipeline.services import SessionServices
from pipeline.shared.settings import (
    DEFAULT,
    InitialSettings,
    ReasoningEffort,
    ResponseRequest,
    SessionSettings,
    ToolChoice,
)
from pipeline.shared.turn import Turn
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.tools.calls.rounds import ToolAccess
from pipeline.tools.fillers import Fillers
from serving.scheduling.llm_slots import SlotHolder

# Merges an answer's text with fillers, which bridge the time in which a tool runs.

FillerSink = Callable[[str], bool]
"Takes the sentence of a filler. Returns False if it cannot be spoken now; try again later."


@dataclass(frozen=True, slots=True)
class FillerText:
    """Filler: a sentence that is spoken over a silence. It is not part of the answer."""

    sentence: str


async def stream_with_fillers(
    write: Callable[[FillerSink], AsyncGenerator[str, None]], tasks: asyncio.TaskGroup
) -> AsyncGenerator[str | FillerText, None]:
    """Yields the texts that `write` yields, with fillers in between.

    `write` runs at most one piece ahead of the reader. It is given the sink for its fillers, which
    takes one only if the reader has read everything before. Closing this generator closes that of
    `write`. Raises EarshotError, as `write` does.
    """
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
"Most one-shot responses at once: more than a language model writes at a bearable pace."

RETRY_AFTER_S = 2
"Seconds that a refused caller is asked to wait."


@dataclass(frozen=True, slots=True)
class OneShotRequest:
    """One question, and the settings that its caller chose."""

    text: str
    conversation_id: str | None = None
    "Conversation to continue. None: the question belongs to none and is not remembered."
    language: str | None = None
    "ISO 639-1 code. None: the conversation's language, or the one that the text is written in."
    model: str = DEFAULT
    temperature: float | None = None
    max_output_tokens: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    default_temperature: float | None = None
    "Temperature to use if neither caller, profile nor engine gives one: the usual one at its door."
    place: DeviceLocation | None = None
    "Place where it was asked. None: the place where the conversation was held last."
    is_spoken: bool = False
    "True when the answer is read aloud: fillers keep the user from silence."
    items: tuple[Item, ...] | None = None
    """The whole conversation as its caller keeps it, with the question at its end. The model sees
    it in place of ours. None: the text is the question."""
    client_tools: tuple[ToolSpec, ...] = ()
    "Tools that the caller runs: their calls end the response."
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    answer_format: AnswerFormat | None = None
    "Form of the answer's text. Only if the model is a `FormatLlm`."


class OneShotResponses:
    """Answers single questions of all doors, with the tools and history that a session would have.

    default_settings: returns the settings to use where neither the question nor the conversation's
    profile has others.

        async with responses.open(OneShotRequest("What time is it?")) as response:
            answer = await response.text()
    """

    def __init__(
        self,
        services: SessionServices,
        conversations: Conversations,
        languages: TextLanguageDetector,
        *,
        default_settings: InitialSettings = SessionSettings,
        max_parallel: int = MAX_PARALLEL,
    ) -> None:
        self._services, self._engines = services, services.engines
        self._conversations, self._languages = conversations, languages
        self._default_settings = default_settings
        self._places = CapacityLimit(
            max_parallel,
            "{limit} questions are being answered, the limit",
            retry_after_s=RETRY_AFTER_S,
        )
        self._busy: set[str] = set()
        self._fillers = Fillers()
        "Shared by all questions: most are the only one in their conversation."

    @property
    def count(self) -> int:
        """Number of questions that are being answered."""
        return self._places.taken

    async def drain(self) -> None:
        """Takes no new questions and waits until those under way are answered."""
        await self._places.drain()

    def conversation(self, conversation_id: str | None) -> Conversation:
        """Returns the conversation with this id, or a new one without an id. A door keeps it to
        receive its announcements."""
        return self._conversations.get(conversation_id)

    @asynccontextmanager
    async def open(self, question: OneShotRequest) -> AsyncIterator["OneShotResponse"]:
        """Opens the response to one question. A conversation takes one question at a time.

        Raises NotFound model_not_found; Conflict; OverloadedError.
        """
        llm = self._engines.language_model(question.model)
        await self._conversations.recall(question.conversation_id)
        conversation = self._conversation(question)
        with self._places.take(), self._mark_busy(conversation), conversation.keep():
            conversation.place = question.place or conversation.place
            settings = self._settings(question, conversation)
            planner = ResponsePlanner(conversation, self._services, lambda: settings)
            language = question.language or settings.language
            if language is None:
                likely = conversation.language or self._engines.default_language
                language = await self._languages.detect(question.text, likely, llm.languages)
            plan = planner.plan(Turn(new_id("turn")), _request(question), language)
            conversation.language = language
            with single_error():
                async with asyncio.TaskGroup() as tasks:
                    yield OneShotResponse(
                        question.text,
                        conversation,
                        planner,
                        plan,
                        self._services,
                        self._fillers,
                        tasks,
                    )

    def _settings(self, question: OneShotRequest, conversation: Conversation) -> SessionSettings:
        profile = conversation.profile
        settings = self._default_settings()
        if profile is not None:
            settings = profile.apply_to(settings)
        return replace(settings, llm=question.model)

    def _conversation(self, question: OneShotRequest) -> Conversation:
        if question.conversation_id is None:
            return Conversation(new_id("conv"))
        # A chat connection may send the id that the server gave to its conversation. That is not a
        # name that the client chose.
        known = self._conversations.has(question.conversation_id)
        return self._conversations.get(question.conversation_id, is_named=not known)

    @contextmanager
    def _mark_busy(self, conversation: Conversation) -> Iterator[None]:
        """Marks the conversation as busy. Raises Conflict if it is."""
        if conversation.key in self._busy:
            raise Conflict(
                "this conversation already has an active response: wait for its end, or use"
                " another conversation",
                code="conversation_already_has_active_response",
                param="conversation_id",
            )
        self._busy.add(conversation.key)
        try:
            yield
        finally:
            self._busy.remove(conversation.key)


def _request(question: OneShotRequest) -> ResponseRequest:
    return ResponseRequest(
        modality="audio" if question.is_spoken else "text",
        temperature=question.temperature,
        max_output_tokens=question.max_output_tokens,
        top_p=question.top_p,
        repetition_penalty=question.repetition_penalty,
        default_temperature=question.default_temperature,
        input=question.items,
        client_tools=question.client_tools,
        tool_choice=question.tool_choice,
        parallel_tool_calls=question.parallel_tool_calls,
        reasoning_effort=question.reasoning_effort,
        answer_format=question.answer_format,
        # Each door speaks the answer with a voice of its own choice. A caller that keeps the
        # conversation itself writes its own instructions, and reads the answer.
        is_spoken_by_caller=question.items is None,
    )


class OneShotResponse:
    """One question and its response. Read either `texts`, `text` or `deltas`, once."""

    def __init__(
        self,
        question: str,
        conversation: Conversation,
        planner: ResponsePlanner,
        plan: ResponsePlan,
        services: SessionServices,
        fillers: Fillers,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.plan = plan
        "Settings of the response: among them its language, and the voice to speak it with."
        self.conversation_id = conversation.id
        self.answer = ""
        "Text of the answer so far, without fillers."
        self._question, self._history = question, conversation.history
        self._planner, self._services = planner, services
        self._fillers, self._tasks = fillers, tasks

    def texts(self) -> AsyncGenerator[str, None]:
        """Yields the answer's text as it is written. If the answer is spoken, fillers come in
        between while tools are slow.

        The text without fillers is added to the history, also if this is closed early. Raises
        EngineError, OverloadedError, RequestError.
        """
        if self.plan.modality == "text":
            return self._with_history(self._generate(_unheard))
        return self._with_history(stream_with_fillers(self._generate, self._tasks))

    def deltas(self) -> AsyncGenerator[GeneratedDelta, None]:
        """Yields the answer as it is made: text, token usage, and calls of the caller's tools. It
        is not added to a history. Raises as `texts`."""
        return self._deltas(_unheard)

    async def text(self) -> str:
        """Returns the whole answer. Raises as `texts`."""
        async with aclosing(self._with_history(self._generate(_unheard))) as given:
            return "".join([text async for text in given]).strip()

    async def _with_history(
        self, pieces: AsyncGenerator[str | FillerText, None] | AsyncGenerator[str, None]
    ) -> AsyncGenerator[str, None]:
        """Yields the pieces as text, and adds the question and the answer to the history."""
        self._add("user", self._question, "completed")
        status: ItemStatus = "incomplete"
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, FillerText):
                        yield f" {piece.sentence} " if self.answer else f"{piece.sentence} "
                    else:
                        self.answer += piece
                        yield piece
            status = "completed"
        finally:
            if self.answer:
                self._add("assistant", self.answer, status)

    async def _generate(self, say: FillerSink) -> AsyncGenerator[str, None]:
        """Yields the text of the answer. `say`: takes its fillers."""
        async with aclosing(self._deltas(say)) as deltas:
            async for delta in deltas:
                if isinstance(delta, str) and delta:
                    yield delta

    async def _deltas(self, say: FillerSink) -> AsyncGenerator[GeneratedDelta, None]:
        plan, services, fillers = self.plan, self._services, self._fillers
        context, prompt = self._planner.context(plan), self._planner.prompt(plan)
        access = ToolAccess(
            services.toolbox, context, _wait_for_nothing, self._record, fillers, say
        )
        slots = services.drafts.slots(plan.llm)
        # A SlotHolder without `give_up`: a user waits for this answer, so it keeps its slot.
        generation = TextGeneration(
            plan, prompt, access, lambda: slots.take(SlotHolder()), services.metrics
        )
        async with aclosing(generation.stream()) as deltas:
            async for delta in deltas:
                yield delta

    def _add(self, role: Literal["user", "assistant"], text: str, status: ItemStatus) -> None:
        self._history.add(MessageItem(new_id("item"), role, (TextPart(text),), status))

    def _record(self, item: Item) -> None:
        self._history.add(item, is_internal=True)


def _unheard(_: str) -> bool:
    """Accepts a filler and drops it: nobody listens to this response."""
    return True


async def _wait_for_nothing() -> None:
    """Allows tools to act at once: a written question is complete when it is sent."""
