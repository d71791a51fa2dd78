"""Worker program that runs one engine: `python -m engines.runtime.worker.main --fd N`.

It serves one socket with the messages of `engines.runtime.worker.protocol`, and ends when that
closes. Every exception of a model library becomes a `FailureReply`. Everything that a library
prints goes to standard error.
"""

import argparse
import ctypes
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock

from core.errors import ConfigError, EarshotError, EngineError, RemoteProtocolError, chain_of
from engines.base import AsrModel, AsrResult
from engines.base.asr import ConcurrentAsrModel
from engines.registry import load
from engines.runtime.worker.protocol import (
    CancelRequest,
    DecodeReply,
    DecodeRequest,
    FailureReply,
    LoadRequest,
    MessageFrameReader,
    PingRequest,
    PongReply,
    ReadyReply,
    WorkerReply,
    WorkerRequest,
    frame,
    request_reader,
)

logger = logging.getLogger(__name__)

OF_MACHINE = (OSError, MemoryError, RuntimeError)
"""Exceptions that memory, files and GPUs cause. Libraries put no words of a recording into these,
so their messages may be logged."""

_RECEIVE_BYTES = 256 * 1024

_PR_SET_PDEATHSIG = 1


class EngineWorker:
    """Serves requests in their order, in the calling thread. An engine whose calls may overlap
    (`ConcurrentAsrModel`) only starts them there."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader: MessageFrameReader[WorkerRequest] = request_reader()
        self._requests: deque[WorkerRequest] = deque()
        self._running: dict[int, Callable[[], None]] = {}
        "Functions that cancel the calls of a `ConcurrentAsrModel`, by request id."
        self._lock = Lock()

    def run(self) -> None:
        """Serves requests until the gateway closes the socket or the engine fails to load."""
        request = self._receive()
        if request is None:
            return
        if not isinstance(request, LoadRequest):
            raise RemoteProtocolError(f"a worker's first message must be load, not {type(request)}")
        model = self._load(request)
        if model is None:
            return
        self._send(ReadyReply(model.info))
        while (request := self._receive()) is not None:
            self._serve(model, request)
        model.close()

    def _load(self, request: LoadRequest) -> AsrModel | None:
        try:
            return _load_asr(request)
        except Exception as exc:
            self._send(_failed(exc, f"{request.kind}.{request.name}"))
            return None

    def _serve(self, model: AsrModel, request: WorkerRequest) -> None:
        match request:
            case DecodeRequest() if isinstance(model, ConcurrentAsrModel):
                self._begin(model, model.info.name, request)
            case DecodeRequest():
                self._send(_decode(model, request))
            case CancelRequest(request_id):
                with self._lock:
                    cancel = self._running.pop(request_id, None)
                if cancel is not None:
                    cancel()
            case PingRequest(number):
                self._send(PongReply(number))
            case LoadRequest():
                raise RemoteProtocolError("a worker can load only once")
            case _:
                model.forget(request.utterance)

    def _begin(self, model: ConcurrentAsrModel, name: str, request: DecodeRequest) -> None:
        """Starts a decode. The reply is sent from the engine's thread when the decode is done."""
        over: list[int] = []

        def done(results: list[AsrResult] | Exception) -> None:
            with self._lock:
                over.append(request.request_id)
                self._running.pop(request.request_id, None)
            if isinstance(results, Exception):
                self._send(_failed(results, name, request.request_id))
            else:
                self._send(DecodeReply(request.request_id, results))

        try:
            cancel = model.begin([item.to_item() for item in request.items], done)
        except Exception as exc:
            self._send(_failed(exc, name, request.request_id))
            return
        with self._lock:
            if not over:
                self._running[request.request_id] = cancel

    def _receive(self) -> WorkerRequest | None:
        """Returns the next request; None when the gateway is gone."""
        while not self._requests:
            try:
                data = self._connection.recv(_RECEIVE_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._requests.extend(self._reader.receive_data(data))
        return self._requests.popleft()

    def _send(self, reply: WorkerReply) -> None:
        data = frame(reply)
        try:
            with self._lock:
                self._connection.sendall(data)
        except ConnectionError:  # the gateway is gone: the next receive ends the loop
            logger.debug("the gateway closed the connection")


def _load_asr(request: LoadRequest) -> AsrModel:
    if request.kind != "asr":
        raise ConfigError(f"a worker runs asr engines, not {request.kind!r}")
    return load("asr", request.name, request.options)


def _decode(model: AsrModel, request: DecodeRequest) -> DecodeReply | FailureReply:
    try:
        results = model.decode([item.to_item() for item in request.items])
    except Exception as exc:
        return _failed(exc, model.info.name, request.request_id)
    if len(results) != len(request.items):
        message = f"{len(results)} results for {len(request.items)} items"
        return FailureReply("engine_failed", f"{model.info.name}: {message}", request.request_id)
    return DecodeReply(request.request_id, results)


def _failed(exc: Exception, engine: str, request_id: int | None = None) -> FailureReply:
    """Builds the reply for an exception.

    Our own errors keep their code, and the gateway reports them. A library's errors are logged here
    with their chain, for the library's author. While decoding, an exception's message may contain
    recognised words, so it is repeated only if it is about the machine.
    """
    if isinstance(exc, EngineError):
        return FailureReply(exc.code, exc.detail, request_id)  # the gateway adds the engine's name
    if isinstance(exc, EarshotError):
        return FailureReply(exc.code, str(exc), request_id)
    if request_id is None or isinstance(exc, OF_MACHINE):
        logger.error("%s failed", engine, exc_info=exc)
        return FailureReply("engine_failed", f"{engine}: {type(exc).__name__}: {exc}", request_id)
    logger.error("%s failed: %s", engine, chain_of(exc))
    return FailureReply("engine_failed", f"{engine}: {type(exc).__name__}", request_id)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a worker on the inherited socket `--fd`."""
    parser = argparse.ArgumentParser(prog="engines.runtime.worker.main")
    parser.add_argument("--fd", type=int, required=True, help="inherited, connected stream socket")
    fd = parser.parse_args(arguments).fd
    become_worker()
    with socket.socket(fileno=fd) as connection:
        EngineWorker(connection).run()


def become_worker() -> None:
    """Sets up a worker process: output, logging, signals, and its end together with the parent."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for what libraries print, C++ ones too
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us too, but the gateway ends us
    die_with_parent()


def die_with_parent() -> None:
    """Lets the kernel kill this process when its parent dies, even during a decode. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
