"""Runs of ONNX models that can be cancelled.

A neural voice can take seconds for a sentence. After a barge-in, the next answer must not wait for
the rest of the cancelled one. ONNX Runtime checks the flag `terminate` of a run between two nodes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

from engines.tts.shared.synthesis_thread import ClauseReceiver


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
        """Runs the model. Raises an error of ONNX Runtime if it fails or is cancelled."""
        return self._session.run(outputs, inputs, getattr(self._thread, "options", None))

    @contextmanager
    def cancellable_by(self, receiver: ClauseReceiver) -> Iterator[None]:
        """Makes runs cancellable: while the context is open, a run in this thread ends as soon as
        `receiver` is cancelled. The run then raises an error of ONNX Runtime."""
        from onnxruntime import RunOptions

        options = self._thread.options = RunOptions()

        def stop() -> None:
            options.terminate = True

        receiver.on_cancel(stop)
        try:
            yield
        finally:
            self._thread.options = None
