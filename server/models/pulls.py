"""Downloads of models that clients of the API start. Each runs `earshot models pull` in a process
of its own, so that cancelling it ends all of it at once, and its memory is returned."""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from core.errors import EarshotError, NotFound, OverloadedError, RequestError
from server.models.progress import PullBytes, PullDone, PullEvent, PullFailed, PullNote
from server.models.source_spec import source_of

logger = logging.getLogger(__name__)

MAX_RUNNING = 2
"Largest number of downloads at a time. More would only share the same line and disk."

MAX_ENDED = 8
"Number of ended downloads that are remembered, for a page that was closed meanwhile."

RETRY_AFTER_S = 60
"Seconds after which a refused download may be tried again."

END_S = 5.0
"Longest time that a cancelled download has to end by itself, in seconds; then it is killed."

MAX_NAME_CHARS = 200
"Longest name of a model; `organisation/repository` of a hub has at most 193 characters."

EARSHOT = (sys.executable, "-m", "server")
"The program `earshot`."

CATALOGUE_VARIABLE = "EARSHOT_MODELS__CATALOGUE"
"Names the user's catalogue to the program, whichever configuration file it finds."

PullState = Literal["running", "done", "failed", "cancelled"]


class ModelPull(Struct, frozen=True):
    """One download, as it is now."""

    model: str
    "Name as it was asked for."
    state: PullState = "running"
    done_bytes: int = 0
    total_bytes: int = 0
    "0: the size is not known, or not yet."
    bytes_per_s: int = 0
    seconds_left: int | None = None
    "None: unknown."
    note: str = ""
    "Last message of a running download, such as where the model comes from."
    kind: str = ""
    "Kind of a finished download: ct2, checkpoint, voice, embed, rerank or clip."
    code: str = ""
    "Code of the error of a failed download."
    message: str = ""
    "Message of the error of a failed download."


class _Job:
    """One download, and its listeners' event."""

    def __init__(self, model: str) -> None:
        self.pull = ModelPull(model)
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        "Set with the next change; then another event takes its place."

    def update(self, pull: ModelPull) -> None:
        self.pull = pull
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class ModelPulls:
    """The downloads of a server. `run` must run while downloads are started."""

    def __init__(
        self,
        models_dir: Path,
        command: Sequence[str] = EARSHOT,
        on_done: Callable[[], None] = lambda: None,
        catalogue: str = "",
    ) -> None:
        """`models_dir`: folder that gets the models. `command`: the program that downloads.
        `on_done`: called when a model is there, before its watchers learn of it. `catalogue`: the
        setting `models.catalogue`."""
        self._models_dir, self._command, self._on_done = models_dir, command, on_done
        self._catalogue = catalogue
        self._jobs: dict[str, _Job] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Owns the downloads. Cancelling it cancels them all."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None

    @property
    def pulls(self) -> tuple[ModelPull, ...]:
        """All downloads that run, and the last ones that ended, oldest first."""
        return tuple(job.pull for job in self._jobs.values())

    def start(self, model: str) -> ModelPull:
        """Starts a download and returns its state; the same one is not started twice.

        Raises NotFound for an unknown name, RequestError for a name that cannot be pulled here,
        OverloadedError if too many downloads run.
        """
        _check_name(model)
        job = self._jobs.get(model)
        if job is not None and job.pull.state == "running":
            return job.pull
        running = [job for job in self._jobs.values() if job.pull.state == "running"]
        if len(running) >= MAX_RUNNING or self._tasks is None:
            names = ", ".join(job.pull.model for job in running) or "none, the server is stopping"
            raise OverloadedError(
                f"at most {MAX_RUNNING} models are downloaded at a time; now: {names}",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_downloads",
            )
        self._jobs.pop(model, None)
        self._jobs[model] = job = _Job(model)
        # An empty context: the download outlives its request, and its log lines must not carry that
        # request's id.
        job.task = self._tasks.create_task(self._run(job), name=f"pull-{model}", context=Context())
        self._forget_old()
        return job.pull

    async def cancel(self, model: str) -> None:
        """Cancels a download, and waits for its end. What was fetched stays, so that another
        download continues there. Raises NotFound if none of that name runs."""
        job = self._jobs.get(model)
        if job is None or job.task is None or job.pull.state != "running":
            raise NotFound(f"{model[:64]!r} is not being downloaded", code="download_not_found")
        job.task.cancel()
        await asyncio.wait([job.task])

    async def events(self, model: str) -> AsyncGenerator[ModelPull, None]:
        """Yields the state of a download now and at each change, until it has ended. A slow reader
        gets only the newest state."""
        job = self._jobs[model]
        while True:
            changed, pull = job.changed, job.pull
            yield pull
            if pull.state != "running":
                return
            if job.pull is pull:
                await changed.wait()

    def _forget_old(self) -> None:
        ended = [name for name, job in self._jobs.items() if job.pull.state != "running"]
        for name in ended[:-MAX_ENDED]:
            del self._jobs[name]

    async def _run(self, job: _Job) -> None:
        model = job.pull.model
        options = ("--json", "--models-dir", str(self._models_dir))
        try:
            # -- : a name is never an option. Its own process group: pip is part of the download.
            process = await asyncio.create_subprocess_exec(
                *(*self._command, "models", "pull", *options, "--", model),
                stdin=DEVNULL,
                stdout=PIPE,
                env={**os.environ, CATALOGUE_VARIABLE: self._catalogue},
                start_new_session=True,
            )
            try:
                await self._follow(job, process)
            finally:
                await _end(process)
        except asyncio.CancelledError:
            if job.pull.state == "running":  # otherwise only the process was still ending
                job.update(replace(job.pull, state="cancelled", seconds_left=None))
            raise
        except (OSError, ValueError, msgspec.DecodeError) as error:
            # The program cannot be started, or its output is no event.
            job.update(replace(job.pull, state="failed", code="model_failed", message=str(error)))
        logger.info("= download of %s: %s %s", model, job.pull.state, job.pull.message)

    async def _follow(self, job: _Job, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            event = msgspec.json.decode(line, type=PullEvent)
            if isinstance(event, PullDone):
                self._on_done()
            job.update(_with_event(job.pull, event))
        if job.pull.state == "running":
            code = await process.wait()
            message = f"the download ended without a result (exit code {code})"
            job.update(replace(job.pull, state="failed", code=EarshotError.code, message=message))


def _check_name(model: str) -> None:
    """Refuses what cannot be pulled here. Raises NotFound, RequestError."""
    if not model or len(model) > MAX_NAME_CHARS:
        raise RequestError(
            f"'model' must have 1 to {MAX_NAME_CHARS} characters",
            code="invalid_value",
            param="model",
        )
    if "://" in model:  # a caller must not choose which hosts this server connects to
        raise RequestError(
            "'model' must be a name or ORGANISATION/REPOSITORY; `earshot models pull` also takes"
            " addresses",
            code="invalid_value",
            param="model",
        )
    source_of(model)


def _with_event(pull: ModelPull, event: PullEvent) -> ModelPull:
    match event:
        case PullNote(text):
            return replace(pull, note=text)
        case PullBytes(done_bytes, total_bytes, bytes_per_s):
            left_bytes = total_bytes - done_bytes
            left_s = left_bytes // bytes_per_s if total_bytes and bytes_per_s else None
            return replace(
                pull,
                done_bytes=done_bytes,
                total_bytes=total_bytes,
                bytes_per_s=bytes_per_s,
                seconds_left=left_s,
            )
        case PullDone(_, kind, _):
            return replace(pull, state="done", kind=kind, seconds_left=None, note="")
        case PullFailed(code, message):
            return replace(pull, state="failed", code=code, message=message, seconds_left=None)


async def _end(process: Process) -> None:
    """Ends the process and its children, if they still run."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
                return
