"""A causal language model from a folder, in a process of its own, through Hugging Face's library.

For machines where no server of language models is wanted; vLLM serves the same folders faster.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from engines.llm.transformers.settings import Settings

if TYPE_CHECKING:
    from engines.llm.transformers.engine import TransformersLlm

__all__ = ["EXTRA", "REQUIRES", "Settings", "create"]

EXTRA = "torch"
REQUIRES = {"torch": "torch", "transformers": "transformers"}


def create(settings: Settings) -> "TransformersLlm":
    """The engine; `warm` or the first turn loads the model. Raises EngineMissing, ConfigError."""
    from engines.llm.transformers.engine import TransformersLlm

    for library in REQUIRES:  # they are imported by the process only
        if find_spec(library) is None:
            raise ModuleNotFoundError(name=library)
    return TransformersLlm(settings)
