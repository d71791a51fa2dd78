"""Runs of ONNX models that end when nobody listens any more.

A sentence takes a neural voice up to seconds; after a barge-in, the next answer must not wait for
the rest of the one before. ONNX Runtime looks at a run's `terminate` between two of its nodes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

from engines.tts.synthesis_thread import ClauseReceiver


class CancellableOnnxSession:
    """In place of the `InferenceSession` inside a voice's library, which knows no run options."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._thread = local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, outputs: Any, inputs: Any) -> Any:
        """Raises what ONNX Runtime raises, also when the listener leaves."""
        return self._session.run(outputs, inputs, getattr(self._thread, "options", None))

    @contextmanager
    def heard_by(self, listener: ClauseReceiver) -> Iterator[None]:
        """Runs of this thread belong to this listener."""
        from onnxruntime import RunOptions

        options = self._thread.options = RunOptions()

        def stop() -> None:
            options.terminate = True

        listener.when_gone(stop)
        try:
            yield
        finally:
            self._thread.options = None
