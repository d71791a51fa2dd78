"""Exceptions of engines and tools that others wrote, as errors of ours.

An engine may raise anything. A session must live through it, its user must hear an apology, and the
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
    stage: str, name: str, metrics: Metrics | None = None, *, is_told: bool = False
) -> Iterator[None]:
    """Turns whatever an engine raises into an EngineError, logs where it came from, counts it.

    `stage`: asr, llm, tts, endpoint, vad or wake. `metrics`: None where the caller counts errors
    itself. `is_told`: one of these was logged and counted before; this one is not.
    Errors of our own tree pass through unchanged.
    """
    try:
        yield
    except EarshotError:
        raise
    except Exception as bug:
        if not is_told:
            logger.error("! %s engine %r failed: %s", stage, name, chain_of(bug))
        error = EngineError(stage, name, f"failed ({type(bug).__name__})")
        if metrics is not None and not is_told:
            metrics.count("earshot_errors", code=error.code)
        raise error from bug


class StreamErrors:
    """Takes whatever an engine raises in one stream of sound, which goes on. The first error is
    logged and counted; a stream has fifty frames a second."""

    def __init__(self, stage: str, name: str, metrics: Metrics) -> None:
        self._stage, self._name, self._metrics = stage, name, metrics
        self._is_told = False

    def attempt(self, work: Callable[[], T], instead: Callable[[], T]) -> T:
        """What `work` returns; `instead` is called where it raises."""
        try:
            with plugin_errors(self._stage, self._name, self._metrics, is_told=self._is_told):
                return work()
        except EarshotError:
            self._is_told = True
        return instead()


class FaultTolerantVad:
    """A `Vad` that goes on after an error of its engine: the frame holds no speech, and the next
    ones go into a new stream."""

    def __init__(self, engine: VadEngine, metrics: Metrics) -> None:
        """Raises EngineError where the engine opens no stream."""
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
        """No speech is in what a new stream has heard."""
        self._vad = self._errors.attempt(self._engine.open, lambda: self._vad)
        return 0.0
