"""The `AsrModel` of the engine. One thread decodes the items of all calls together."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock

from engines.asr.whisper_torch.batching.engine_thread import DecodeJob, DeviceThread
from engines.asr.whisper_torch.batching.request import DecodeProgramFactory
from engines.base import AsrInfo, AsrItem, AsrResult, OnDecoded


class WhisperTorch:
    """An `AsrModel`, and a `ConcurrentAsrModel`: calls may overlap.

    A requested language that the model does not know is detected instead.
    """

    def __init__(
        self, info: AsrInfo, programs: DecodeProgramFactory, device_thread: DeviceThread
    ) -> None:
        """device_thread: the thread of the device, started already."""
        self.info = info
        self._programs, self._device_thread = programs, device_thread

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Returns one result per item (see `AsrModel.decode`). No result depends on other items.

        Raises EngineError for an item that is too long, RequestError for a bad prefix (see
        `check_prefix`).
        """
        future: Future[list[AsrResult]] = Future()

        def done(results: list[AsrResult] | Exception) -> None:
            if isinstance(results, Exception):
                future.set_exception(results)
            else:
                future.set_result(results)

        self.begin(items, done)
        return future.result()

    def begin(self, items: Sequence[AsrItem], done: OnDecoded) -> Callable[[], None]:
        """Starts to decode items and returns at once (see `ConcurrentAsrModel.begin`).

        Calling the returned function cancels the items.
        """
        if not items:
            done([])
            return _cancel_nothing
        call = _BatchCall(self._device_thread, len(items), done)
        for index, item in enumerate(items):
            call.add(
                self._device_thread.submit(self._programs.program(item), call.on_job_end(index))
            )
        return call.cancel

    def forget(self, utterance: str) -> None:
        """Does nothing: no features are cached, as they cost little compared to the encoder."""

    def close(self) -> None:
        """Ends the thread; items in progress are dropped."""
        self._device_thread.close()


class _BatchCall:
    """The items of one `begin` call; reports when all are decoded or one failed."""

    def __init__(self, device_thread: DeviceThread, count: int, done: OnDecoded) -> None:
        self._device_thread, self._done = device_thread, done
        self._results: list[AsrResult | None] = [None] * count
        self._is_over = False
        self._lock = Lock()
        self._jobs: list[DecodeJob] = []

    def add(self, job: DecodeJob) -> None:
        """Adds the job of an item.

        The call may be over already, because an earlier job failed. Then the new job is cancelled.
        """
        with self._lock:
            self._jobs.append(job)
            is_over = self._is_over
        if is_over:
            self._device_thread.cancel(job)

    def on_job_end(self, index: int) -> Callable[[AsrResult | None, Exception | None], None]:
        """Returns the function that the job of item `index` calls at its end."""

        def done(result: AsrResult | None, error: Exception | None) -> None:
            with self._lock:
                if self._is_over:
                    return
                self._results[index] = result
                results = [result for result in self._results if result is not None]
                self._is_over = error is not None or len(results) == len(self._results)
                if not self._is_over:
                    return
            self._done(results if error is None else error)
            if error is not None:
                self._cancel_jobs()

        return done

    def cancel(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._cancel_jobs()

    def _cancel_jobs(self) -> None:
        for job in self._jobs:
            self._device_thread.cancel(job)


def _cancel_nothing() -> None:
    """Cancels an empty call."""
