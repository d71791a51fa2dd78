"""The engines of the model host: each is loaded once, however many gateways use it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from hashlib import sha256
from typing import Literal

from msgspec import Raw, convert
from msgspec.msgpack import Encoder
from msgspec.msgpack import encode as encode_msgpack
from msgspec.structs import replace

from core.access.limits import CapacityLimit
from core.errors import ConfigError, EarshotError, EngineCrashed, RemoteProtocolError, first_error
from core.ports import Clock, Metrics
from engines.registry import worker_profile
from engines.runtime.worker.protocol import LoadRequest, decode_payload
from serving.asr.model import AsrWorkerPool
from serving.asr.scheduling import DecodePriority
from serving.model_host.messages import (
    WATCH,
    PoolSpec,
    PoolState,
    ProcessSpec,
    SubmitArguments,
)
from serving.placement.offers import LoadableModel
from serving.workers.engine_process import EngineProcess, engine_process
from serving.workers.process_llm import BUSY_RETRY_AFTER_S

STATE_INTERVAL_S = 0.25
"Interval at which a gateway learns the state of a pool if that has changed, in seconds."


class HostedEngine(ABC):
    """One loaded engine with all its users."""

    name: str

    @abstractmethod
    async def run(self) -> None:
        """Keeps it running until cancelled. Raises EarshotError when it cannot be loaded."""

    @abstractmethod
    async def load(self) -> object:
        """Waits until it can compute, and returns the properties that it reports."""

    @abstractmethod
    def answer(self, method: str, payload: Raw, owner: int) -> AsyncGenerator[object, None]:
        """Yields the parts of an answer. `owner`: number of the connection that asks. An engine
        whose answers have one part is no `is_stream`."""

    def is_stream(self, method: str) -> bool:
        """True if the parts of the answer to this method are sent one by one."""
        return True

    @abstractmethod
    def leave(self, owner: int) -> None:
        """Drops what is kept for a connection that has ended."""


class HostedPool(HostedEngine):
    """The workers of a recogniser, with the scheduler for all gateways."""

    def __init__(self, load: LoadRequest, clock: Clock, metrics: Metrics) -> None:
        spec = convert(load.options, PoolSpec)
        self.name = spec.called
        offer = LoadableModel(spec.called, load.name, tuple(spec.workers), {}, lanes=spec.lanes)
        self._pool = AsrWorkerPool(offer, clock, metrics)
        self._open: dict[int, set[str]] = {}
        "Connection -> its utterances that have not ended."

    async def run(self) -> None:
        """Runs the workers and the scheduler."""
        await self._pool.run()

    async def load(self) -> object:
        """Waits until the first worker has loaded the model, and has recognised something."""
        info = await self._pool.ready()
        await self._pool.warm_up()
        return info

    def is_stream(self, method: str) -> bool:
        """True for the state of the pool."""
        return method == WATCH

    async def answer(self, method: str, payload: Raw, owner: int) -> AsyncGenerator[object, None]:
        """Serves `submit`, `promote`, `forget` and `watch`."""
        match method:
            case "submit":
                yield await self._submit(decode_payload(payload, SubmitArguments), owner)
            case "promote":
                self._pool.promote(_own_id(owner, decode_payload(payload, str)))
                yield None
            case "forget":
                utterance = decode_payload(payload, str)
                self._open.get(owner, set()).discard(utterance)
                self._pool.forget(_own_id(owner, utterance))
                yield None
            case "watch":
                async for state in self._states():
                    yield state
            case _:
                raise RemoteProtocolError(f"a pool has no method {method!r}")

    def leave(self, owner: int) -> None:
        """Frees the utterances that a gateway has left open."""
        for utterance in self._open.pop(owner, ()):
            self._pool.forget(_own_id(owner, utterance))

    async def _submit(self, arguments: SubmitArguments, owner: int) -> object:
        message = arguments.item
        utterances = self._open.setdefault(owner, set())
        if message.is_final:
            utterances.discard(message.utterance)
        else:
            utterances.add(message.utterance)
        item = replace(message, utterance=_own_id(owner, message.utterance)).to_item()
        priority = DecodePriority(arguments.priority)
        return await self._pool.submit(item, priority, deadline_s=arguments.deadline_s)

    async def _states(self) -> AsyncGenerator[Raw, None]:
        last = b""
        while True:
            pool = self._pool
            state = PoolState(
                is_ready=pool.is_ready,
                waiting=pool.waiting,
                wait_s={int(one): pool.expected_wait_s(one) for one in DecodePriority},
                resident_mb=round(pool.resident_mb()),
                statistics=pool.statistics,
            )
            if (encoded := encode_msgpack(state)) != last:
                last = encoded
                yield Raw(encoded)
            await asyncio.sleep(STATE_INTERVAL_S)


class HostedWorker(HostedEngine):
    """The worker process of a voice or a language model, for all gateways."""

    def __init__(self, process: EngineProcess[Raw], name: str, max_calls: int | None) -> None:
        self.name, self._process = name, process
        self._places = CapacityLimit(
            max_calls,
            f"llm engine {name!r} already generates {{limit}} answers, the limit",
            retry_after_s=BUSY_RETRY_AFTER_S,
            code="engine_busy",
        )

    @classmethod
    async def create(cls, load: LoadRequest, metrics: Metrics) -> "HostedWorker":
        """Prepares the process. Raises ConfigError for an engine that has no process of its own."""
        spec = convert(load.options, ProcessSpec)
        kind: Literal["tts", "llm"] = "tts" if load.kind == "tts" else "llm"
        profile = await asyncio.to_thread(worker_profile, kind, load.name, spec.options)
        if profile is None:
            raise ConfigError(f"{load.kind} engine {load.name!r} has no worker process")
        process = engine_process(load.kind, load.name, spec.options, Raw, metrics, profile)
        return cls(process, load.name, spec.max_calls)

    async def run(self) -> None:
        """Runs the process."""
        await self._process.run()

    async def load(self) -> object:
        """Waits until the process has loaded the engine."""
        return await self._process.ready()

    async def answer(self, method: str, payload: Raw, owner: int) -> AsyncGenerator[object, None]:
        """Passes the call on to the process, and its parts back."""
        with self._places.take():
            async with aclosing(self._process.stream(method, payload, Raw)) as parts:
                async for part in parts:
                    yield part

    def leave(self, owner: int) -> None:
        """Does nothing: the end of its calls frees what they had."""


class SharedEngine:
    """An engine with the number of its users, and the task that runs it."""

    def __init__(self, engine: HostedEngine) -> None:
        self.engine, self.users = engine, 0
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[object] = loop.create_future()
        "Gets the properties of the engine once it can compute, or the error of its load."
        self.ended: asyncio.Future[EarshotError] = loop.create_future()
        "Gets the error for which the engine ended after it was loaded."
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Loads the engine and runs it until it is cancelled or fails."""
        error: Exception | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.engine.run(), name=f"run-{self.engine.name}")
                self.loaded.set_result(await self.engine.load())
        except* (EarshotError, OSError) as group:
            error = first_error(group)
        finally:
            if error is None or not isinstance(error, EarshotError):
                why = "the model host ends it" if error is None else str(error)
                error = EngineCrashed("model", self.engine.name, why)
            if self.loaded.done():
                self.ended.set_result(error)
            else:
                self.loaded.set_exception(error)
                self.loaded.exception()  # counts as seen: perhaps every gateway has left


class SharedEngines:
    """All engines of the host by their LoadRequest."""

    def __init__(self, clock: Clock, metrics: Metrics, tasks: asyncio.TaskGroup) -> None:
        """`tasks`: runs the engines."""
        self._clock, self._metrics, self._tasks = clock, metrics, tasks
        self._engines: dict[bytes, SharedEngine] = {}
        self._preparing = asyncio.Lock()

    @asynccontextmanager
    async def lease(self, load: LoadRequest) -> AsyncIterator[SharedEngine]:
        """Uses an engine while the context is open. The first user starts it; when the last one
        leaves, it ends. Raises ConfigError, RemoteProtocolError."""
        key = sha256(Encoder(order="deterministic").encode(load)).digest()
        async with self._preparing:
            shared = self._engines.get(key)
            if shared is None or shared.task is None or shared.task.done():
                shared = SharedEngine(await self._create(load))
                shared.task = self._tasks.create_task(shared.run(), name=shared.engine.name)
                self._engines[key] = shared
            shared.users += 1
        try:
            yield shared
        finally:
            shared.users -= 1
            if not shared.users:
                if self._engines.get(key) is shared:
                    del self._engines[key]
                shared.task.cancel()

    async def _create(self, load: LoadRequest) -> HostedEngine:
        match load.kind:
            case "asr":
                return HostedPool(load, self._clock, self._metrics)
            case "tts" | "llm":
                return await HostedWorker.create(load, self._metrics)
        raise RemoteProtocolError(f"the model host runs no engines of the kind {load.kind!r}")


def _own_id(owner: int, utterance: str) -> str:
    """Returns the id of an utterance at the host. Gateways choose ids on their own."""
    return f"{owner}:{utterance}"
