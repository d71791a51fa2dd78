"""The engine: items in, results out, decoded by one thread beside whatever else is under way."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock

from engines.asr.whisper_torch.batching.engine_thread import DecodeJob, DeviceThread
from engines.asr.whisper_torch.batching.request import DecodeProgramFactory
from engines.base import AsrInfo, AsrItem, AsrResult
from engines.base.asr import OnDecoded


class WhisperTorch:
    """An `AsrModel`, and a `JoiningModel`. A language that it does not know is treated as None."""

    def __init__(self, info: AsrInfo, courses: DecodeProgramFactory, loop: DeviceThread) -> None:
        """`loop` has been started."""
        self.info = info
        self._courses, self._loop = courses, loop

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """See `AsrModel.decode`. No answer depends on the other items.

        Raises EngineError for an item that is too long, RequestError as `check_prefix`.
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
        """See `JoiningModel.begin`."""
        if not items:
            done([])
            return _nothing
        call = _BatchCall(self._loop, len(items), done)
        for index, item in enumerate(items):
            call.add(self._loop.submit(self._courses.course(item), call.told(index)))
        return call.cancel

    def forget(self, utterance: str) -> None:
        """Nothing is kept between calls: features are little work beside the encoding."""

    def close(self) -> None:
        """What is under way is dropped."""
        self._loop.close()


class _BatchCall:
    """Several items of one caller."""

    def __init__(self, loop: DeviceThread, count: int, done: OnDecoded) -> None:
        self._loop, self._done = loop, done
        self._results: list[AsrResult | None] = [None] * count
        self._is_over = False
        self._lock = Lock()
        self._jobs: list[DecodeJob] = []

    def add(self, job: DecodeJob) -> None:
        """Its job may have ended before, and with an error the whole call."""
        with self._lock:
            self._jobs.append(job)
            is_over = self._is_over
        if is_over:
            self._loop.cancel(job)

    def told(self, index: int) -> Callable[[AsrResult | None, Exception | None], None]:
        """What the item's job calls when it ends."""

        def done(result: AsrResult | None, error: Exception | None) -> None:
            with self._lock:
                if self._is_over:
                    return
                self._results[index] = result
                results = [one for one in self._results if one is not None]
                self._is_over = error is not None or len(results) == len(self._results)
                if not self._is_over:
                    return
            self._done(results if error is None else error)
            if error is not None:
                self._drop()

        return done

    def cancel(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._drop()

    def _drop(self) -> None:
        for job in self._jobs:
            self._loop.cancel(job)


def _nothing() -> None:
    """There is nothing to cancel."""
