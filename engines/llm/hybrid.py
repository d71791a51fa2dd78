"""Commands by templates, at once and exactly; everything else by a language model.

What the templates understand never reaches the model. If the model cannot be had, commands still
work.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from core.errors import ConfigError, ContextExceeded, EarshotError, EngineError, Overloaded
from core.events import Usage
from core.ports import ToolSpec
from core.rate_limits import RateLimits
from engines.base import (
    AS_CONFIGURED,
    CallDelta,
    Llm,
    LlmOptions,
    Message,
    Seated,
    Sees,
    TextDelta,
    ToolCall,
)
from engines.llm import intents
from engines.llm.intents import REQUIRES

if TYPE_CHECKING:
    from engines.llm.intents.engine import IntentsLlm

__all__ = ["REQUIRES", "Hybrid", "Settings", "create"]

NAME = "hybrid"


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


def create(settings: Settings) -> "Hybrid":
    """Raises as `engines.registry.load` does for the model."""
    from engines.registry import load

    if settings.model.engine in (NAME, "intents"):
        raise ConfigError(f"llm.{NAME} model.engine: not {settings.model.engine!r}, but a model")
    model = load("llm", settings.model.engine, settings.model.options)
    return Hybrid(intents.create(intents.Settings()), model)


@runtime_checkable
class _Warms(Protocol):
    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None: ...


@runtime_checkable
class _Runs(Protocol):
    context_tokens: int | None

    def running(self) -> AbstractAsyncContextManager[None]: ...


@runtime_checkable
class _Closes(Protocol):
    async def aclose(self) -> None: ...


class Hybrid:
    """An `Llm`. Which of the two answers is decided before anything is said, for each sentence."""

    name = NAME

    def __init__(self, commands: "IntentsLlm", model: Llm) -> None:
        self.model = model
        self.on_failure: Callable[[EarshotError], None] | None = None
        """Told why the model gave no answer, or none to the end; not of a prompt that was too long:
        half of it may be answered yet."""
        self._commands = commands
        self._is_warm = False
        both = (*commands.languages, *model.languages)
        self.languages = tuple(sorted(set(both))) if model.languages else ()
        self.context_tokens = model.context_tokens

    @property
    def sees(self) -> bool:
        return isinstance(self.model, Sees) and self.model.sees

    @property
    def at_once(self) -> int | None:
        """As many as the model; commands need none of its seats, and are not refused."""
        return self.model.at_once if isinstance(self.model, Seated) else None

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Both; the model, whose languages are one, once. Raises EngineError when it can never be
        had."""
        await self._commands.warm(language, tools)
        if isinstance(self.model, _Warms) and not self._is_warm:
            await self.model.warm(language, tools)
            self._is_warm = True
        self.context_tokens = self.model.context_tokens

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What the model needs to run while it is used (`vllm`: its server). Raises EngineError."""
        if isinstance(self.model, _Runs):
            async with self.model.running():
                self.context_tokens = self.model.context_tokens
                yield
        else:
            yield

    async def aclose(self) -> None:
        """What the model keeps open, between turns too."""
        if isinstance(self.model, _Closes):
            await self.model.aclose()

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | Usage | RateLimits, None]:
        """See `Llm.reply`. Raises what the model does: EngineError, Overloaded."""
        if await self._is_command(messages, tools, language):
            done = self._commands.reply(messages, tools, language=language, options=options)
            async with aclosing(done) as steps:
                async for step in steps:
                    yield step
            return
        has_begun = False
        try:
            answer = self.model.reply(messages, tools, language=language, options=options)
            async with aclosing(answer) as deltas:
                async for delta in deltas:
                    has_begun = has_begun or not isinstance(delta, RateLimits)
                    yield delta
        except (EngineError, Overloaded) as exc:
            may_be_shorter = isinstance(exc, ContextExceeded) and not has_begun
            if self.on_failure is not None and not may_be_shorter:
                self.on_failure(exc)
            raise
        finally:
            self.context_tokens = self.model.context_tokens

    async def _is_command(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], language: str
    ) -> bool:
        """Results of tools go to whoever asked for them."""
        from engines.llm.intents.engine import CALL_PREFIX

        if _has_images(messages):  # templates know nothing of what is to be seen
            return False
        asked = _asked_since(messages)
        if asked:
            return all(call.call_id.startswith(f"{CALL_PREFIX}_") for call in asked)
        return await self._commands.understands(messages, tools, language=language)


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
