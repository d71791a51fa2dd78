"""A gateway's side of the model host: recognisers, voices and language models that run there."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import NoReturn

from msgspec import to_builtins

from core.errors import (
    EarshotError,
    EngineCrashed,
    EngineError,
    RemoteProtocolError,
    SupersededError,
)
from core.ports import Clock, Metrics
from engines.base import AsrInfo, AsrItem, AsrResult, WorkerProfile
from engines.runtime.worker.payloads import FORGET, AsrItemMessage
from engines.runtime.worker.protocol import (
    CallRequest,
    DoneReply,
    FailureReply,
    LoadRequest,
    decode_payload,
    frame,
    reply_reader,
)
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.model_host.messages import (
    METRICS,
    PROMOTE,
    SUBMIT,
    WATCH,
    PoolSpec,
    PoolState,
    ProcessSpec,
    SubmitArguments,
)
from serving.placement.offers import LoadableModel
from serving.scheduling.admission import AdmissionControl
from serving.scheduling.queue import RequestQueue
from serving.scheduling.scheduler import ADMIT_SHARE
from serving.scheduling.statistics import CallStatistics
from serving.workers.child_process import LOAD_TIMEOUT_S, READ_BYTES, WorkerEnd
from serving.workers.engine_process import EngineProcess, InfoT, ResultT

ANSWER_LIMIT_S = 3600.0
"""Longest time of a call, in seconds. The host has shorter limits of its own, which end the worker;
this one only bounds the gateway's wait."""

HOST_START_S = 60.0
"Seconds added to the limit for loading: the host may be starting, or loading other models."


class HostConnection:
    """The host at the other end of a connection, as `ChildProcessWorker` sees a worker. The parent
    process supervises the host itself."""

    pid = None
    returncode = None

    def __init__(self, own_end: socket.socket) -> None:
        self._socket = own_end

    def kill(self) -> None:
        """Gives up the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def wait(self) -> None:
        """Returns at once: the connection has ended, whatever became of the host."""


class _HostLost(EngineCrashed):
    """The host ended before the first part of the answer. The call may be made again: it was not
    what ended the host, because engines run in processes of their own."""


class HostedProcess(EngineProcess[InfoT]):
    """An engine that the model host runs for all gateways. `run` keeps the connection; the other
    methods are those of a worker process in this gateway."""

    _died = "the connection to the model host was lost"

    def __init__(
        self,
        path: Path,
        load: LoadRequest,
        info_type: type[InfoT],
        metrics: Metrics,
        *,
        called: str = "",
        load_timeout_s: float | None = None,
    ) -> None:
        """`path`: socket of the host. `called`: name in errors; empty: the engine's.
        `load_timeout_s`: longest time for loading; None: as for other models."""
        name = called or load.name
        limit_s = HOST_START_S + (load_timeout_s or LOAD_TIMEOUT_S)
        profile = WorkerProfile(
            load_timeout_s=limit_s,
            first_chunk_timeout_s=ANSWER_LIMIT_S,
            chunk_timeout_s=ANSWER_LIMIT_S,
        )
        label = f"{load.kind}.{name}"
        super().__init__(load, info_type, metrics, name=name, label=label, profile=profile)
        self._path = path
        self._has_ended = False
        "True once `run` has ended: no other host will be asked."

    async def run(self) -> None:
        """Keeps the connection until it is cancelled (see `ChildProcessWorker.run`)."""
        try:
            await super().run()
        finally:
            self._has_ended = True

    async def call(
        self, method: str, payload: object, result: type[ResultT], limit_s: float
    ) -> ResultT:
        """Returns the result of a call (see `EngineProcess.call`). If the host is lost meanwhile,
        the next one is asked once more."""
        try:
            return await super().call(method, payload, result, limit_s)
        except _HostLost:
            if self._has_ended:
                raise
            return await super().call(method, payload, result, limit_s)

    async def stream(
        self, method: str, arguments: object, part: type[ResultT]
    ) -> AsyncGenerator[ResultT, None]:
        """Yields the parts of a result (see `EngineProcess.stream`). If the host is lost before the
        first part, the next one is asked once more."""
        has_begun = False
        for is_last in (False, True):
            try:
                async with aclosing(super().stream(method, arguments, part)) as parts:
                    async for one in parts:
                        has_begun = True
                        yield one
                return
            except _HostLost:
                if has_begun or is_last or self._has_ended:
                    raise

    def _fail_requests(self, why: str) -> None:
        for replies in self._pending.values():
            replies.put_nowait(_HostLost(self._kind, self._name, why))
        self._pending.clear()

    async def _launch(self) -> tuple[WorkerEnd, socket.socket]:
        """Connects to the host. While it is being started, the connection waits in the queue of its
        socket, which the parent process keeps open."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, str(self._path))
        except BaseException:
            connection.close()
            raise
        return HostConnection(connection), connection

    def _describe(self, info: InfoT) -> str:
        return " at the model host"

    def _is_busy(self) -> bool:
        """Returns False: the host answers pings also while it works."""
        return False

    def _check_failures(self, code: str) -> None:
        """Does nothing: the host counts the failures of its workers."""

    def _error(self, reply: FailureReply) -> EarshotError:
        if reply.code == "superseded":
            return SupersededError(reply.message)
        return super()._error(reply)


class HostedRecogniser:
    """A recogniser whose workers and scheduler run in the model host (a `LoadedRecogniser`)."""

    def __init__(self, path: Path, offer: LoadableModel, metrics: Metrics) -> None:
        """`path`: socket of the host."""
        spec = PoolSpec(offer.name, [dict(options) for options in offer.workers], offer.lanes)
        load = LoadRequest("asr", offer.engine, to_builtins(spec))
        self._process = _HostedPoolConnection(path, load, AsrInfo, metrics, called=offer.name)
        self._state: PoolState | None = None
        "Latest state that the host has sent; None: the host is not connected."
        self._has_state = asyncio.Event()
        self._admission: AdmissionControl[AsrItem, AsrResult] = AdmissionControl(
            RequestQueue(ASR_SCHEDULING.rules), ASR_SCHEDULING, self._expected_wait_s, metrics
        )

    @property
    def is_ready(self) -> bool:
        """True if a worker at the host is running now."""
        return self._process.is_ready and self._state is not None and self._state.is_ready

    @property
    def waiting(self) -> int:
        """Number of requests of all gateways that no worker has taken yet."""
        return self._state.waiting if self._state is not None else 0

    @property
    def statistics(self) -> CallStatistics:
        """Numbers and times of the requests of all gateways."""
        return self._state.statistics if self._state is not None else CallStatistics()

    async def run(self) -> None:
        """Keeps the connection to the host until it is cancelled. Raises EngineError when the very
        first load fails."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._process.run(), name="model-host-connection")
            tasks.create_task(self._watch(), name="model-host-state")

    async def ready(self) -> AsrInfo:
        """Waits until the host has loaded the model, and returns its properties."""
        return await self._process.ready()

    async def warm_up(self) -> None:
        """Waits for the state of the pool, which the host has warmed up."""
        await self._has_state.wait()

    def resident_mb(self) -> float:
        """Returns the memory of the worker processes in MB, which all gateways share."""
        return self._state.resident_mb if self._state is not None else 0.0

    def admit(self, priority: DecodePriority) -> None:
        """Checks that work of this priority is accepted now, by the latest state. Raises
        OverloadedError."""
        self._admission.check(priority, ADMIT_SHARE)

    async def submit(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        """Has the host's scheduler recognise one item. See `Scheduler.submit`."""
        arguments = SubmitArguments(AsrItemMessage.from_item(item), priority, deadline_s)
        return await self._process.call(SUBMIT, arguments, AsrResult, ANSWER_LIMIT_S)

    def promote(self, utterance: str, /) -> None:
        """Turns a waiting speculative request into a final one. See `Scheduler.promote`."""
        self._process.notify(PROMOTE, utterance)

    def forget(self, utterance: str, /) -> None:
        """Drops what is cached for an utterance."""
        self._process.notify(FORGET, utterance)

    def _expected_wait_s(self, priority: int) -> float:
        return self._state.wait_s.get(priority, 0.0) if self._state is not None else 0.0

    async def _watch(self) -> NoReturn:
        """Follows the state of the pool, also of the next host after this one."""
        while True:
            with suppress(EngineError):
                async with aclosing(self._process.stream(WATCH, None, PoolState)) as states:
                    async for state in states:
                        self._state = state
                        self._has_state.set()
            self._state = None


class _HostedPoolConnection(HostedProcess[AsrInfo]):
    """A connection to a pool, whose load fails with an EngineError only: one model of several that
    cannot be loaded is no reason to end the server."""

    def _load_error(self, reply: FailureReply) -> EngineError:
        return self._engine_error(reply)


class HostedWorkers:
    """Model workers at the model host (a `WorkerSource`)."""

    def __init__(self, path: Path, metrics: Metrics) -> None:
        """`path`: socket of the host."""
        self._path, self._metrics = path, metrics

    def recogniser(self, offer: LoadableModel, clock: Clock) -> HostedRecogniser:
        """Returns a recogniser at the host. `clock`: the host has its own."""
        _ = clock
        return HostedRecogniser(self._path, offer, self._metrics)

    def process(
        self,
        kind: str,
        engine: str,
        options: Mapping[str, object],
        info_type: type[InfoT],
        profile: WorkerProfile,
        max_calls: int | None = None,
    ) -> EngineProcess[InfoT]:
        """Returns a voice or a language model at the host."""
        load = LoadRequest(kind, engine, to_builtins(ProcessSpec(dict(options), max_calls)))
        return HostedProcess(
            self._path, load, info_type, self._metrics, load_timeout_s=profile.load_timeout_s
        )


async def read_metrics(path: Path, limit_s: float) -> str:
    """Returns the metrics of the host in Prometheus' format; empty if it does not answer within
    `limit_s` seconds. `path`: its socket."""
    with suppress(OSError, TimeoutError, RemoteProtocolError):
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write(frame(CallRequest(1, METRICS, None)))
                replies = reply_reader()
                while data := await reader.read(READ_BYTES):
                    for reply in replies.receive_data(data):
                        if isinstance(reply, DoneReply):
                            return decode_payload(reply.payload, str)
            finally:
                writer.close()
    return ""
