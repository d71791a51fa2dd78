"""Runs of ONNX models that can be cancelled.

A neural voice takes up to seconds for a sentence. After a barge-in the next answer must not wait
for the rest of the cancelled one. ONNX Runtime checks a run's `terminate` between two nodes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

from engines.tts.synthesis_thread import ClauseReceiver


class CancellableOnnxSession:
    """Wrapper of an `InferenceSession` that adds run options to each run.

    It replaces the session inside a voice's library, which passes no run options.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._thread = local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, outputs: Any, inputs: Any) -> Any:
        """Runs the model. Raises ONNX Runtime's errors, also after the receiver was cancelled."""
        return self._session.run(outputs, inputs, getattr(self._thread, "options", None))

    @contextmanager
    def cancellable_by(self, listener: ClauseReceiver) -> Iterator[None]:
        """Lets a receiver cancel the model: while the context is open, runs of this thread end as
        soon as `listener` is cancelled. The run then raises ONNX Runtime's error."""
        from onnxruntime import RunOptions

        options = self._thread.options = RunOptions()

        def stop() -> None:
            options.terminate = True

        listener.on_cancel(stop)
        try:
            yield
        finally:
            self._thread.options = None
