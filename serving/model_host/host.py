"""Serves gateways over a unix socket: each connection uses one engine, which all of them share."""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from contextlib import aclosing, suppress

from msgspec import Struct

from core.errors import EarshotError, OverloadedError, RemoteProtocolError, first_error
from core.ports import Clock, Metrics
from engines.runtime.worker.hosts import failure_reply
from engines.runtime.worker.protocol import (
    CallRequest,
    CancelRequest,
    ChunkReply,
    DoneReply,
    LoadRequest,
    PingRequest,
    PongReply,
    ReadyReply,
    WorkerRequest,
    frame,
    request_reader,
)
from serving.model_host.engines import SharedEngine, SharedEngines
from serving.model_host.messages import METRICS

logger = logging.getLogger(__name__)

MAX_CALLS = 1024
"""Most calls of one connection at once. The schedulers refuse far fewer; this bounds what a gateway
may make the host keep."""

BACKLOG = 512
"Connections that may wait while the host is being started."

READ_BYTES = 256 * 1024
"Largest piece of data that is read at once."

FIRST_MESSAGE_S = 10.0
"Time in seconds for a connection's first message. A gateway sends it at once."

_PEER_CREDENTIALS = struct.Struct("3i")


class ModelHost:
    """Runs the models of several gateways. `serve` accepts their connections."""

    def __init__(self, clock: Clock, metrics: Metrics, metrics_text: Callable[[], str]) -> None:
        """`metrics_text`: returns the metrics of this process in Prometheus' format."""
        self._clock, self._metrics, self._metrics_text = clock, metrics, metrics_text
        self._connections = 0
        self._next_owner = 0
        self._is_unused = asyncio.Event()
        self._is_unused.set()

    async def serve(self, listening: socket.socket, is_ending: asyncio.Event) -> None:
        """Serves until `is_ending` is set and no gateway is connected any more."""
        async with asyncio.TaskGroup() as tasks:
            engines = SharedEngines(self._clock, self._metrics, tasks)

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._accept(engines, reader, writer)

            server = await asyncio.start_unix_server(accept, sock=listening, backlog=BACKLOG)
            await is_ending.wait()
            await self._is_unused.wait()
            server.close()

    async def _accept(
        self, engines: SharedEngines, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections += 1
        self._is_unused.clear()
        self._next_owner += 1
        try:
            if _peer_user(writer) != os.geteuid():
                logger.warning("! a process of another user is refused")
                return
            connection = GatewayConnection(self._next_owner, reader, writer)
            await connection.serve(engines, self._metrics_text)
        except (RemoteProtocolError, ConnectionError, TimeoutError) as error:
            logger.warning("! a gateway's connection is closed: %s", error)
        finally:
            writer.close()
            self._connections -= 1
            if not self._connections:
                self._is_unused.set()


class GatewayConnection:
    """One connection of a gateway. Its end frees all that it has asked for."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._number, self._reader, self._writer = number, reader, writer
        self._requests = request_reader()
        self._running: dict[int, asyncio.Task[None]] = {}

    async def serve(self, engines: SharedEngines, metrics_text: Callable[[], str]) -> None:
        """Serves requests until the gateway closes the connection or the engine ends. Raises
        RemoteProtocolError, ConnectionError, TimeoutError."""
        first, *others = await self._first_messages() or (None,)
        match first:
            case LoadRequest():
                await self._serve_engine(engines, first, others)
            case CallRequest(request_id, method) if method == METRICS:
                self._send(DoneReply(request_id, metrics_text()))
                await self._writer.drain()
            case None:
                return
            case _:
                raise RemoteProtocolError("the first message must be a LoadRequest")

    async def _first_messages(self) -> list[WorkerRequest]:
        """Returns what arrives first; nothing if the connection ends."""
        async with asyncio.timeout(FIRST_MESSAGE_S):
            while data := await self._reader.read(READ_BYTES):
                if messages := list(self._requests.receive_data(data)):
                    return messages
        return []

    async def _serve_engine(
        self, engines: SharedEngines, load: LoadRequest, others: list[WorkerRequest]
    ) -> None:
        failure: BaseException | None = None
        try:
            async with engines.lease(load) as shared, asyncio.TaskGroup() as tasks:
                announcing = tasks.create_task(self._announce(shared))
                try:
                    for request in others:
                        self._take(request, shared, tasks)
                    while data := await self._read():
                        for request in self._requests.receive_data(data):
                            self._take(request, shared, tasks)
                finally:
                    announcing.cancel()
                    for call in self._running.values():
                        call.cancel()
                    shared.engine.leave(self._number)
        except* EarshotError as group:
            failure = first_error(group)
        if isinstance(failure, RemoteProtocolError):
            raise failure
        if isinstance(failure, EarshotError):  # such as a ConfigError for an unknown engine
            self._send(failure_reply(failure, load.name))
            await self._writer.drain()

    async def _read(self) -> bytes:
        with suppress(ConnectionError):
            return await self._reader.read(READ_BYTES)
        return b""

    async def _announce(self, shared: SharedEngine) -> None:
        """Tells the gateway when the engine is loaded, or why it is not, or no longer."""
        try:
            self._send(ReadyReply(await asyncio.shield(shared.loaded)))
            error = await asyncio.shield(shared.ended)
        except EarshotError as load_error:
            error = load_error
        self._send(failure_reply(error, shared.engine.name))
        self._writer.close()

    def _take(self, request: WorkerRequest, shared: SharedEngine, tasks: asyncio.TaskGroup) -> None:
        match request:
            case CallRequest(request_id):
                if len(self._running) >= MAX_CALLS:
                    message = f"{MAX_CALLS} calls of this gateway are running, the limit"
                    error = OverloadedError(message, retry_after_s=1, code="engine_busy")
                    self._send(failure_reply(error, shared.engine.name, request_id))
                    return
                task = tasks.create_task(self._answer(request, shared))
                self._running[request_id] = task
                task.add_done_callback(lambda _: self._running.pop(request_id))
            case CancelRequest(request_id):
                if (running := self._running.get(request_id)) is not None:
                    running.cancel()
            case PingRequest(number):
                self._send(PongReply(number))
            case LoadRequest():
                raise RemoteProtocolError("a connection can load only once")

    async def _answer(self, request: CallRequest, shared: SharedEngine) -> None:  # type: ignore[type-arg]
        """Serves one call. Every error becomes a FailureReply."""
        request_id, method, engine = request.request_id, request.method, shared.engine
        try:
            result: object = None
            async with aclosing(engine.answer(method, request.payload, self._number)) as parts:
                async for part in parts:
                    if engine.is_stream(method):
                        self._send(ChunkReply(request_id, part))
                        await self._writer.drain()
                    else:
                        result = part
            self._send(DoneReply(request_id, result))
            await self._writer.drain()
        except ConnectionError:
            pass  # the gateway has left: the reading side ends the connection
        except Exception as error:
            self._send(failure_reply(error, engine.name, request_id))

    def _send(self, message: Struct) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(message))


def _peer_user(writer: asyncio.StreamWriter) -> int:
    """Returns the user id of the process at the other end."""
    peer = writer.get_extra_info("socket")
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    return int(_PEER_CREDENTIALS.unpack(data)[1])
