"""One engine of any kind as replicas on the cluster, with the methods of an `EngineProcess`.

A call that loses its replica is sent to another one. Each request of recognition carries the whole
utterance, so nothing of it is lost. A stream is sent again only while none of its parts has come:
two voices or two answers do not join.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Generic, TypeVar

from msgspec import Raw

from core.errors import (
    ConfigError,
    EarshotError,
    EngineCrashed,
    EngineError,
    EngineTimeout,
    RemoteProtocolError,
)
from core.ports import Metrics
from engines.base import AsrInfo, AsrItem, AsrResult, WorkerProfile
from engines.runtime.worker.payloads import DECODE, FORGET, AsrBatch, AsrItemMessage
from engines.runtime.worker.protocol import (
    CallRequest,
    ChunkReply,
    DoneReply,
    FailureReply,
    LoadRequest,
    ReadyReply,
    decode_payload,
    frame,
    read_message,
    reply_reader,
)
from serving.cluster.deployment import RayCluster, ReplicaHandle, ReplicaLost
from serving.cluster.settings import ReplicaPlan
from serving.workers.batch_process import CALL_LIMIT_S, ItemT
from serving.workers.engine_process import engine_error_of, error_of
from serving.workers.hang_detection import HangDetector

logger = logging.getLogger(__name__)

TRIES = 3
"Times that a call is sent. Two replicas that are lost one after the other are bad luck."

START_S = 60.0
"""Time in seconds that a call may wait for a replica, in addition to its own limit. When the last
one was lost, another must load first."""

FORGET_LIMIT_S = 10.0
"Longest time of a call whose result is not needed."

MAX_NOTIFICATIONS = 64
"Largest number of calls in flight whose result is not needed. Further ones are left out."

InfoT = TypeVar("InfoT")
ResultT = TypeVar("ResultT")

Reply = ReadyReply[Raw] | ChunkReply[Raw] | DoneReply[Raw] | FailureReply


class ReplicatedEngine(Generic[InfoT]):
    """Has an engine run on the cluster, and calls it. `run` deploys it; the other methods are for
    its callers."""

    def __init__(
        self,
        cluster: RayCluster,
        plan: ReplicaPlan,
        load: LoadRequest,
        info_type: type[InfoT],
        metrics: Metrics,
        *,
        name: str,
        is_sticky: bool = False,
        profile: WorkerProfile | None = None,
    ) -> None:
        """Prepares the engine; `run` deploys it.

        `cluster`: the connection, which must be open while `run` runs. `load`: the engine and its
        settings. `info_type`: type of the properties that it reports. `name`: the name in errors.
        `is_sticky`: True: calls of one session go to one replica. `profile`: time limits.
        """
        self._cluster, self._plan, self._load = cluster, plan, load
        self._info_type, self._metrics, self._is_sticky = info_type, metrics, is_sticky
        self._kind, self._name = load.kind, name
        self._profile = profile or WorkerProfile()
        self._handle: ReplicaHandle | None = None
        self._ready: asyncio.Future[InfoT] | None = None
        self._notifications: asyncio.TaskGroup | None = None
        self._notifying = 0

    @property
    def pid(self) -> int | None:
        """None: no process of this machine."""
        return None

    @property
    def replicas(self) -> int:
        """Largest number of replicas, each with room for as many calls as one process."""
        return self._plan.pool.most_replicas

    @property
    def is_ready(self) -> bool:
        """True if the engine is deployed. The cluster replaces replicas that are lost."""
        return self._handle is not None

    async def ready(self) -> InfoT:
        """Waits until a replica has loaded the engine, and returns its properties. Raises
        EngineError when it does not load."""
        return await asyncio.shield(self._ready_future())

    async def run(self) -> None:
        """Deploys the engine, and serves until it is cancelled. The replicas stay when it ends:
        other gateways use them. Raises EngineError when the engine does not load."""
        ready = self._ready_future()
        try:
            load = bytes(frame(self._load))
            handle = await self._cluster.deploy(self._plan, load, is_sticky=self._is_sticky)
            info = await self._describe(handle)
        except (EngineError, ConfigError) as error:
            if not ready.done():
                ready.set_exception(error)
                ready.exception()  # mark it as retrieved: it is raised here, too
            raise
        self._handle = handle
        if not ready.done():
            ready.set_result(info)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._notifications = tasks
                await asyncio.Event().wait()  # until it is cancelled
        finally:
            self._handle = self._notifications = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps the engine deployed while the context is open. `ready` reports a failure."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run_quietly(), name=self._plan.name)
            yield
            task.cancel()

    async def _run_quietly(self) -> None:
        """Runs without raising the error of the deployment, which `ready` reports."""
        with suppress(EngineError, ConfigError):
            await self.run()

    async def call(
        self,
        method: str,
        payload: object,
        result: type[ResultT],
        limit_s: float,
        session: str = "",
    ) -> ResultT:
        """Returns the result of a call. If its replica is lost, it is sent to another one.
        `result`: type of the result. `session`: id of the sequence whose state a replica keeps.

        Raises EngineError: EngineCrashed when the replicas are lost again and again; EngineTimeout
        when none answers in time. Other errors of the engine keep their class.
        """
        await self.ready()
        request = self._frame(method, payload)
        for attempt in range(TRIES):
            try:
                # A replica holds some more calls than it computes, so this one may wait for others.
                async with asyncio.timeout(START_S + 2 * limit_s):
                    data = await self._open_handle().compute(request, limit_s, session)
                break
            except ReplicaLost as error:
                self._note_loss(error, attempt)
            except TimeoutError:
                raise self._timeout(limit_s) from None
        else:
            raise self._lost_error()
        reply = self._reply(data)
        if isinstance(reply, DoneReply):
            return self._decoded(reply.payload, result)
        raise self._failure(reply)

    async def stream(
        self, method: str, arguments: object, part: type[ResultT]
    ) -> AsyncGenerator[ResultT, None]:
        """Yields the parts of a call's result as they come. Closing the generator frees the
        replica. A call whose replica is lost before the first part is sent to another one. `part`:
        type of the parts. Raises like `call`; the time limits are those of the profile."""
        await self.ready()
        request, has_part = self._frame(method, arguments), False
        for attempt in range(TRIES):
            limit_s = self._profile.first_chunk_timeout_s
            try:
                async with aclosing(self._open_handle().stream(request, limit_s)) as replies:
                    while True:
                        async with asyncio.timeout(limit_s if has_part else START_S + limit_s):
                            reply = self._reply(await anext(replies))
                        if isinstance(reply, DoneReply):
                            return
                        if not isinstance(reply, ChunkReply):
                            raise self._failure(reply)
                        limit_s = self._profile.chunk_timeout_s
                        has_part = True
                        yield self._decoded(reply.payload, part)
            except TimeoutError:
                raise self._timeout(limit_s) from None
            except (ReplicaLost, StopAsyncIteration) as error:
                self._note_loss(error, attempt)
                if has_part:
                    break
        raise self._lost_error()

    def notify(self, method: str, payload: object, session: str = "") -> None:
        """Makes a call whose result is not needed. An engine that is not deployed does not get it,
        nor one that has too many such calls in flight. `session`: id of the sequence whose replica
        gets it; if empty, every replica gets it."""
        tasks = self._notifications
        if tasks is not None and self._notifying < MAX_NOTIFICATIONS:
            self._notifying += 1
            tasks.create_task(self._notify(self._frame(method, payload), session))

    async def _notify(self, request: bytes, session: str) -> None:
        try:
            async with asyncio.timeout(FORGET_LIMIT_S):
                if session:
                    await self._open_handle().compute(request, FORGET_LIMIT_S, session)
                else:
                    await self._open_handle().broadcast(request, FORGET_LIMIT_S)
        except (ReplicaLost, TimeoutError, EngineError) as error:
            logger.debug("! %s: a notification was lost: %s", self._plan.name, error)
        finally:
            self._notifying -= 1

    async def _describe(self, handle: ReplicaHandle) -> InfoT:
        try:
            reply = self._reply(await handle.describe())
        except ReplicaLost as error:
            raise EngineCrashed(self._kind, self._name, f"its replica was lost: {error}") from error
        if not isinstance(reply, ReadyReply):
            raise self._failure(reply)
        return self._decoded(reply.info, self._info_type)

    def _ready_future(self) -> asyncio.Future[InfoT]:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
        return self._ready

    def _open_handle(self) -> ReplicaHandle:
        if self._handle is None:
            raise EngineCrashed(self._kind, self._name, "the server is stopping")
        return self._handle

    def _frame(self, method: str, payload: object) -> bytes:
        try:
            return bytes(frame(CallRequest(0, method, payload)))
        except RemoteProtocolError as error:
            raise EngineError(self._kind, self._name, str(error)) from error

    def _reply(self, data: bytes) -> Reply:
        try:
            reply = read_message(reply_reader(), data)
        except RemoteProtocolError as error:
            raise EngineError(self._kind, self._name, str(error)) from error
        if isinstance(reply, ReadyReply | ChunkReply | DoneReply | FailureReply):
            return reply
        raise EngineError(self._kind, self._name, "a replica sent what no call has as a reply")

    def _decoded(self, payload: Raw, kind: type[ResultT]) -> ResultT:
        try:
            return decode_payload(payload, kind)
        except RemoteProtocolError as error:
            raise EngineError(self._kind, self._name, str(error)) from error

    def _failure(self, reply: Reply) -> EarshotError:
        if isinstance(reply, FailureReply):
            return self._error(reply)
        return EngineError(self._kind, self._name, "a replica sent a reply of another call")

    def _error(self, reply: FailureReply) -> EarshotError:
        """Returns the error of a call, in the class in which the engine raised it."""
        return error_of(reply, self._kind, self._name)

    def _note_loss(self, error: Exception, attempt: int) -> None:
        logger.warning("! %s: a replica was lost in call %d: %s", self._name, attempt + 1, error)
        self._metrics.count("earshot_worker_restarts", kind=self._kind)

    def _lost_error(self) -> EngineCrashed:
        return EngineCrashed(self._kind, self._name, "its replica was lost")

    def _timeout(self, limit_s: float) -> EngineTimeout:
        return EngineTimeout(self._kind, self._name, f"no replica answered in {limit_s:.0f} s")


class ReplicatedRecogniser(ReplicatedEngine[AsrInfo]):
    """A `BatchWorker` that runs a recogniser on the cluster. With several lanes in the scheduler it
    stands for all replicas."""

    def __init__(
        self,
        cluster: RayCluster,
        plan: ReplicaPlan,
        load: LoadRequest,
        metrics: Metrics,
        *,
        name: str,
        is_sticky: bool,
    ) -> None:
        """`is_sticky`: True for a model that keeps the state of an utterance between two calls."""
        super().__init__(cluster, plan, load, AsrInfo, metrics, name=name, is_sticky=is_sticky)
        self._hang_detector = HangDetector()

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Runs one batch, and returns one result per item. Cancelling it frees the replica. Raises
        EngineError, see `call`."""
        batch = AsrBatch([AsrItemMessage.from_item(item) for item in items])
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        limit_s = self._hang_detector.limit_s(items)
        session = items[0].utterance if self._is_sticky else ""
        results = await self.call(DECODE, batch, list[AsrResult], limit_s, session)
        self._hang_detector.learn(items, loop.time() - began_s)
        for outcome in (outcome for result in results for outcome in result.short_windows):
            self._metrics.count("earshot_asr_short_windows", outcome=outcome)
        return results

    def forget(self, utterance: str) -> None:
        """Drops what a replica keeps of a cancelled utterance. Only a sticky one knows which
        replica that is; others keep a bounded cache of features."""
        if self._is_sticky:
            self.notify(FORGET, utterance, utterance)

    def _error(self, reply: FailureReply) -> EarshotError:
        """Returns an EngineError for every failure: a batch has several callers."""
        return engine_error_of(reply, self._kind, self._name)


class ReplicatedBatchEngine(ReplicatedEngine[InfoT], Generic[InfoT, ItemT, ResultT]):
    """A `BatchEngine` for embeddings or reranking on the cluster. With several lanes in the
    scheduler it stands for all replicas."""

    def __init__(
        self,
        cluster: RayCluster,
        plan: ReplicaPlan,
        load: LoadRequest,
        info: type[InfoT],
        method: str,
        result: type[ResultT],
        metrics: Metrics,
        *,
        name: str,
    ) -> None:
        """Prepares the engine; `run` deploys it. The arguments are those of `BatchProcess`."""
        super().__init__(cluster, plan, load, info, metrics, name=name)
        self._method, self._result = method, result

    async def decode(self, items: Sequence[ItemT]) -> list[ResultT]:
        """Computes one batch. Cancelling it frees the replica. Raises EngineError, see `call`."""
        results: list[ResultT] = await self.call(
            self._method,
            list(items),
            list[self._result],  # type: ignore[name-defined]
            CALL_LIMIT_S,
        )
        return results

    def forget(self, sequence: str) -> None:
        """Does nothing: no state is kept between items."""

    def _error(self, reply: FailureReply) -> EarshotError:
        """Returns an EngineError for every failure: a batch has several callers."""
        return engine_error_of(reply, self._kind, self._name)
