"""The thread that owns the device. It encodes, steps all rows, and lets requests join and leave.

A request is a `DecodeProgram`: a generator that yields one task after the other (`EncodeTask`,
`GenerateTask`, `SideTask`). It is sent the result of each task, and returns the result of the
request. Tasks of all programs are batched.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Thread
from typing import Any

import torch

from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.batching.slots import GeneratedTokens, SlotRange, SlotTable
from engines.asr.whisper_torch.network.cuda_graphs import KernelLauncher
from engines.asr.whisper_torch.network.device import ENCODE_BATCH_SIZES

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """Task to encode a window. Its result is the encoder's output, shape (positions, width)."""

    window: torch.Tensor
    "Normalised features, shape (mels, frames)."


@dataclass(frozen=True, slots=True)
class GenerateTask:
    """Task to write answers. Its result is a list of `GeneratedTokens`, one for each of `rows`.

    The rows need not run at the same time.
    """

    encoded: torch.Tensor
    "Encoder output, shape (positions, width)."
    rows: Sequence[NewRow]


@dataclass(frozen=True, slots=True)
class SideTask:
    """Task to run `call` in a second thread. Only its own program waits for the result."""

    call: Callable[[], Any]


DeviceTask = EncodeTask | GenerateTask | SideTask

DecodeProgram = Generator[DeviceTask, Any, Any]

OnProgramEnd = Callable[[Any, Exception | None], None]
"Called in the device's thread with (result, None), or with (None, error)."


@dataclass(eq=False, slots=True)
class DecodeJob:
    """A program in progress."""

    course: DecodeProgram
    done: OnProgramEnd
    is_cancelled: bool = False
    asked: DeviceTask | None = None
    "Task that the program waits for; None: it has not begun."
    seats: dict[int, SlotRange] = field(default_factory=dict)
    "Index in `GenerateTask.rows` -> the device's rows that write it."
    written: dict[int, GeneratedTokens] = field(default_factory=dict)
    "Index in `GenerateTask.rows` -> its finished answer."


class DeviceThread:
    """The thread of the device, which runs between `start` and `close`.

    `submit` and `cancel` may be called from any thread.
    """

    def __init__(self, rows: SlotTable, launcher: KernelLauncher, device: torch.device) -> None:
        self._rows, self._launcher, self._device = rows, launcher, device
        self._changed = Condition()
        self._new: deque[DecodeJob] = deque()
        self._over: deque[tuple[DecodeJob, Future[Any]]] = deque()
        "Finished side tasks."
        self._apart = ThreadPoolExecutor(1, "whisper-torch-apart", self._enter)
        self._jobs: list[DecodeJob] = []
        "Programs in progress, in the order of their arrival."
        self._is_closing = False
        self._thread = Thread(target=self._run, name="whisper-torch", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; programs in progress are dropped without a result."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._apart.shutdown()

    def submit(self, course: DecodeProgram, done: OnProgramEnd) -> DecodeJob:
        """Starts a program at the next step. done: called at its end, unless it is cancelled."""
        job = DecodeJob(course, done)
        with self._changed:
            self._new.append(job)
            self._changed.notify()
        return job

    def cancel(self, job: DecodeJob) -> None:
        """Frees the job's rows at the next step, without a call of `done`.

        Does nothing for a job that is over.
        """
        with self._changed:
            job.is_cancelled = True
            self._changed.notify()

    def _run(self) -> None:
        self._enter()
        with torch.inference_mode():
            while self._wait():
                self.turn()

    def _enter(self) -> None:
        """Selects the device in a new thread: torch keeps this setting per thread."""
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)

    def _wait(self) -> bool:
        """Waits until there is work. Returns False when the thread must end."""
        with self._changed:
            while not (self._new or self._over or self._is_closing or self._has_work()):
                self._changed.wait()
            return not self._is_closing

    def _has_work(self) -> bool:
        """Returns True if any job is cancelled, or waits for another task than a side task."""
        return any(job.is_cancelled or not isinstance(job.asked, SideTask) for job in self._jobs)

    def turn(self) -> None:
        """Lets jobs join and leave, encodes, and steps all rows once."""
        try:
            self._admit()
            self._encode()
            self._join()
            if self._rows.seats:
                self._rows.step()
            ended = self._rows.ended()
            for seat, written in zip(ended, self._rows.answers(ended), strict=True):
                self._end(seat, written)
        except Exception as error:  # the device failed: no row can be trusted any more
            logger.exception("a step failed")
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Reports `error` to all jobs, and only then frees their rows on the device.

        The device may stay broken. Then the next requests fail as well, and the supervisor ends the
        process (`serving.workers.hang_detection`).
        """
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            if not job.is_cancelled:
                _try(partial(job.done, None, error))
        for job in jobs:
            for seat in job.seats.values():
                _try(partial(self._rows.leave, seat))
            _try(job.course.close)

    def _admit(self) -> None:
        with self._changed:
            new, over = list(self._new), list(self._over)
            self._new.clear()
            self._over.clear()
        for job in new:
            self._jobs.append(job)
        for job in [job for job in self._jobs if job.is_cancelled]:
            self._drop(job)
        for job in new:
            if job in self._jobs:
                self._go_on(job, None)
        for job, answer in over:
            if job in self._jobs:
                self._go_on(job, answer)

    def _encode(self) -> None:
        """Encodes waiting windows of equal length, in one call: then it is the rows' turn."""
        waiting = [job for job in self._jobs if isinstance(job.asked, EncodeTask)]
        if not waiting:
            return
        first = _window(waiting[0])
        alike = [job for job in waiting if _window(job).shape == first.shape]
        batch = alike[: next(size for size in ENCODE_BATCH_SIZES if size <= len(alike))]
        encoded = self._launcher.encode(torch.stack([_window(job) for job in batch]))
        for job, one in zip(batch, encoded, strict=True):
            self._go_on(job, one)

    def _join(self) -> None:
        """Gives free rows to waiting jobs in the order of their arrival.

        If the first one needs more rows than are free, later ones wait too.
        """
        for job in self._jobs:
            if not isinstance(job.asked, GenerateTask):
                continue
            for index, new in enumerate(job.asked.rows):
                if index in job.seats or index in job.written:
                    continue
                first = self._rows.room(new.beam_size)
                if first is None:
                    return
                job.seats[index] = self._rows.join(first, new, job.asked.encoded)

    def _end(self, seat: SlotRange, written: GeneratedTokens) -> None:
        job, index = next(
            (job, i) for job in self._jobs for i, one in job.seats.items() if one is seat
        )
        job.written[index] = written
        del job.seats[index]
        self._rows.leave(seat)
        if isinstance(job.asked, GenerateTask) and len(job.written) == len(job.asked.rows):
            self._go_on(job, [job.written[i] for i in sorted(job.written)])

    def _go_on(self, job: DecodeJob, answer: Any) -> None:
        job.written = {}
        try:
            if isinstance(answer, Future):
                answer = answer.result()
            job.asked = job.course.send(answer)
        except StopIteration as stop:
            self._jobs.remove(job)
            job.done(stop.value, None)
        except Exception as error:  # only this request fails
            self._jobs.remove(job)
            job.done(None, error)
        else:
            if isinstance(job.asked, SideTask):
                call = self._apart.submit(_inferring, job.asked.call)
                call.add_done_callback(partial(self._came, job))

    def _came(self, job: DecodeJob, call: Future[Any]) -> None:
        """Takes the result of a side task; called in any thread."""
        with self._changed:
            self._over.append((job, call))
            self._changed.notify()

    def _drop(self, job: DecodeJob) -> None:
        for seat in job.seats.values():
            self._rows.leave(seat)
        job.course.close()
        self._jobs.remove(job)


def _try(call: Callable[[], Any]) -> None:
    """Runs one part of the clean-up; an error is logged, and the rest goes on."""
    try:
        call()
    except Exception as error:  # the first error was logged with its traceback
        logger.error("after a failed step: %r", error)


def _inferring(call: Callable[[], Any]) -> Any:
    with torch.inference_mode():
        return call()


def _window(job: DecodeJob) -> torch.Tensor:
    assert isinstance(job.asked, EncodeTask)
    return job.asked.window
