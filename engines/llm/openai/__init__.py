"""Any server that speaks OpenAI's chat completions: vLLM, llama.cpp, Ollama, a hosted service."""

from typing import TYPE_CHECKING

from engines.llm.openai.settings import Settings

if TYPE_CHECKING:
    from engines.llm.openai.engine import OpenAiLlm

__all__ = ["Settings", "create"]


def create(settings: Settings, name: str = "openai") -> "OpenAiLlm":
    """The engine; it connects on first use. `name`: what errors call it. Raises ConfigError."""
    from engines.llm.openai.engine import OpenAiLlm

    return OpenAiLlm(settings, name)
