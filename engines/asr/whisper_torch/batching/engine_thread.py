"""One thread that owns the device: it encodes, steps all rows, and lets requests join and leave.

A request is a course: a generator that asks for one thing after the other (`EncodeTask`,
`GenerateTask`) and
returns its result. What one course waits for is done together with what the others wait for.
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
from engines.asr.whisper_torch.network.device import ENCODED_AT_ONCE

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """Answered by what is heard in the window, (positions, width)."""

    window: torch.Tensor
    "(mels, frames)."


@dataclass(frozen=True, slots=True)
class GenerateTask:
    """Answered by a list of `GeneratedTokens`, one for each of `rows`, which need not run
    together."""

    encoded: torch.Tensor
    rows: Sequence[NewRow]


@dataclass(frozen=True, slots=True)
class SideTask:
    """Answered by what `call` returns; nobody waits for it but its own course."""

    call: Callable[[], Any]


DeviceTask = EncodeTask | GenerateTask | SideTask

DecodeProgram = Generator[DeviceTask, Any, Any]

OnProgramEnd = Callable[[Any, Exception | None], None]
"Told the result, or why there is none; in the loop's thread."


@dataclass(eq=False, slots=True)
class DecodeJob:
    """A course under way."""

    course: DecodeProgram
    done: OnProgramEnd
    is_cancelled: bool = False
    asked: DeviceTask | None = None
    "None: it has not begun."
    seats: dict[int, SlotRange] = field(default_factory=dict)
    "Index of the asked row -> where it is written."
    written: dict[int, GeneratedTokens] = field(default_factory=dict)


class DeviceThread:
    """`start` it, `close` it. `submit` and `cancel` may be called from any thread."""

    def __init__(self, rows: SlotTable, launcher: KernelLauncher, device: torch.device) -> None:
        self._rows, self._launcher, self._device = rows, launcher, device
        self._changed = Condition()
        self._new: deque[DecodeJob] = deque()
        self._over: deque[tuple[DecodeJob, Future[Any]]] = deque()
        "What was computed apart."
        self._apart = ThreadPoolExecutor(1, "whisper-torch-apart", self._enter)
        self._jobs: list[DecodeJob] = []
        "In the order in which they came."
        self._is_closing = False
        self._thread = Thread(target=self._run, name="whisper-torch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """What is under way is dropped without an answer."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._apart.shutdown()

    def submit(self, course: DecodeProgram, done: OnProgramEnd) -> DecodeJob:
        """Begin at the next step."""
        job = DecodeJob(course, done)
        with self._changed:
            self._new.append(job)
            self._changed.notify()
        return job

    def cancel(self, job: DecodeJob) -> None:
        """Its rows are free at the next step; `done` is not told. Nothing when it is over."""
        with self._changed:
            job.is_cancelled = True
            self._changed.notify()

    def _run(self) -> None:
        self._enter()
        with torch.inference_mode():
            while self._wait():
                self.turn()

    def _enter(self) -> None:
        """In a thread of ours: events and streams are its own."""
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)

    def _wait(self) -> bool:
        """Until there is work. False: the loop is being closed."""
        with self._changed:
            while not (self._new or self._over or self._is_closing or self._has_work()):
                self._changed.wait()
            return not self._is_closing

    def _has_work(self) -> bool:
        """Somebody waits for more than for what is computed apart."""
        return any(job.is_cancelled or not isinstance(job.asked, SideTask) for job in self._jobs)

    def turn(self) -> None:
        """What happens between two steps, and a step."""
        try:
            self._admit()
            self._encode()
            self._join()
            if self._rows.seats:
                self._rows.step()
            ended = self._rows.ended()
            for seat, written in zip(ended, self._rows.answers(ended), strict=True):
                self._end(seat, written)
        except Exception as error:  # the device failed: nobody's rows can be trusted
            logger.exception("a step failed")
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Everybody is told before a device is touched that may stay broken: then the next requests
        fail as well, and the supervisor ends the process (`serving.workers.hang_detection`)."""
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
        """Windows of equal length together; one call, then the rows have their step."""
        waiting = [job for job in self._jobs if isinstance(job.asked, EncodeTask)]
        if not waiting:
            return
        first = _window(waiting[0])
        alike = [job for job in waiting if _window(job).shape == first.shape]
        batch = alike[: next(size for size in ENCODED_AT_ONCE if size <= len(alike))]
        encoded = self._launcher.encode(torch.stack([_window(job) for job in batch]))
        for job, one in zip(batch, encoded, strict=True):
            self._go_on(job, one)

    def _join(self) -> None:
        """Who came first has the first rows; one that needs many is not overtaken."""
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
        except Exception as error:  # of this request alone
            self._jobs.remove(job)
            job.done(None, error)
        else:
            if isinstance(job.asked, SideTask):
                call = self._apart.submit(_inferring, job.asked.call)
                call.add_done_callback(partial(self._came, job))

    def _came(self, job: DecodeJob, call: Future[Any]) -> None:
        """In any thread."""
        with self._changed:
            self._over.append((job, call))
            self._changed.notify()

    def _drop(self, job: DecodeJob) -> None:
        for seat in job.seats.values():
            self._rows.leave(seat)
        job.course.close()
        self._jobs.remove(job)


def _try(call: Callable[[], Any]) -> None:
    """Part of cleaning up: the rest of it goes on."""
    try:
        call()
    except Exception as error:  # the first one was logged whole
        logger.error("after a failed step: %r", error)


def _inferring(call: Callable[[], Any]) -> Any:
    with torch.inference_mode():
        return call()


def _window(job: DecodeJob) -> torch.Tensor:
    assert isinstance(job.asked, EncodeTask)
    return job.asked.window
