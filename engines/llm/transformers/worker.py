"""The process of a language model: `python -m engines.llm.transformers.worker --fd N`.

Several answers take turns, one token each; between tokens it reads new requests. It ends when its
socket closes.
"""

import argparse
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence

from msgspec import Struct

from core.errors import ContextLengthExceeded, EngineError, RemoteProtocolError
from engines.llm.transformers.generation import TokenGeneration, TransformersModel
from engines.llm.transformers.wire import (
    LlmAbortRequest,
    LlmEndReply,
    LlmFailureReply,
    LlmGenerateRequest,
    LlmLoadReply,
    LlmLoadRequest,
    LlmTextReply,
    LlmWorkerRequest,
    request_reader,
)
from engines.runtime.worker.protocol import frame

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 256 * 1024


class ParentDisconnected(Exception):
    """The server closed the socket, or died."""


class LlmWorker:
    """Loads one model and writes answers to the requests on a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = request_reader()
        self._answers: dict[int, TokenGeneration] = {}

    def run(self) -> None:
        """Runs until the socket closes, or the model does not load."""
        try:
            waiting = self._receive(wait=True)
            model = self._load(waiting.pop(0))
            while model is not None:
                for request in waiting:
                    self._take(model, request)
                for answer in list(self._answers.values()):
                    self._go_on(answer)
                waiting = self._receive(wait=not self._answers)
        except ParentDisconnected:
            return

    def _load(self, request: LlmWorkerRequest) -> TransformersModel | None:
        if not isinstance(request, LlmLoadRequest):
            raise RemoteProtocolError(f"the first message must be load, not {type(request)}")
        try:
            model = TransformersModel(request)
        except Exception as exc:
            self._fail(exc, None)
            return None
        self._send(LlmLoadReply(model.device, model.has_tools))
        return model

    def _take(self, model: TransformersModel, request: LlmWorkerRequest) -> None:
        match request:
            case LlmGenerateRequest(request_id=request_id):
                try:
                    self._answers[request_id] = TokenGeneration(model, request)
                except Exception as exc:
                    self._fail(exc, request_id)
            case LlmAbortRequest(request_id=request_id):
                if (answer := self._answers.pop(request_id, None)) is not None:
                    answer.leave()
            case _:
                raise RemoteProtocolError("a model can be loaded only once")

    def _go_on(self, answer: TokenGeneration) -> None:
        try:
            text = answer.step()
        except Exception as exc:
            del self._answers[answer.request_id]
            self._fail(exc, answer.request_id)
            return
        if text:
            self._send(LlmTextReply(answer.request_id, text))
        if answer.is_over:
            del self._answers[answer.request_id]
            answer.leave()
            counts = (answer.input_tokens, answer.output_tokens, answer.reused_tokens)
            self._send(LlmEndReply(answer.request_id, *counts))

    def _receive(self, *, wait: bool) -> list[LlmWorkerRequest]:
        """Returns all requests that have arrived; with `wait`, at least one.

        Raises ParentDisconnected.
        """
        requests: list[LlmWorkerRequest] = []
        while wait or select.select([self._connection], [], [], 0)[0]:
            try:
                data = self._connection.recv(RECEIVE_BYTES)
            except ConnectionError:
                raise ParentDisconnected from None
            if not data:
                raise ParentDisconnected
            requests += self._reader.receive_data(data)
            wait = not requests
        return requests

    def _send(self, reply: Struct) -> None:
        try:
            self._connection.sendall(frame(reply))
        except ConnectionError:
            raise ParentDisconnected from None

    def _fail(self, exc: Exception, request_id: int | None) -> None:
        """Reports a failure to the server. Errors of libraries are also logged with traceback."""
        if isinstance(exc, EngineError):
            message = exc.detail
        else:
            logger.error("the model failed", exc_info=exc)
            message = f"{type(exc).__name__}: {' '.join(str(exc).split())[:240]}"
        self._send(LlmFailureReply(message, request_id, isinstance(exc, ContextLengthExceeded)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the worker on the inherited socket `--fd`."""
    parser = argparse.ArgumentParser(prog="engines.llm.transformers.worker")
    parser.add_argument("--fd", type=int, required=True, help="inherited, connected stream socket")
    fd = parser.parse_args(arguments).fd
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print to stdout
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the group: the server decides
    with socket.socket(fileno=fd) as connection:
        LlmWorker(connection).run()


if __name__ == "__main__":
    main()
