"""Turns exceptions of engines and tools written by others into errors of Earshot.

An engine may raise anything. The session must survive it, the user must hear an apology, and the
log must say where it happened, without the words of the conversation.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from core.audio import Pcm
from core.errors import EarshotError, EngineError, chain_of
from core.ports import Metrics
from engines.base import VadEngine

T = TypeVar("T")

logger = logging.getLogger(__name__)


@contextmanager
def plugin_errors(
    stage: str, name: str, metrics: Metrics | None = None, *, is_repeated: bool = False
) -> Iterator[None]:
    """Turns any exception of an engine into an EngineError, logs where it came from, and counts it.

    `stage`: asr, llm, tts, endpoint, vad or wake. `name`: of the engine. `metrics`: None where the
    caller counts errors itself. `is_repeated`: True if an error of this kind was logged and counted
    before, so that this one is not. An EarshotError passes through unchanged.
    """
    try:
        yield
    except EarshotError:
        raise
    except Exception as bug:
        if not is_repeated:
            logger.error("! %s engine %r failed: %s", stage, name, chain_of(bug))
        error = EngineError(stage, name, f"failed ({type(bug).__name__})")
        if metrics is not None and not is_repeated:
            metrics.count("earshot_errors", code=error.code)
        raise error from bug


class StreamErrors:
    """Handles the exceptions of an engine in one audio stream, which continues. Only the first is
    logged and counted, because a stream has fifty frames a second."""

    def __init__(self, stage: str, name: str, metrics: Metrics) -> None:
        self._stage, self._name, self._metrics = stage, name, metrics
        self._has_failed = False

    def attempt(self, function: Callable[[], T], fallback: Callable[[], T]) -> T:
        """Returns the result of `function`, or that of `fallback` if `function` raises."""
        try:
            with plugin_errors(
                self._stage, self._name, self._metrics, is_repeated=self._has_failed
            ):
                return function()
        except EarshotError:
            self._has_failed = True
        return fallback()


class FaultTolerantVad:
    """A `Vad` that continues after an error of its engine. The frame counts as no speech, and the
    next frames go into a new stream."""

    def __init__(self, engine: VadEngine, metrics: Metrics) -> None:
        """Opens a stream. Raises EngineError when the engine cannot."""
        self._engine, self._errors = engine, StreamErrors("vad", engine.name, metrics)
        with plugin_errors("vad", engine.name, metrics):
            self._vad = engine.open()
            self.frame_samples = self._vad.frame_samples

    def push(self, pcm: Pcm) -> float:
        """See `Vad.push`."""
        return self._errors.attempt(lambda: self._vad.push(pcm), self._renew)

    def reset(self) -> None:
        """See `Vad.reset`."""
        self._errors.attempt(self._vad.reset, self._renew)

    def _renew(self) -> float:
        """Opens a new stream. Returns probability 0: the new stream has had no audio yet."""
        self._vad = self._errors.attempt(self._engine.open, lambda: self._vad)
        return 0.0
