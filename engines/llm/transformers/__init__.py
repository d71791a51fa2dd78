"""Engine that runs a causal language model from a folder in a worker, with Hugging Face's library.

It is for machines without a language model server; vLLM serves the same folders faster.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from core.errors import EngineMissing
from engines.base import WorkerProfile
from engines.llm.transformers.settings import NAME, Settings
from engines.runtime.model_files.huggingface import ENVIRONMENT

if TYPE_CHECKING:
    from engines.llm.transformers.engine import TransformersLlm

__all__ = ["EXTRA", "REQUIRES", "Settings", "create", "worker_profile"]

EXTRA = "torch"
REQUIRES = {"torch": "torch", "transformers": "transformers"}
GGUF_LIBRARIES = ("gguf", "accelerate")
"Libraries with which transformers reads GGUF files; other models do not need them."


def worker_profile(settings: Settings) -> WorkerProfile:
    """Returns the environment and time limits of the worker process that runs the engine."""
    return WorkerProfile(
        ENVIRONMENT,
        settings.load_timeout_s,
        settings.first_token_timeout_s,
        settings.token_timeout_s,
    )


def create(settings: Settings) -> "TransformersLlm":
    """Returns the engine; `TransformersLlm.load` loads the model.

    Raises EngineMissing if the model or the library for GGUF is missing, ModuleNotFoundError if
    another library is.
    """
    from engines.llm.transformers.engine import TransformersLlm

    for library in REQUIRES:  # only `load` imports them
        if find_spec(library) is None:
            raise ModuleNotFoundError(name=library)
    missing = [name for name in GGUF_LIBRARIES if find_spec(name) is None]
    if missing and settings.gguf_file() is not None:
        advice = f"`earshot extras add {EXTRA}` installs what is missing"
        why = f"a GGUF file needs the packages {' and '.join(GGUF_LIBRARIES)}; {advice}"
        raise EngineMissing("llm", NAME, why)
    return TransformersLlm(settings)
