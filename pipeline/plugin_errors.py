"""Exceptions of engines and tools that others wrote, as errors of ours.

An engine may raise anything. A session must live through it, its user must hear an apology, and the
log must say where it happened, without the words of the conversation.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import EarshotError, EngineError, chain_of
from core.ports import Metrics

logger = logging.getLogger(__name__)


@contextmanager
def plugin_errors(stage: str, name: str, metrics: Metrics | None = None) -> Iterator[None]:
    """Turns whatever an engine raises into an EngineError, logs where it came from, counts it.

    `stage`: asr, llm, tts or endpoint. `metrics`: None where the caller counts errors itself.
    Errors of our own tree pass through unchanged.
    """
    try:
        yield
    except EarshotError:
        raise
    except Exception as bug:
        logger.error("! %s engine %r failed: %s", stage, name, chain_of(bug))
        error = EngineError(stage, name, f"failed ({type(bug).__name__})")
        if metrics is not None:
            metrics.count("earshot_errors", code=error.code)
        raise error from bug
