"""Engine for any server with OpenAI's chat completions: vLLM, llama.cpp, Ollama, hosted ones."""

from typing import TYPE_CHECKING

from engines.llm.openai.settings import Settings

if TYPE_CHECKING:
    from engines.llm.openai.engine import OpenAiLlm

__all__ = ["Settings", "create"]


def create(settings: Settings, name: str = "openai") -> "OpenAiLlm":
    """Returns the engine; it connects on first use. Raises ConfigError.

    name: name of the engine in errors.
    """
    from engines.llm.openai.engine import OpenAiLlm

    return OpenAiLlm(settings, name)
