"""Commands by templates, at once and exactly; everything else by a language model.

What the templates understand never reaches the model. If the model cannot be had, commands still
work. Of the home the model is shown one tool: it hands a sentence to the templates, which do it and
answer.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from core.errors import (
    ConfigError,
    ContextLengthExceeded,
    EarshotError,
    EngineError,
    OverloadedError,
)
from core.events import RateLimits, TokenUsage
from core.ports import ToolSpec
from engines.base import (
    AS_CONFIGURED,
    CallDelta,
    ClosableEngine,
    ConcurrencyLimitedLlm,
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
    messages_as_shown,
    sentence_of,
)
from engines.llm.intents import REQUIRES

if TYPE_CHECKING:
    from engines.llm.intents.engine import IntentsLlm

__all__ = ["REQUIRES", "HybridLlm", "Settings", "create"]

NAME = "hybrid"

MAX_SENTENCES = 3
"That a model may try where none is understood; each costs a request."

MAX_HANDED = 4096
"Calls whose sentence is remembered: those of every answer that is being made, many times over."


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The language model behind the templates."""

    engine: str = "openai"
    options: dict[str, Any] = {}
    "As in `llm.options`, were it alone."

    def __repr__(self) -> str:
        """Options may hold keys."""
        return f"ModelSettings(engine={self.engine!r}, options=...)"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    model: ModelSettings


def create(settings: Settings) -> "HybridLlm":
    """Raises as `engines.registry.load` does for the model."""
    from engines.registry import load

    if settings.model.engine in (NAME, "intents"):
        raise ConfigError(f"llm.{NAME} model.engine: not {settings.model.engine!r}, but a model")
    model = load("llm", settings.model.engine, settings.model.options)
    return HybridLlm(intents.create(intents.Settings()), model)


class HybridLlm:
    """An `Llm`. Which of the two answers is decided before anything is said, for each sentence."""

    name = NAME

    def __init__(self, commands: "IntentsLlm", model: Llm) -> None:
        self.model = model
        self.on_failure: Callable[[EarshotError], None] | None = None
        """Told why the model gave no answer, or none to the end; not of a prompt that was too long:
        half of it may be answered yet."""
        self._commands = commands
        self._is_warm = False
        self._handed: dict[str, _DelegatedCommand] = {}
        "Id of a call -> the model's sentence that it was made of."
        both = (*commands.languages, *model.languages)
        self.languages = tuple(sorted(set(both))) if model.languages else ()
        self.context_tokens = model.context_tokens

    @property
    def sees(self) -> bool:
        return isinstance(self.model, VisionLlm) and self.model.sees

    @property
    def at_once(self) -> int | None:
        """As many as the model; commands need none of its seats, and are not refused."""
        return self.model.at_once if isinstance(self.model, ConcurrencyLimitedLlm) else None

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Both; the model, whose languages are one, once. Raises EngineError when it can never be
        had."""
        await self._commands.warm(language, tools)
        if isinstance(self.model, WarmableLlm) and not self._is_warm:
            await self.model.warm(language, tools)
            self._is_warm = True
        self.context_tokens = self.model.context_tokens

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What the model needs to run while it is used (`vllm`: its server). Raises EngineError."""
        if isinstance(self.model, LlmWithServer):
            async with self.model.running():
                self.context_tokens = self.model.context_tokens
                yield
        else:
            yield

    async def aclose(self) -> None:
        """What the model keeps open, between turns too."""
        if isinstance(self.model, ClosableEngine):
            await self.model.aclose()

    def declared(self, tools: Sequence[ToolSpec], *, language: str) -> Sequence[ToolSpec]:
        """See `Declares`: one tool stands for all of the home's, where there are sentences."""
        home = self._home(tools, language)
        return tools if home is None else home.shown

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """See `Llm.reply`. Raises what the model does: EngineError, Overloaded."""
        if await self._is_command(messages, tools, language):
            done = self._done(messages, tools, language)
            async with aclosing(done) as steps:
                async for step in steps:
                    yield step
            return
        has_begun = False
        try:
            answer = self._by_model(messages, tools, language, options)
            async with aclosing(answer) as deltas:
                async for delta in deltas:
                    has_begun = has_begun or not isinstance(delta, RateLimits)
                    yield delta
        except (EngineError, OverloadedError) as exc:
            may_be_shorter = isinstance(exc, ContextLengthExceeded) and not has_begun
            if self.on_failure is not None and not may_be_shorter:
                self.on_failure(exc)
            raise
        finally:
            self.context_tokens = self.model.context_tokens

    async def _by_model(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        language: str,
        options: LlmOptions,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """The model's answer. What it wants of the home comes out as calls of the home's tools; a
        sentence that is not understood is put to it again."""
        home = self._home(tools, language)
        if home is None:
            reply = self.model.reply(messages, tools, language=language, options=options)
            async with aclosing(reply) as deltas:
                async for delta in deltas:
                    yield delta
            return
        shown = messages_as_shown(messages, home.name, _is_of_home, self._sentence)
        for attempt in range(MAX_SENTENCES):
            wanted = _ModelRound()
            reply = self.model.reply(shown, home.shown, language=language, options=options)
            async with aclosing(reply) as deltas:
                async for delta in deltas:
                    if wanted.takes(delta, home.name):
                        yield delta
            failed: list[ToolCall] = []
            for call in wanted.of_home:
                sentence = sentence_of(call)
                steps = await self._commands.steps(sentence, _servers(tools), language=language)
                if steps is None:
                    failed.append(call)
                for step in steps or ():
                    if isinstance(step, ToolCall):
                        self._remember(step, _DelegatedCommand(sentence, has_text=wanted.has_text))
                    yield step
            if not failed or wanted.has_others or len(failed) < len(wanted.of_home):
                return  # what was done is answered for
            if attempt == MAX_SENTENCES - 1:
                unknown = Message("user", sentence_of(failed[0]))
                async with aclosing(self._excuse(unknown, tools, language)) as texts:
                    async for text in texts:
                        yield text
                return
            options = replace(options, must_call=False)  # it has called; now it may give up
            for call in failed:
                shown.append(Message("assistant", tool_calls=(call,)))
                shown.append(Message("tool", NOT_UNDERSTOOD, call_id=call.call_id))

    def _excuse(
        self, unknown: Message, tools: Sequence[ToolSpec], language: str
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """What the templates say to a sentence that they do not understand."""
        return self._commands.reply([unknown], _servers(tools), language=language)

    async def _done(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], language: str
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """What the templates do or say: for the user's own sentence, or for those that the model
        wrote in its place."""
        handed = [(call, self._handed.get(call.call_id)) for call in _asked_since(messages)]
        results = {message.call_id: message for message in messages if message.role == "tool"}
        by_sentence: dict[_DelegatedCommand, list[Message]] = {}
        for call, of in reversed(handed):
            if of is not None and call.call_id in results:
                known = by_sentence.setdefault(of, [Message("user", of.sentence)])
                known += (Message("assistant", tool_calls=(call,)), results[call.call_id])
        exchanges: list[Sequence[Message]] = [*by_sentence.values()] or [messages]
        needs_space = any(of.has_text for of in by_sentence)
        for exchange in exchanges:
            reply = self._commands.reply(exchange, _servers(tools), language=language)
            async with aclosing(reply) as steps:
                async for step in steps:
                    if needs_space and isinstance(step, TextDelta):
                        step = TextDelta(f" {step.text}")
                    yield step
            needs_space = True

    def _home(self, tools: Sequence[ToolSpec], language: str) -> HomeCommandTool | None:
        """The tool that takes a sentence. None: nobody understands this language, or there is no
        home."""
        is_known = language.partition("-")[0] in self._commands.languages
        return home_tool(tools) if is_known else None

    def _sentence(self, call: ToolCall) -> str | None:
        handed = self._handed.get(call.call_id)
        return None if handed is None else handed.sentence

    def _remember(self, call: ToolCall, handed: "_DelegatedCommand") -> None:
        self._handed[call.call_id] = handed
        while len(self._handed) > MAX_HANDED:
            del self._handed[next(iter(self._handed))]

    async def _is_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], language: str
    ) -> bool:
        """Results of tools go to whoever asked for them."""
        if _has_images(messages):  # templates know nothing of what is to be seen
            return False
        asked = _asked_since(messages)
        if asked:
            return all(map(_is_of_home, asked))
        return await self._commands.understands(messages, _servers(tools), language=language)


@dataclass(frozen=True, slots=True)
class _DelegatedCommand:
    """A sentence that the model wrote for the templates."""

    sentence: str
    has_text: bool
    "The model has said something before it."


@dataclass(slots=True)
class _ModelRound:
    """What a model wants done in one round."""

    of_home: list[ToolCall] = field(default_factory=list[ToolCall])
    has_others: bool = False
    "It calls other tools as well."
    has_text: bool = False

    def takes(self, delta: object, home: str) -> bool:
        """Notes it. False: it goes no further, as the tool of the home is known here only."""
        match delta:
            case ToolCall(name=name) if name == home:
                self.of_home.append(delta)
                return False
            case CallDelta(name=name) if name == home:
                return False
            case ToolCall():
                self.has_others = True
            case TextDelta(text=text):
                self.has_text = self.has_text or bool(text.strip())
            case _:
                pass
        return True


def _servers(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """The tools that the templates may call. One that a client declared may have the name of one of
    ours, but it has a schema of its own, which only the model reads."""
    return [tool for tool in tools if not tool.is_clients]


def _is_of_home(call: ToolCall) -> bool:
    """The templates made it, of whosever sentence."""
    from engines.llm.intents.engine import CALL_PREFIX

    return call.call_id.startswith(f"{CALL_PREFIX}_")


def _has_images(messages: Sequence[Message]) -> bool:
    """They came with the user's last words."""
    last = next((message for message in reversed(messages) if message.role == "user"), None)
    return last is not None and bool(last.images)


def _asked_since(messages: Sequence[Message]) -> list[ToolCall]:
    """Tools called since the user spoke."""
    calls: list[ToolCall] = []
    for message in reversed(messages):
        if message.role == "user":
            break
        calls += message.tool_calls
    return calls
