"""Engine for a causal language model from a folder, run by Hugging Face's library in a process.

It is for machines without a language model server; vLLM serves the same folders faster.
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
    """Returns the engine; `warm` or the first turn loads the model.

    Raises EngineMissing without a model, ModuleNotFoundError without a library.
    """
    from engines.llm.transformers.engine import TransformersLlm

    for library in REQUIRES:  # only the worker process imports them
        if find_spec(library) is None:
            raise ModuleNotFoundError(name=library)
    return TransformersLlm(settings)
