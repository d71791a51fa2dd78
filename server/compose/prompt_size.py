"""Estimates whether instructions and tools leave room for a conversation in the context window."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from core.ports import UNKNOWN_LOCATION, ToolContext, ToolProvider, ToolSpec
from engines.base import Llm
from engines.llm.chat_messages import chat_tools
from pipeline.conversation.instructions import NO_DEFAULT, DefaultInstructions, bundled_instructions
from pipeline.response.generation import ANSWER_TOKENS
from pipeline.tools.functions import FunctionTools, load_functions
from pipeline.tools.home import Home, default_home
from pipeline.tools.selection import largest_selection
from pipeline.tools.skills import ClockTools, HomeTools, ListTools, Timers, TimerTools
from server.compose.plugins import create_tools
from server.config import Config
from server.runtime.clock import SystemClock

BYTES_PER_TOKEN = 3.5
"""Bytes per token of JSON and English text, an average. Today's tokenizers differ from it by up to
a fifth."""

SAMPLE_DATE = date(2026, 11, 23)
"Date for the estimate. Every date takes the same number of tokens."

MIN_CONVERSATION_TOKENS = 1000
"Tokens of a conversation of some five turns. With less room, a model forgets what was just said."


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Parts of a request, in estimated tokens."""

    context_tokens: int
    "Size of the model's context window."
    instructions_tokens: int
    tools_tokens: int
    tools: int
    "Number of tools."

    @property
    def answer_tokens(self) -> int:
        """Tokens reserved for the answer, at most a quarter of the context window."""
        return min(ANSWER_TOKENS, self.context_tokens // 4)

    @property
    def conversation_tokens(self) -> int:
        """Tokens left for the conversation; negative if not even the fixed parts fit."""
        fixed_tokens = self.instructions_tokens + self.tools_tokens + self.answer_tokens
        return self.context_tokens - fixed_tokens

    @property
    def fits(self) -> bool:
        """True if enough tokens are left for a conversation."""
        return self.conversation_tokens >= MIN_CONVERSATION_TOKENS

    def __str__(self) -> str:
        return (
            f"about {self.instructions_tokens} tokens of instructions, {self.tools_tokens} of"
            f" {self.tools} tools and {self.answer_tokens} for the answer leave"
            f" {max(0, self.conversation_tokens)} of {self.context_tokens} for the conversation"
        )

    def advice(self) -> str:
        """Returns a sentence that says what an operator can do about it."""
        return (
            f"llm: {self}; at least {MIN_CONVERSATION_TOKENS} are needed: give the model a larger"
            " context (Ollama: num_ctx), set context_tokens if it has one, take the engine hybrid,"
            " or name fewer tools under [assistant] tools"
        )


def prompt_size(config: Config, llm: Llm, tools: Sequence[ToolSpec]) -> PromptSize | None:
    """Estimates the largest request of a conversation; None if the model's limit is unknown.
    `tools`: tools that the model can be shown."""
    if llm.context_tokens is None:
        return None
    offers_all = config.tools.offered == "all"
    offered_tools = tools if offers_all else largest_selection(tools, llm.context_tokens)
    size_bytes = (
        len(json.dumps(chat_tools(offered_tools), ensure_ascii=False).encode())
        if offered_tools
        else 0
    )
    text = instructions_of(config).prompt(
        config.assistant.instructions, config.language, SAMPLE_DATE, UNKNOWN_LOCATION
    )
    return PromptSize(
        llm.context_tokens,
        round(len(text.encode()) / BYTES_PER_TOKEN),
        round(size_bytes / BYTES_PER_TOKEN),
        len(offered_tools),
    )


def instructions_of(config: Config) -> DefaultInstructions:
    """Returns the instructions for sessions whose client gives none."""
    return bundled_instructions() if config.assistant.default_instructions else NO_DEFAULT


def known_tools(config: Config) -> list[ToolSpec]:
    """Lists the tools of skills, configured modules and other packages without a running server.
    Raises ConfigError. Blocking."""
    home_tools, *skills = built_in_tools(config)
    providers = skills if config.home_assistant.url else [home_tools, *skills]
    providers.append(FunctionTools(load_functions(config.tools.modules)))
    providers += create_tools(config.tools).values()
    specs = [
        spec for provider in providers for spec in provider.tools(ToolContext("", config.language))
    ]
    allowed = config.assistant.tools
    return specs if allowed is None else [spec for spec in specs if spec.name in allowed]


def built_in_tools(config: Config) -> list[ToolProvider]:
    """Creates the tools of the demo house, then the other skills, without a running server."""
    home, clock = Home(config.home or default_home(), language=config.language), SystemClock()
    timers = Timers(home, clock, _NullAnnouncer())
    return [HomeTools(home), ListTools(home), TimerTools(timers), ClockTools(clock)]


class _NullAnnouncer:
    """Announcer that plays nothing."""

    async def announce(self, conversation_id: str, text: str) -> bool:
        return False
