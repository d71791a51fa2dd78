"""Worker program that runs one engine: `python -m engines.runtime.worker.main --fd N`.

It serves one socket with the messages of `engines.runtime.worker.protocol`, and ends when the
socket closes. Every exception of a model library becomes a `FailureReply`. Everything that a
library prints goes to standard error.
"""

import argparse
import ctypes
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import cast

from msgspec import Struct

from core.errors import ConfigError, RemoteProtocolError
from engines.base import LoadableEngine
from engines.registry import EngineKind, load
from engines.runtime.worker.hosts import EngineHost, create_host, failure_reply
from engines.runtime.worker.protocol import (
    CallRequest,
    CancelRequest,
    LoadRequest,
    MessageFrameReader,
    PingRequest,
    ReadyReply,
    WorkerRequest,
    frame,
    request_reader,
)

logger = logging.getLogger(__name__)

KINDS = ("asr", "tts", "llm", "embed", "rerank", "clip", "speaker", "codec")
"Kinds of engines that a worker can run."

_RECEIVE_BYTES = 256 * 1024

_PR_SET_PDEATHSIG = 1


class EngineWorker:
    """Loads one engine and passes it the gateway's requests, in their order."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader: MessageFrameReader[WorkerRequest] = request_reader()
        self._requests: deque[WorkerRequest] = deque()
        self._lock = Lock()

    def run(self) -> None:
        """Serves requests until the gateway closes the socket or the engine fails to load."""
        request = self._receive()
        if request is None:
            return
        if not isinstance(request, LoadRequest):
            raise RemoteProtocolError(
                f"a worker's first message must be a LoadRequest, not a {type(request).__name__}"
            )
        host = self._load(request)
        if host is None:
            return
        try:
            self._send(ReadyReply(host.info))
            while (request := self._receive()) is not None:
                match request:
                    case CallRequest():
                        host.call(request)
                    case CancelRequest(request_id):
                        host.cancel(request_id)
                    case PingRequest(number):
                        host.ping(number)
                    case LoadRequest():
                        raise RemoteProtocolError("a worker can load only once")
        finally:
            host.close()

    def _load(self, request: LoadRequest) -> EngineHost | None:
        try:
            return create_host(request.kind, load_engine(request), self._send)
        except Exception as exc:
            self._send(failure_reply(exc, f"{request.kind}.{request.name}"))
            return None

    def _receive(self) -> WorkerRequest | None:
        """Returns the next request; None when the gateway has closed the socket."""
        while not self._requests:
            try:
                data = self._connection.recv(_RECEIVE_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._requests.extend(self._reader.receive_data(data))
        return self._requests.popleft()

    def _send(self, reply: Struct) -> None:
        data = frame(reply)
        try:
            with self._lock:
                self._connection.sendall(data)
        except ConnectionError:  # the gateway is gone: the next receive ends the loop
            logger.debug("the gateway closed the connection")


def load_engine(request: LoadRequest) -> object:
    """Loads the engine of a request. Raises ConfigError, EngineMissing, and what its library
    raises."""
    if request.kind not in KINDS:
        kinds = ", ".join(KINDS)
        raise ConfigError(f"a worker runs engines of the kinds {kinds}, not {request.kind!r}")
    engine: object = load(cast("EngineKind", request.kind), request.name, request.options)
    if isinstance(engine, LoadableEngine):
        engine.load()
    return engine


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a worker on the inherited socket `--fd`."""
    parser = argparse.ArgumentParser(prog="engines.runtime.worker.main")
    parser.add_argument("--fd", type=int, required=True, help="inherited, connected stream socket")
    fd = parser.parse_args(arguments).fd
    set_up_worker_process()
    with socket.socket(fileno=fd) as connection:
        EngineWorker(connection).run()


def set_up_worker_process() -> None:
    """Sets up a worker process: its output, logging, signals, and its end if the parent dies."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for output of libraries, also from C++
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us too, but the gateway ends us
    die_with_parent()


def die_with_parent() -> None:
    """Lets the kernel kill this process when its parent dies, even during a decode. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
