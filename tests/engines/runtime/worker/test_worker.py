"""A worker process: it answers in order, survives errors of its library and ends with its
gateway."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from msgspec import Raw, Struct
from msgspec.msgpack import decode, encode

from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult
from engines.runtime.worker.payloads import AsrBatch, AsrItemMessage
from engines.runtime.worker.protocol import (
    CallRequest,
    DoneReply,
    FailureReply,
    LoadRequest,
    PingRequest,
    PongReply,
    ReadyReply,
    WorkerReply,
    frame,
    reply_reader,
    worker_command,
)
from tests.engines.nano import NANO
from tests.shared import ROOT
from tests.speech import say

pytestmark = pytest.mark.live

PATIENCE_S = 30
ODD = "tests.engines.runtime.worker.faulty_engine"


class Gateway:
    """The gateway's end of the socket, blocking."""

    def __init__(self, connection: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        self.connection, self.process = connection, process
        self._reader = reply_reader()
        self._replies: list[WorkerReply] = []

    def send(self, *requests: Struct) -> None:
        self.connection.sendall(b"".join(map(frame, requests)))

    def receive(self) -> WorkerReply:
        while not self._replies:
            data = self.connection.recv(65_536)
            assert data, "the worker is gone"
            self._replies.extend(self._reader.receive_data(data))
        return self._replies.pop(0)

    def output(self) -> tuple[bytes, bytes]:
        return self.process.communicate(timeout=PATIENCE_S)


@contextmanager
def worker() -> Iterator[Gateway]:
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(PATIENCE_S)
        with theirs:
            process = subprocess.Popen(
                worker_command(sys.executable, theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=ROOT,
            )
        try:
            yield Gateway(ours, process)
        finally:
            process.kill()
            process.communicate()


def item(prompt: str = "", samples: int = 3) -> AsrItemMessage:
    return AsrItemMessage.from_item(
        AsrItem("utt", np.ones(samples, np.int16), True, AsrOptions(prompt=prompt))
    )


def decode_call(request_id: int, items: list[AsrItemMessage]) -> CallRequest[AsrBatch]:
    return CallRequest(request_id, "decode", AsrBatch(items))


def raw(value: object) -> Raw:
    return Raw(encode(value))


def text(value: str) -> AsrResult:
    return AsrResult(value, 1.0, "en")


def test_requests_are_answered_in_order_and_the_worker_ends_with_the_socket() -> None:
    with worker() as gateway:
        gateway.send(
            LoadRequest("asr", ODD, {}),
            PingRequest(1),
            decode_call(5, [item(), item("given", 7)]),
            CallRequest(7, "forget", "utt_9"),
            decode_call(6, [item()]),
            PingRequest(2),
        )
        assert [gateway.receive() for _ in range(6)] == [
            ReadyReply(raw(AsrInfo("odd", "odd-1", ("en",), 4, is_incremental=False))),
            PongReply(1),
            DoneReply(5, raw([text("3 []"), text("given")])),
            DoneReply(7, raw(None)),
            DoneReply(6, raw([text("3 ['utt_9']")])),
            PongReply(2),
        ]
        gateway.connection.close()
        out, err = gateway.output()
        assert gateway.process.returncode == 0
        assert out == b""
        assert b"a library says hello" in err
        assert err.rstrip().endswith(b"closed")


def test_a_library_error_fails_one_batch_and_is_logged_with_its_file() -> None:
    with worker() as gateway:
        gateway.send(
            LoadRequest("asr", ODD, {}),
            decode_call(1, [item("fail")]),
            decode_call(2, [item("miscount")]),
            decode_call(3, [AsrItemMessage("utt", b"abc", True, AsrOptions())]),
            decode_call(4, [item("still alive")]),
        )
        assert isinstance(gateway.receive(), ReadyReply)
        confused = "odd: ZeroDivisionError"
        assert gateway.receive() == FailureReply("engine_failed", confused, 1)
        assert gateway.receive() == FailureReply("engine_failed", "odd: 0 results for 1 items", 2)
        assert gateway.receive() == FailureReply(
            "protocol_error", "3 bytes are not a whole number of samples", 3
        )
        assert gateway.receive() == DoneReply(4, raw([text("still alive")]))
        gateway.connection.close()
        _, err = gateway.output()
        assert b"faulty_engine.py" in err
        assert b"confused" not in err  # an error's text may contain what a user said


@pytest.mark.parametrize(
    ("kind", "name", "options", "code", "message"),
    [
        ("asr", "faster_whisper", {"model": "/nowhere"}, "engine_missing", "in /nowhere"),
        ("asr", "faster_whisper", {"modle": "x"}, "bad_config", "unknown key 'modle'"),
        ("asr", "nothing", {}, "bad_config", "no engine 'nothing'; there are: faster_whisper"),
        (
            "vad",
            "energy",
            {},
            "bad_config",
            "rerank, clip, speaker, codec, not 'vad'",
        ),
        ("asr", ODD, {"fails_to_load": True}, "engine_failed", "OSError: the disk is confused"),
    ],
)
def test_a_failed_load_gives_the_reason_and_ends_the_worker(
    kind: str, name: str, options: dict[str, Any], code: str, message: str
) -> None:
    with worker() as gateway:
        gateway.send(LoadRequest(kind, name, options))
        reply = gateway.receive()
        assert isinstance(reply, FailureReply)
        assert (reply.code, reply.request_id) == (code, None)
        assert message in reply.message
        gateway.output()
        assert gateway.process.returncode == 0


@pytest.mark.parametrize(
    "requests", [[PingRequest(1)], [LoadRequest("asr", ODD, {}), LoadRequest("asr", ODD, {})]]
)
def test_an_unexpected_request_ends_the_worker_with_an_error(requests: list[Struct]) -> None:
    with worker() as gateway:
        gateway.send(*requests)
        _, err = gateway.output()
        assert gateway.process.returncode == 1
        assert b"RemoteProtocolError" in err


def test_whisper_works_in_a_worker() -> None:
    with worker() as gateway:
        gateway.send(LoadRequest("asr", "faster_whisper", {"model": str(NANO), "cpu_threads": 1}))
        clips = [say("what time is it"), say("turn on the kitchen lights")]
        items = [AsrItem(f"utt_{i}", clip, True, AsrOptions("en")) for i, clip in enumerate(clips)]
        gateway.send(decode_call(1, [AsrItemMessage.from_item(one) for one in items]))
        assert isinstance(gateway.receive(), ReadyReply)
        reply = gateway.receive()
        assert isinstance(reply, DoneReply)
        results = decode(reply.payload, type=list[AsrResult])
        assert [result.text for result in results] == [
            "what time is it",
            "turn on the kitchen lights",
        ]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_worker_ends_with_a_killed_gateway_that_leaves_the_socket_open() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE_S)
        fd = theirs.fileno()
        start = f"Popen({worker_command(sys.executable, fd)!r}, pass_fds=[{fd}]).wait()"
        parent = subprocess.Popen(
            [sys.executable, "-c", f"from subprocess import Popen; {start}"],
            pass_fds=[fd],
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        ours.sendall(frame(LoadRequest("asr", ODD, {})) + frame(PingRequest(1)))
        gateway = Gateway(ours, parent)
        assert isinstance(gateway.receive(), ReadyReply)
        os.kill(parent.pid, signal.SIGKILL)
        parent.communicate(timeout=PATIENCE_S)  # its stderr closes when the worker has ended, too
    assert parent.returncode == -signal.SIGKILL
