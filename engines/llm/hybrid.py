"""Language model engine that answers commands by templates, and everything else by a model.

A sentence that the templates understand never reaches the model. It is carried out at once, even
when the model is unavailable. For other sentences the model gets one tool in place of the home's
tools. It calls that tool with a sentence, which the templates carry out and answer.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from core.conversation.usage import RateLimits, TokenUsage
from core.errors import (
    ConfigError,
    ContextLengthExceeded,
    EarshotError,
    EngineError,
    OverloadedError,
)
from core.ports import ToolSpec
from engines.base import (
    AS_CONFIGURED,
    CallDelta,
    ClosableEngine,
    ConcurrencyLimitedLlm,
    FormatLlm,
    Llm,
    LlmOptions,
    LlmWithServer,
    Message,
    TextDelta,
    ToolCall,
    VisionLlm,
    WarmableLlm,
)
from engines.llm import intents
from engines.llm.home_tool import (
    NOT_UNDERSTOOD,
    HomeCommandTool,
    home_tool,
    messages_for_model,
    sentence_of,
)
from engines.llm.intents import REQUIRES

if TYPE_CHECKING:
    from engines.llm.intents.engine import IntentsLlm

__all__ = ["REQUIRES", "HybridLlm", "Settings", "create"]

NAME = "hybrid"

MAX_SENTENCES = 3
"Most requests to the model for one answer, if the templates understand none of its sentences."

MAX_DELEGATED = 4096
"Most tool calls whose sentence is kept. All answers in progress have far fewer calls."


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the language model behind the templates."""

    engine: str = "openai"
    "Name of its engine."
    options: dict[str, Any] = {}
    "Options of that engine, as `llm.options` would have them."

    def __repr__(self) -> str:
        """Returns the settings without the options, which may hold keys."""
        return f"ModelSettings(engine={self.engine!r}, options=...)"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `hybrid`."""

    model: ModelSettings


def create(settings: Settings) -> "HybridLlm":
    """Returns the engine with its model loaded.

    Raises ConfigError for a model that is `hybrid` or `intents`, and all that
    `engines.registry.load` raises for the model.
    """
    from engines.registry import load

    if settings.model.engine in (NAME, "intents"):
        why = f"{settings.model.engine!r} is not allowed; name the engine of a language model"
        raise ConfigError(f"llm.{NAME} model.engine: {why}")
    model = load("llm", settings.model.engine, settings.model.options)
    return HybridLlm(intents.create(intents.Settings()), model)


class HybridLlm:
    """An `Llm` that answers each sentence either by templates or by a language model.

    The choice is made before the answer begins.
    """

    name = NAME

    def __init__(self, templates: "IntentsLlm", model: Llm) -> None:
        self.model = model
        self.on_failure: Callable[[EarshotError], None] | None = None
        """Called with the error when the model gave no answer, or broke off. Not called for a
        prompt that is too long: the caller may send a shorter one."""
        self._templates = templates
        self._is_warm = False
        self._delegated: dict[str, _DelegatedSentence] = {}
        "Id of a tool call -> the model's sentence that led to it."
        both = (*templates.languages, *model.languages)
        self.languages = tuple(sorted(set(both))) if model.languages else ()
        self.context_tokens = model.context_tokens

    @property
    def raw_model(self) -> Llm:
        """The model behind the templates."""
        return self.model

    @property
    def accepts_images(self) -> bool:
        """True if the model takes images."""
        return isinstance(self.model, VisionLlm) and self.model.accepts_images

    @property
    def holds_format(self) -> bool:
        """True if the model can hold an answer to a form. Templates cannot."""
        return isinstance(self.model, FormatLlm) and self.model.holds_format

    @property
    def max_concurrency(self) -> int | None:
        """Number of answers that the model writes at once. Templates answer without this limit."""
        return self.model.max_concurrency if isinstance(self.model, ConcurrencyLimitedLlm) else None

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Loads the templates of `language`, and the model on the first call.

        Raises EngineError when the model can never become available.
        """
        await self._templates.warm(language, tools)
        if isinstance(self.model, WarmableLlm) and not self._is_warm:
            await self.model.warm(language, tools)
            self._is_warm = True
        self.context_tokens = self.model.context_tokens

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the model's server, if it has one (`vllm`). Raises EngineError."""
        if isinstance(self.model, LlmWithServer):
            async with self.model.running():
                self.context_tokens = self.model.context_tokens
                yield
        else:
            yield

    async def aclose(self) -> None:
        """Closes the connections or the process of the model, if it has any."""
        if isinstance(self.model, ClosableEngine):
            await self.model.aclose()

    def filter_tools(self, tools: Sequence[ToolSpec], *, language: str) -> Sequence[ToolSpec]:
        """Returns the tools that a request contains (see `ToolFilterLlm`).

        One tool replaces all tools of the home in languages that have templates.
        """
        home = self._home_tool(tools, language)
        return tools if home is None else home.model_tools

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """Streams the answer (see `Llm.reply`). Only the model answers in a form.

        Raises the model's EngineError, OverloadedError.
        """
        is_free_text = options.answer_format is None
        if is_free_text and await self._is_command(messages, tools, language):
            async with aclosing(self._template_reply(messages, tools, language)) as steps:
                async for step in steps:
                    yield step
            return
        has_begun = False
        try:
            answer = self._model_reply(messages, tools, language, options)
            async with aclosing(answer) as deltas:
                async for delta in deltas:
                    has_begun = has_begun or not isinstance(delta, RateLimits)
                    yield delta
        except (EngineError, OverloadedError) as exc:
            may_be_retried = isinstance(exc, ContextLengthExceeded) and not has_begun
            if self.on_failure is not None and not may_be_retried:
                self.on_failure(exc)
            raise
        finally:
            self.context_tokens = self.model.context_tokens

    async def _model_reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        language: str,
        options: LlmOptions,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """Streams the model's answer.

        Its calls of the home command tool become calls of the home's own tools. If the templates
        understand none of its sentences, it gets a new request, up to MAX_SENTENCES in all.
        """
        home = self._home_tool(tools, language)
        if home is None:
            reply = self.model.reply(messages, tools, language=language, options=options)
            async with aclosing(reply) as deltas:
                async for delta in deltas:
                    yield delta
            return
        prompt = messages_for_model(messages, home.name, _is_home_call, self._sentence_of)
        for attempt in range(MAX_SENTENCES):
            model_round = _ModelRound()
            reply = self.model.reply(prompt, home.model_tools, language=language, options=options)
            async with aclosing(reply) as deltas:
                async for delta in deltas:
                    if model_round.record(delta, home.name):
                        yield delta
            failed: list[ToolCall] = []
            for call in model_round.home_calls:
                sentence = sentence_of(call)
                steps = await self._templates.steps(
                    sentence, _server_tools(tools), language=language
                )
                if steps is None:
                    failed.append(call)
                for step in steps or ():
                    if isinstance(step, ToolCall):
                        self._store_sentence(
                            step, _DelegatedSentence(sentence, has_text=model_round.has_text)
                        )
                    yield step
            if (
                not failed
                or model_round.has_other_calls
                or len(failed) < len(model_round.home_calls)
            ):
                return  # at least one call goes out, and the next round answers its result
            if attempt == MAX_SENTENCES - 1:
                unknown = Message("user", sentence_of(failed[0]))
                unknown_reply = self._unknown_sentence_reply(unknown, tools, language)
                async with aclosing(unknown_reply) as texts:
                    async for text in texts:
                        yield text
                return
            # The model did call a tool, as `must_call` demands. Now it may answer in words.
            options = replace(options, must_call=False)
            for call in failed:
                prompt.append(Message("assistant", tool_calls=(call,)))
                prompt.append(Message("tool", NOT_UNDERSTOOD, call_id=call.call_id))

    def _unknown_sentence_reply(
        self, unknown: Message, tools: Sequence[ToolSpec], language: str
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Streams the templates' answer to a sentence that they do not understand."""
        return self._templates.reply(
            [unknown], _server_tools(tools), language=language, has_model=True
        )

    async def _template_reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], language: str
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Streams the templates' calls and answers.

        They belong to the user's own sentence, or to the sentences that the model wrote.
        """
        delegated = [
            (call, self._delegated.get(call.call_id))
            for call in _calls_after_last_user_message(messages)
        ]
        results = {message.call_id: message for message in messages if message.role == "tool"}
        by_sentence: dict[_DelegatedSentence, list[Message]] = {}
        for call, command in reversed(delegated):  # the oldest message first
            if command is not None and call.call_id in results:
                messages_so_far = by_sentence.setdefault(
                    command, [Message("user", command.sentence)]
                )
                messages_so_far += (Message("assistant", tool_calls=(call,)), results[call.call_id])
        exchanges: list[Sequence[Message]] = [*by_sentence.values()] or [messages]
        needs_space = any(command.has_text for command in by_sentence)
        for exchange in exchanges:
            reply = self._templates.reply(exchange, _server_tools(tools), language=language)
            async with aclosing(reply) as steps:
                async for step in steps:
                    if needs_space and isinstance(step, TextDelta):
                        step = TextDelta(f" {step.text}")
                    yield step
            needs_space = True

    def _home_tool(self, tools: Sequence[ToolSpec], language: str) -> HomeCommandTool | None:
        """Returns the home command tool; None without templates or a home's tools."""
        is_known = language.partition("-")[0] in self._templates.languages
        return home_tool(tools) if is_known else None

    def _sentence_of(self, call: ToolCall) -> str | None:
        delegated = self._delegated.get(call.call_id)
        return None if delegated is None else delegated.sentence

    def _store_sentence(self, call: ToolCall, delegated: "_DelegatedSentence") -> None:
        self._delegated[call.call_id] = delegated
        while len(self._delegated) > MAX_DELEGATED:
            del self._delegated[next(iter(self._delegated))]

    async def _is_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], language: str
    ) -> bool:
        """Returns True if the templates answer, False if the model does."""
        if _has_images(messages):  # templates do not understand images
            return False
        calls = _calls_after_last_user_message(messages)
        if calls:  # whichever of the two made the calls answers their results
            return all(map(_is_home_call, calls))
        return await self._templates.understands(messages, _server_tools(tools), language=language)


@dataclass(frozen=True, slots=True)
class _DelegatedSentence:
    """A sentence that the model wrote for the templates."""

    sentence: str
    has_text: bool
    "True: the model wrote text before it, so the answer needs a space in front."


@dataclass(slots=True)
class _ModelRound:
    """Tool calls in the model's answer to one request."""

    home_calls: list[ToolCall] = field(default_factory=list[ToolCall])
    has_other_calls: bool = False
    "True: the model also calls tools that do not belong to the home."
    has_text: bool = False

    def record(self, delta: object, home: str) -> bool:
        """Records `delta`, and returns True if the caller passes it on.

        home: name of the home command tool. Its calls are not passed on: no tool runs under that
        name.
        """
        match delta:
            case ToolCall(name=name) if name == home:
                self.home_calls.append(delta)
                return False
            case CallDelta(name=name) if name == home:
                return False
            case ToolCall():
                self.has_other_calls = True
            case TextDelta(text=text):
                self.has_text = self.has_text or bool(text.strip())
            case _:
                pass
        return True


def _server_tools(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Returns the tools that the templates may call: all that no client declared.

    A client's tool may have the name of a built-in tool and another schema. Templates do not read
    schemas.
    """
    return [tool for tool in tools if not tool.is_clients]


def _is_home_call(call: ToolCall) -> bool:
    """Returns True if the templates made this call, for the user's or the model's sentence."""
    from engines.llm.intents.engine import CALL_PREFIX

    return call.call_id.startswith(f"{CALL_PREFIX}_")


def _has_images(messages: Sequence[Message]) -> bool:
    """Returns True if the last user message has images."""
    last = next((message for message in reversed(messages) if message.role == "user"), None)
    return last is not None and bool(last.images)


def _calls_after_last_user_message(messages: Sequence[Message]) -> list[ToolCall]:
    """Returns the tool calls since the last user message, those of the latest message first."""
    calls: list[ToolCall] = []
    for message in reversed(messages):
        if message.role == "user":
            break
        calls += message.tool_calls
    return calls
