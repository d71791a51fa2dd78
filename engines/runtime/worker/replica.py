"""One engine as a replica of a Ray Serve deployment: the hosts and messages of a worker process,
without its socket. Nothing here imports Ray.

Ray carries bytes only: each argument is one frame of `engines.runtime.worker.protocol`, and so is
each result.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager

from msgspec import Raw, Struct

from core.errors import ConfigError, EngineCrashed, RemoteProtocolError
from engines.runtime.worker.hosts import create_host, failure_reply
from engines.runtime.worker.main import load_engine
from engines.runtime.worker.protocol import (
    CallRequest,
    ChunkReply,
    DoneReply,
    FailureReply,
    LoadRequest,
    ReadyReply,
    frame,
    read_message,
    request_reader,
)

Replies = asyncio.Queue[Struct]
"""Replies to one call that were not read yet. The queue has no limit of its own: it cannot hold
more than the result of one call."""


class EngineReplica:
    """Loads one engine and serves its calls. Ray Serve creates it, and calls its methods in one
    event loop. The engine computes in other threads."""

    def __init__(self, load: bytes, nice: int = 0) -> None:
        """Loads the engine. `load`: a `LoadRequest` as a frame. `nice`: niceness of the process.

        Raises ConfigError for any failure, because only its text reaches the log of the
        deployment.
        """
        self._is_closed = True  # until there is something to close
        if nice:
            os.nice(nice)
        request = read_message(request_reader(), load)
        if not isinstance(request, LoadRequest):
            raise RemoteProtocolError("a replica is created with a LoadRequest")
        self._engine_name = f"{request.kind}.{request.name}"
        self._pending: dict[int, tuple[asyncio.AbstractEventLoop, Replies]] = {}
        "Event loop and replies of each call in flight, by its number."
        self._next_id = 0
        self._overdue_at_s: dict[int, float] = {}
        "Monotonic time at which a call counts as hung, by its number."
        try:
            self._host = create_host(request.kind, load_engine(request), self._reply)
        except Exception as exc:
            reply = failure_reply(exc, self._engine_name)
            raise ConfigError(f"{reply.code}: {reply.message}") from exc
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        "The one thread that calls the host, as the main thread of a worker process does."
        self._is_closed = False

    async def describe(self) -> bytes:
        """Returns the engine's properties: a `ReadyReply` as a frame."""
        return bytes(frame(ReadyReply(self._host.info)))

    async def compute(self, request: bytes, limit_s: float) -> bytes:
        """Serves a call with one result. `request`: a `CallRequest` as a frame. `limit_s`: time in
        seconds after which the call counts as hung. Returns a `DoneReply` or a `FailureReply`."""
        async with aclosing(self.stream(request, limit_s)) as replies:
            async for reply in replies:
                return reply
        raise RemoteProtocolError("a call ended without a reply")

    async def stream(self, request: bytes, limit_s: float) -> AsyncGenerator[bytes, None]:
        """Serves a call with a stream of parts: `ChunkReply`s, then one `DoneReply` or
        `FailureReply`. `limit_s`: longest time in seconds until the next part."""
        call = read_message(request_reader(), request)
        if not isinstance(call, CallRequest):
            raise RemoteProtocolError("a replica serves CallRequests only")
        with self._open() as (request_id, replies):
            numbered = CallRequest(request_id, call.method, call.payload)
            started = self._thread.submit(self._begin, numbered, limit_s)
            try:
                while True:
                    reply = await replies.get()
                    if request_id in self._pending:
                        self._overdue_at_s[request_id] = time.monotonic() + limit_s
                    yield bytes(frame(reply))
                    if not isinstance(reply, ChunkReply):
                        return
            finally:
                started.cancel()  # a call that waits for the thread need not begin any more

    async def check_health(self) -> None:
        """Raises EngineCrashed if a call has taken longer than its limit. Then Ray Serve replaces
        this replica."""
        now_s = time.monotonic()
        if any(overdue_at_s < now_s for overdue_at_s in self._overdue_at_s.values()):
            kind, _, name = self._engine_name.partition(".")
            raise EngineCrashed(kind, name, "a call hangs, so the replica is replaced")

    def close(self) -> None:
        """Stops all calls and frees the engine. Blocking. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.shutdown(cancel_futures=True)
        self._host.close()

    def __del__(self) -> None:
        """Frees the engine when Ray Serve drops the replica."""
        self.close()

    def _begin(self, call: CallRequest[Raw], limit_s: float) -> None:
        """Serves or starts a call, in the engine's thread. Its time begins here: a call that waits
        for another one does not hang."""
        if call.request_id in self._pending:
            self._overdue_at_s[call.request_id] = time.monotonic() + limit_s
            self._host.call(call)

    @contextmanager
    def _open(self) -> Iterator[tuple[int, Replies]]:
        """Registers a call, and yields its number and its replies. A call that is left before its
        end is cancelled."""
        self._next_id += 1
        request_id, replies = self._next_id, Replies()
        self._pending[request_id] = asyncio.get_running_loop(), replies
        try:
            yield request_id, replies
        finally:
            if self._pending.pop(request_id, None) is not None:
                self._host.cancel(request_id)
            self._overdue_at_s.pop(request_id, None)

    def _reply(self, reply: Struct) -> None:
        """Hands a reply of the host, from whatever thread, to the call that it belongs to."""
        if not isinstance(reply, ChunkReply | DoneReply | FailureReply):
            return  # no ping is sent here: Ray Serve checks the health
        pending = self._pending.get(reply.request_id or 0)
        if pending is None:
            return  # its caller was cancelled meanwhile
        if not isinstance(reply, ChunkReply):
            self._pending.pop(reply.request_id or 0, None)
        loop, replies = pending
        loop.call_soon_threadsafe(replies.put_nowait, reply)
