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

    program: DecodeProgram
    done: OnProgramEnd
    is_cancelled: bool = False
    task: DeviceTask | None = None
    "Task that the program waits for; None: it has not begun."
    slot_ranges: dict[int, SlotRange] = field(default_factory=dict)
    "Index in `GenerateTask.rows` -> the device's rows that write it."
    generated: dict[int, GeneratedTokens] = field(default_factory=dict)
    "Index in `GenerateTask.rows` -> its finished answer."


class DeviceThread:
    """The thread of the device, which runs between `start` and `close`.

    `submit` and `cancel` may be called from any thread.
    """

    def __init__(self, rows: SlotTable, launcher: KernelLauncher, device: torch.device) -> None:
        self._rows, self._launcher, self._device = rows, launcher, device
        self._changed = Condition()
        self._new: deque[DecodeJob] = deque()
        self._finished_tasks: deque[tuple[DecodeJob, Future[Any]]] = deque()
        "Finished side tasks."
        self._side_executor = ThreadPoolExecutor(1, "whisper-torch-side", self._enter)
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
        self._side_executor.shutdown()

    def submit(self, program: DecodeProgram, done: OnProgramEnd) -> DecodeJob:
        """Starts a program at the next step. done: called at its end, unless it is cancelled."""
        job = DecodeJob(program, done)
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
                self.run_once()

    def _enter(self) -> None:
        """Selects the device in a new thread: torch keeps this setting per thread."""
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)

    def _wait(self) -> bool:
        """Waits until there is work. Returns False when the thread must end."""
        with self._changed:
            while not (self._new or self._finished_tasks or self._is_closing or self._has_work()):
                self._changed.wait()
            return not self._is_closing

    def _has_work(self) -> bool:
        """Returns True if any job is cancelled, or waits for another task than a side task."""
        return any(job.is_cancelled or not isinstance(job.task, SideTask) for job in self._jobs)

    def run_once(self) -> None:
        """Lets jobs join and leave, encodes, and steps all rows once."""
        try:
            self._admit()
            self._encode()
            self._assign_rows()
            if self._rows.slot_ranges:
                self._rows.step()
            ended = self._rows.ended()
            for slot_range, generated in zip(ended, self._rows.answers(ended), strict=True):
                self._end_answer(slot_range, generated)
        except Exception as error:  # the device failed: no row can be trusted any more
            logger.exception(
                "! asr.whisper_torch: a step failed, and with it all requests in progress"
            )
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Reports `error` to all jobs, and only then frees their rows on the device.

        The device may stay broken. Then the next requests fail as well, and the supervisor ends the
        process (`serving.workers.hang_detection`).
        """
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            if not job.is_cancelled:
                _run_cleanup(partial(job.done, None, error))
        for job in jobs:
            for slot_range in job.slot_ranges.values():
                _run_cleanup(partial(self._rows.leave, slot_range))
            _run_cleanup(job.program.close)

    def _admit(self) -> None:
        with self._changed:
            new, finished = list(self._new), list(self._finished_tasks)
            self._new.clear()
            self._finished_tasks.clear()
        for job in new:
            self._jobs.append(job)
        for job in [job for job in self._jobs if job.is_cancelled]:
            self._drop(job)
        for job in new:
            if job in self._jobs:
                self._resume(job, None)
        for job, result in finished:
            if job in self._jobs:
                self._resume(job, result)

    def _encode(self) -> None:
        """Encodes waiting windows of equal length, in one call, so that the rows wait only once."""
        waiting = [job for job in self._jobs if isinstance(job.task, EncodeTask)]
        if not waiting:
            return
        first = _window(waiting[0])
        same_length = [job for job in waiting if _window(job).shape == first.shape]
        batch = same_length[: next(size for size in ENCODE_BATCH_SIZES if size <= len(same_length))]
        encoded = self._launcher.encode(torch.stack([_window(job) for job in batch]))
        for job, output in zip(batch, encoded, strict=True):
            self._resume(job, output)

    def _assign_rows(self) -> None:
        """Gives free rows to waiting jobs in the order of their arrival.

        If the first one needs more rows than are free, later ones wait too.
        """
        for job in self._jobs:
            if not isinstance(job.task, GenerateTask):
                continue
            for index, new in enumerate(job.task.rows):
                if index in job.slot_ranges or index in job.generated:
                    continue
                first = self._rows.find_free(new.beam_size)
                if first is None:
                    return
                job.slot_ranges[index] = self._rows.join(first, new, job.task.encoded)

    def _end_answer(self, slot_range: SlotRange, generated: GeneratedTokens) -> None:
        job, index = next(
            (job, i)
            for job in self._jobs
            for i, known in job.slot_ranges.items()
            if known is slot_range
        )
        job.generated[index] = generated
        del job.slot_ranges[index]
        self._rows.leave(slot_range)
        if isinstance(job.task, GenerateTask) and len(job.generated) == len(job.task.rows):
            self._resume(job, [job.generated[i] for i in sorted(job.generated)])

    def _resume(self, job: DecodeJob, result: object) -> None:
        job.generated = {}
        try:
            if isinstance(result, Future):
                result = result.result()
            job.task = job.program.send(result)
        except StopIteration as stop:
            self._jobs.remove(job)
            job.done(stop.value, None)
        except Exception as error:  # only this request fails
            self._jobs.remove(job)
            job.done(None, error)
        else:
            if isinstance(job.task, SideTask):
                call = self._side_executor.submit(_in_inference_mode, job.task.call)
                call.add_done_callback(partial(self._on_side_task_done, job))

    def _on_side_task_done(self, job: DecodeJob, call: Future[Any]) -> None:
        """Takes the result of a side task; called in any thread."""
        with self._changed:
            self._finished_tasks.append((job, call))
            self._changed.notify()

    def _drop(self, job: DecodeJob) -> None:
        for slot_range in job.slot_ranges.values():
            self._rows.leave(slot_range)
        job.program.close()
        self._jobs.remove(job)


def _run_cleanup(call: Callable[[], Any]) -> None:
    """Runs one part of the clean-up; an error is logged, and the rest goes on."""
    try:
        call()
    except Exception as error:  # the first error was logged with its traceback
        logger.error("! asr.whisper_torch: the clean-up after a failed step failed: %r", error)


def _in_inference_mode(call: Callable[[], Any]) -> object:
    with torch.inference_mode():
        return call()


def _window(job: DecodeJob) -> torch.Tensor:
    assert isinstance(job.task, EncodeTask)
    return job.task.window
