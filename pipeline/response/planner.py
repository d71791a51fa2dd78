"""Makes the plan and the prompt of a response from the settings and the conversation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from core.conversation.events import Modality, ResponseParameters
from core.conversation.items import Item, ItemReference, MessageItem
from core.conversation.speakers import HeardVoice
from core.errors import EarshotError, EngineError, OverloadedError, RequestError
from core.ports import SpeakerConfirmation, ToolContext, ToolSpec
from engines.base import LlmOptions, Message, Tts
from pipeline.conversation.conversation import Conversation
from pipeline.conversation.history import messages_of
from pipeline.conversation.instructions import add_location
from pipeline.conversation.private_exchanges import visible_items
from pipeline.response.draft import ResponseDraft
from pipeline.response.plan import ResponsePlan
from pipeline.services import SessionServices
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.shared.settings import DEFAULT, ResponseRequest, SessionSettings
from pipeline.shared.turn import Turn
from pipeline.speech.voices import choose_voice, fallback_voice
from pipeline.tools.fillers import Fillers
from pipeline.tools.mcp.session_servers import SessionMcpOffer, SessionMcpServers
from serving.asr.scheduling import DecodePriority

T = TypeVar("T")


@runtime_checkable
class CommandModel(Protocol):
    """A language model that knows only fixed commands, and can say whether it knows this one."""

    async def understands(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """Returns whether the model would do something with the last message."""
        ...

    async def may_become_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool:
        """Returns whether more words behind the last message, which it does not understand, could
        make it a command."""
        ...


class _CommandQuestion(Protocol):
    async def __call__(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> bool: ...


class ResponsePlanner:
    """Builds the plan, the prompt and the draft of responses in one conversation.

    mcp_servers: MCP servers that the client named. None: clients cannot name any.
    """

    def __init__(
        self,
        conversation: Conversation,
        services: SessionServices,
        settings: Callable[[], SessionSettings],
        mcp_servers: SessionMcpServers | None = None,
    ) -> None:
        self._mcp_servers = mcp_servers
        self._conversation, self._services = conversation, services
        self._engines, self._settings = services.engines, settings
        self._fillers = Fillers()

    def plan(
        self,
        turn: Turn,
        request: ResponseRequest,
        language: str | None = None,
        *,
        detected: str | None = None,
    ) -> ResponsePlan:
        """Returns the plan of a response to `turn`, with the settings of this moment. `language`:
        of the answer (ISO 639-1); None: the one that the method `language` chooses, with `detected`
        as the language of the user's words."""
        settings, engines = self._settings_for(turn), self._engines
        language = language or self.language(detected, settings)
        limit, modality = _limit(request, settings), request.modality or settings.modality
        voice, tts, refusal = self._voice(request, modality, language, settings)
        return ResponsePlan(
            turn=turn,
            modality=modality,
            language=language,
            instructions=self._instructions(request, modality, language, settings),
            voice=voice,
            speed=settings.speed,
            llm=engines.language_model(settings.llm),
            tts=tts,
            fallback_voice=fallback_voice(engines.tts, language, tts),
            options=LlmOptions(
                _chosen(request.temperature, settings.answer_temperature),
                limit,
                top_p=request.top_p,
                repetition_penalty=request.repetition_penalty,
                default_temperature=request.default_temperature,
                parallel_tool_calls=_chosen(
                    request.parallel_tool_calls, settings.parallel_tool_calls
                ),
                reasoning_effort=_chosen(request.reasoning_effort, settings.reasoning_effort),
                answer_format=request.answer_format,
            ),
            tools=settings.tools,
            client_tools=_chosen(request.client_tools, settings.client_tools),
            mcp_offer=self._mcp_offer(request, settings),
            tool_choice=_chosen(request.tool_choice, settings.tool_choice),
            truncation=settings.truncation,
            input=_items(request.input),
            parameters=ResponseParameters(
                request.in_conversation,
                request.metadata,
                limit,
                request.voice,
                request.audio_format,
            ),
            refusal=refusal,
        )

    def _settings_for(self, turn: Turn) -> SessionSettings:
        """Returns the settings of the session, with those of the person who asks in their place."""
        settings, person_id = self._settings(), turn.fix_person(self._conversation.person_id)
        return self._services.apply_profile(person_id, settings) if person_id else settings

    def _voice(
        self,
        request: ResponseRequest,
        modality: Modality,
        language: str,
        settings: SessionSettings,
    ) -> tuple[str, Tts, EarshotError | None]:
        """Returns the voice, its engine, and the error of a response that no voice can speak."""
        requested, engines = request.voice or settings.voice, self._engines
        if request.is_spoken_by_caller:
            return requested, engines.voice, None
        try:
            choice = choose_voice(engines.tts, language, requested)
        # no voice speaks this language; the response can still be written
        except RequestError as exc:
            if exc.code == "voice_not_found" and not request.voice and requested != DEFAULT:
                # the voice was deleted after it had been chosen
                return self._voice(request, modality, language, replace(settings, voice=DEFAULT))
            return requested, engines.voice, exc if modality == "audio" else None
        return choice.voice, choice.tts, None

    def _instructions(
        self,
        request: ResponseRequest,
        modality: Modality,
        language: str,
        settings: SessionSettings,
    ) -> str:
        """Returns the instructions, with the location and, for a spoken response, our own prompt.

        Our prompt says that the text will be spoken, so a text response goes without it. It is also
        left out when the client wrote a system item or wants no instructions: it must not
        contradict them. A caller that speaks the text itself always gets it.
        """
        place = self._conversation.place
        is_given = request.instructions is not None or settings.is_uninstructed
        written = _chosen(request.instructions, settings.instructions)
        omits_prompt = is_given or modality == "text" or self._has_system_item(request)
        if omits_prompt and not request.is_spoken_by_caller:
            return add_location(written, place)
        today = self._services.clock.wall().date()
        return self._services.instructions.prompt(written, language, today, place)

    def _has_system_item(self, request: ResponseRequest) -> bool:
        sent = _items(request.input)
        items = self._conversation.history.items if sent is None else sent
        return any(isinstance(item, MessageItem) and item.role == "system" for item in items)

    def final_plan(
        self, turn: Turn, request: ResponseRequest, text: str | None, refusal: EarshotError | None
    ) -> ResponsePlan:
        """Returns the plan of a response that begins now.

        Later announcements use its language, too, unless the request names one for its own text.
        """
        plan = self.plan(turn, request, request.text_language)
        if request.text_language is None:
            self._conversation.language = plan.language
        return replace(plan, text=text, refusal=refusal or plan.refusal)

    def prompt(
        self, plan: ResponsePlan, words: str = "", replaced: Sequence[str] = ()
    ) -> Sequence[Message]:
        """Returns the messages for the model.

        words: words of the user that are not in the history yet.
        replaced: ids of items that the words replace.
        """
        history = self._conversation.history
        items = plan.input
        if items is None:
            excluded = {*replaced, *_decided(plan)}
            kept = tuple(item for item in history.items if item.id not in excluded)
            items = _user_message_last(kept, plan.turn.item_id)
        speaker = plan.turn.speaker
        visible = visible_items(items, speaker.id if speaker else "")
        messages = messages_of(visible, plan.instructions)
        if not words:
            return messages
        return [*messages, Message("user", words, speaker=plan.turn.fix_prompt_name())]

    def _mcp_offer(
        self, request: ResponseRequest, settings: SessionSettings
    ) -> SessionMcpOffer | None:
        named = _chosen(request.mcp_servers, settings.mcp_servers)
        if self._mcp_servers is None or not (named or request.approved):
            return None
        return SessionMcpOffer(self._mcp_servers, named, request)

    def context(self, plan: ResponsePlan) -> ToolContext:
        """Returns the context of tool calls: conversation, language, location."""
        conversation, turn = self._conversation, plan.turn
        return ToolContext(
            conversation.key,
            plan.language,
            conversation.place,
            turn.speaker,
            partial(self._confirm_speaker, turn),
            partial(_hear_voice, turn),
        )

    async def _confirm_speaker(self, turn: Turn) -> SpeakerConfirmation:
        confirm = turn.confirm_voice
        speaker = None if confirm is None else await confirm()
        is_owners = self._conversation.owner is None
        return SpeakerConfirmation(speaker, is_owners, turn.spoken_codes)

    def draft(
        self,
        plan: ResponsePlan,
        prompt: Sequence[Message],
        give_up: Callable[[], None] | None = None,
    ) -> ResponseDraft:
        """Returns a draft that has not begun. give_up: see `ResponseDraft`."""
        return ResponseDraft(
            plan, prompt, self.context(plan), self._services, self._fillers, give_up
        )

    def apology(self, error: EarshotError) -> str | None:
        """Returns the apology for an utterance that could not be recognised.

        None if the server was not at fault.
        """
        if not isinstance(error, EngineError | OverloadedError):
            return None
        return self._fillers.apology(error, self.language())

    def language(self, detected: str | None = None, settings: SessionSettings | None = None) -> str:
        """Returns the ISO 639-1 code of the next response's language. detected: language of the
        user's latest words, if the recogniser reported one. settings: None: the session's own."""
        return (
            (settings or self._settings()).language
            or detected
            or self._conversation.language
            or self._engines.default_language
        )

    async def is_command(self, words: str, language: str) -> bool | None:
        """Returns whether a command model would do something with these words.

        None: the model takes any words. Raises EngineError.
        """
        plan = self.plan(Turn(""), ResponseRequest(), detected=language)
        if not isinstance(plan.llm, CommandModel):
            return None
        return await self._ask(plan, plan.llm.understands, words)

    async def is_unfinished_command(self, words: str, language: str) -> bool | None:
        """Returns True if a command model does not understand these words, but could with more of
        them; False if it understands them.

        None: the model takes any words, or knows no command with these. Raises EngineError.
        """
        plan = self.plan(Turn(""), ResponseRequest(), detected=language)
        if not isinstance(plan.llm, CommandModel):
            return None
        if await self._ask(plan, plan.llm.understands, words):
            return False
        return await self._ask(plan, plan.llm.may_become_command, words) or None

    async def _ask(self, plan: ResponsePlan, question: _CommandQuestion, words: str) -> bool:
        specs = self._services.toolbox.specs(self.context(plan), plan.tools)
        prompt = self.prompt(plan, words)
        with plugin_errors("llm", plan.llm.name, self._services.metrics):
            return await question(prompt, specs, language=plan.language)

    def allows_speculation(self) -> bool:
        """Returns whether speculation is worth it: turns are answered automatically, and the
        recogniser has time left for speculative work."""
        settings = self._settings()
        detection = settings.turn_detection
        if not (settings.answers and detection and detection.create_response):
            return False
        try:
            self._engines.admit(settings.asr, DecodePriority.SPECULATIVE)
        except OverloadedError:
            return False
        return True


async def _hear_voice(turn: Turn) -> HeardVoice | None:
    return None if turn.hear_voice is None else await turn.hear_voice()


def _decided(plan: ResponsePlan) -> set[str]:
    """Returns the ids of approval requests that the client decided.

    Their calls and results come last.
    """
    return (
        {decision.request_id for decision in plan.mcp_offer.approved} if plan.mcp_offer else set()
    )


def _chosen(requested: T | None, configured: T) -> T:
    return configured if requested is None else requested


def _user_message_last(items: tuple[Item, ...], item_id: str | None) -> tuple[Item, ...]:
    """Returns the items with the user's last message behind announcements made meanwhile.

    Otherwise the model would continue the announcement, for example a timer's end.
    """
    for index in reversed(range(len(items))):
        item = items[index]
        if not isinstance(item, MessageItem):
            break  # tool calls and results stay where they are
        if item.id == item_id:
            later = [item for item in items[index:] if isinstance(item, MessageItem)]
            answers = [item for item in later if item.role == "assistant"]
            return (
                *items[:index],
                *answers,
                *(message for message in later if message.role != "assistant"),
            )
    return items


def _items(items: tuple[Item | ItemReference, ...] | None) -> tuple[Item, ...] | None:
    """Returns the items without references, which were resolved when the response was requested."""
    if items is None:
        return None
    return tuple(item for item in items if not isinstance(item, ItemReference))


def _limit(request: ResponseRequest, settings: SessionSettings) -> int | None:
    """Returns the most tokens that the response may have. None: no limit."""
    limit = _chosen(request.max_output_tokens, settings.max_output_tokens)
    return limit if isinstance(limit, int) else None
