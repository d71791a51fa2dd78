"""Host process that has untrusted audio files decoded, each in a process of its own.

Run it as `python -m serving.workers.file_decoder_host --fd N --files-fd M`. It decodes nothing
itself, so no file can stop it. It forks a decoder for each file. A fork has the libraries already,
so a new decoder costs milliseconds, and one is always ready before it is needed. The limits of
memory and processor time hold for one file only: the kernel kills a decoder that exceeds them, and
the others are not affected.

Each request comes with two descriptors: the file, and the socket that takes its audio.
"""

import argparse
import gc
import logging
import os
import resource
import selectors
import signal
import socket
import sys
import wave
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from time import monotonic
from typing import NoReturn

from msgspec import Struct
from msgspec.msgpack import Decoder

from core.errors import EarshotError
from engines.runtime.worker.main import die_with_parent, set_up_worker_process
from engines.runtime.worker.protocol import (
    CancelRequest,
    FailureReply,
    LoadRequest,
    MessageFrameReader,
    PingRequest,
    PongReply,
    frame,
)
from media.files.decode import FileLimits, decode, load_codecs

logger = logging.getLogger(__name__)

NICE = 15
"""Nice value of a decoder that takes long. When a live session needs the processor too, the session
gets 28 times as much."""

NICE_AFTER_S = 0.25
"Age at which a decoder gets that nice value. Most files are decoded by then at normal speed."

REFILL_S = 0.1
"""Time until the next decoder is forked while one works; otherwise it is forked when that one has
ended. A fork takes a few milliseconds of a processor that the file may need."""

MAX_LOST_SPARES = 5
"""Waiting decoders that may die in a row. After that something is wrong with this process: it
exits, and the server starts another one after a pause."""

PIECE_BYTES = 128 * 1024
"Audio in one message: 4 s at 16 kHz."

_RECEIVE_BYTES = 64 * 1024


class DecodeFileRequest(Struct, frozen=True, tag_field="type", tag="decode_file"):
    """Asks the host to decode the file that is passed with this message as a descriptor.

    The audio goes to the socket that is passed with it, too. `FileDecodeEnd` follows when the
    decoder is gone, however it ended.
    """

    request_id: int
    rate_hz: int
    "Sample rate of the audio to return."
    max_bytes: int
    max_duration_s: float
    memory_bytes: int
    "Memory that the decoder may take in addition to what it has before it opens the file."
    processor_s: float
    "Processor time in seconds that the decoder may take in any case."
    processor_per_audio_s: float
    "Additional processor time for each second of decoded audio."


class HostReady(Struct, frozen=True, tag_field="type", tag="host_ready"):
    """Says that the libraries are loaded and a decoder waits for its file."""


class FileDecodeEnd(Struct, frozen=True, tag_field="type", tag="file_over"):
    """Says that the decoder of this file has ended."""

    request_id: int
    exit_code: int
    "0, or the negative number of the signal that killed it."


class PcmChunk(Struct, frozen=True, tag_field="type", tag="sound"):
    """The next piece of a file's audio, as little-endian int16 bytes, mono."""

    pcm: bytes


class PcmEnd(Struct, frozen=True, tag_field="type", tag="sound_over"):
    """Says that the file was decoded to its end."""


HostRequest = LoadRequest | CancelRequest | PingRequest
"Messages from the server to the host on the control socket."
HostReply = HostReady | FileDecodeEnd | PongReply
"Messages from the host to the server."
PcmReply = PcmChunk | PcmEnd | FailureReply
"Messages from a decoder to the server."


class DecoderHost:
    """Serves requests until the server closes the socket."""

    def __init__(self, control: socket.socket, files: socket.socket) -> None:
        self._control, self._files = control, files
        self._reader: MessageFrameReader[HostRequest] = MessageFrameReader(Decoder(HostRequest))
        self._request = Decoder(DecodeFileRequest)
        self._spare: tuple[int, socket.socket] | None = None
        "Process id and socket of the decoder that waits for the next file."
        self._spare_failures = 0
        self._running: dict[int, int] = {}
        "Request ids by the process id of their decoders."
        self._new: deque[tuple[float, int]] = deque()
        "Time at which a decoder gets its nice value, and its process id; in order of time."

    def run(self) -> None:
        """Serves requests until the server closes the control socket."""
        wakeup_receiver, wakeup_sender = socket.socketpair()
        for source in (self._files, wakeup_receiver, wakeup_sender):
            source.setblocking(False)
        signal.set_wakeup_fd(wakeup_sender.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # else no wakeup is sent
        load_codecs()
        gc.collect()
        gc.freeze()  # objects from here are never collected, so that forks share their memory
        self._fork_spare()
        self._send(HostReady())
        with selectors.DefaultSelector() as selector:
            for source in (self._control, self._files, wakeup_receiver):
                selector.register(source, selectors.EVENT_READ)
            while True:
                readable = [key.fileobj for key, _ in selector.select(self._wait_s())]
                if not readable and self._spare is None:
                    self._fork_spare()
                self._lower_priorities()
                requests = list(self._receive()) if self._control in readable else []
                self._receive_files()  # first: a CancelRequest may be for one of these files
                if wakeup_receiver in readable:
                    wakeup_receiver.recv(_RECEIVE_BYTES)
                    self._reap()
                if None in requests:
                    # The sockets close now, and the waiting decoder ends: its signal must not go
                    # to a closed one.
                    signal.set_wakeup_fd(-1)
                    return
                for request in requests:
                    self._serve(request)

    def _wait_s(self) -> float | None:
        """Returns the seconds until there is something to do without a message; None: nothing."""
        waits = [max(0.0, at - monotonic()) for at, _ in list(self._new)[:1]]
        if self._spare is None:
            waits.append(REFILL_S)
        return min(waits, default=None)

    def _lower_priorities(self) -> None:
        """Gives the nice value to the decoders that have taken long."""
        while self._new and self._new[0][0] <= monotonic():
            _, process_id = self._new.popleft()
            if process_id in self._running:
                os.setpriority(os.PRIO_PROCESS, process_id, NICE)
                if sys.platform == "linux":  # SCHED_BATCH: it no longer preempts others on waking
                    os.sched_setscheduler(process_id, os.SCHED_BATCH, os.sched_param(0))

    def _serve(self, request: HostRequest | None) -> None:
        match request:
            case CancelRequest(request_id):
                for process_id, its_request in self._running.items():
                    if its_request == request_id:
                        os.kill(process_id, signal.SIGKILL)  # the id is not reused before `_reap`
            case PingRequest(number):
                self._send(PongReply(number))
            case _:
                pass  # a LoadRequest: the process has loaded by starting

    def _receive(self) -> Iterator[HostRequest | None]:
        """Yields the requests that have arrived; None when the server is gone."""
        try:
            data = self._control.recv(_RECEIVE_BYTES)
        except ConnectionError:
            data = b""
        yield from self._reader.receive_data(data) if data else [None]

    def _receive_files(self) -> None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._files, _RECEIVE_BYTES, 2)
            except BlockingIOError:
                return
            if not data:
                return  # the server is gone; the control socket reports it
            request_id = self._request.decode(data).request_id
            self._give_to_decoder(request_id, data, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)

    def _give_to_decoder(self, request_id: int, data: bytes, descriptors: list[int]) -> None:
        """Passes a file to the waiting decoder, or to a new one."""
        while True:
            process_id, spare = self._spare or self._fork_spare()
            self._spare = None
            with spare:
                try:
                    socket.send_fds(spare, [data], descriptors)
                except ConnectionError:
                    continue  # the spare died while it waited: take another
            self._running[process_id] = request_id
            self._new.append((monotonic() + NICE_AFTER_S, process_id))
            self._spare_failures = 0
            return

    def _fork_spare(self) -> tuple[int, socket.socket]:
        """Forks the decoder of the next file in advance, because a fork takes longer than most
        files."""
        parent_socket, child_socket = socket.socketpair()
        process_id = os.fork()
        if process_id == 0:
            _become_decoder(child_socket)
        child_socket.close()
        self._spare = (process_id, parent_socket)
        return self._spare

    def _reap(self) -> None:
        with suppress(ChildProcessError):  # no child is left
            while True:
                process_id, status = os.waitpid(-1, os.WNOHANG)
                if process_id == 0:
                    return
                if self._spare is not None and process_id == self._spare[0]:
                    self._count_spare_failure()
                if process_id in self._running:
                    exit_code = os.waitstatus_to_exitcode(status)
                    self._send(FileDecodeEnd(self._running.pop(process_id), exit_code))
                    if self._spare is None:
                        self._fork_spare()

    def _count_spare_failure(self) -> None:
        assert self._spare is not None
        self._spare[1].close()
        self._spare = None
        self._spare_failures += 1
        if self._spare_failures > MAX_LOST_SPARES:
            raise SystemExit("decoder processes end before they get a file")

    def _send(self, reply: HostReply) -> None:
        with suppress(ConnectionError):  # the server is gone: the next receive ends the loop
            self._control.sendall(frame(reply))


def _become_decoder(requests: socket.socket) -> NoReturn:
    """Decodes one file in a forked process, which then ends. Never returns into the host's code."""
    exit_code = 1
    try:
        _leave_host(requests.fileno())
        _decode_silence()
        data, descriptors, _, _ = socket.recv_fds(requests, _RECEIVE_BYTES, 2)
        if data:
            request = Decoder(DecodeFileRequest).decode(data)
            _confine(request)
            sound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=descriptors[1])
            _decode(request, descriptors[0], sound)
        exit_code = 0
    finally:
        os._exit(exit_code)


def _leave_host(kept_descriptor: int) -> None:
    """Gives up everything of the host but the socket `kept_descriptor`."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with_parent()
    os.closerange(3, kept_descriptor)
    os.closerange(kept_descriptor + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _decode_silence() -> None:
    """Decodes a tenth of a second of silence. A fork shares its memory with the host, and its first
    write to each page costs time. This makes these writes before a file arrives."""
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(44_100)
        out.writeframes(bytes(8820))
    frame(PcmChunk(b"".join(pcm.tobytes() for pcm in decode(file.getvalue()))))


def _confine(request: DecodeFileRequest) -> None:
    """Limits this process: bounded memory and processor time, and no new file or socket. A decoder
    that a file has taken over can only send audio."""
    if sys.platform == "linux":
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - a path object costs more
            size_bytes = int(statm.read().split()[0]) * resource.getpagesize()
        _limit(resource.RLIMIT_AS, size_bytes + request.memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, 0)
    _allow_processor_s(request.processor_s)


def _limit(kind: int, limit: int) -> None:
    resource.setrlimit(kind, (limit, limit))


def _allow_processor_s(seconds: float) -> None:
    """Sets the limit of processor time, in whole seconds, after which the kernel ends the
    process."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, hard))


def _decode(request: DecodeFileRequest, file: int, sound: socket.socket) -> None:
    with open(file, "rb") as source, suppress(ConnectionError):
        try:
            limits = FileLimits(request.max_bytes, request.max_duration_s)
            done_s = 0.0
            for pcm in decode(source, request.rate_hz, limits):
                done_s += len(pcm) / request.rate_hz
                _allow_processor_s(request.processor_s + request.processor_per_audio_s * done_s)
                data = memoryview(pcm.astype("<i2", copy=False).tobytes())
                for start in range(0, len(data), PIECE_BYTES):
                    sound.sendall(frame(PcmChunk(bytes(data[start : start + PIECE_BYTES]))))
            reply: PcmReply = PcmEnd()
        except ConnectionError:
            raise
        except EarshotError as exc:
            reply = FailureReply(exc.code, str(exc))
        except Exception as exc:
            logger.error("an audio file was not decoded: %s", type(exc).__name__)
            reply = FailureReply("unsupported_audio", f"unsupported audio: {type(exc).__name__}")
        sound.sendall(frame(reply))


def main() -> None:
    """Runs a host on the inherited sockets `--fd` and `--files-fd`."""
    parser = argparse.ArgumentParser(prog="serving.workers.file_decoder_host")
    parser.add_argument("--fd", type=int, required=True, help="inherited, connected stream socket")
    parser.add_argument("--files-fd", type=int, required=True, help="the same, for descriptors")
    arguments = parser.parse_args()
    set_up_worker_process()
    with (
        socket.socket(fileno=arguments.fd) as control,
        socket.socket(fileno=arguments.files_fd) as files,
    ):
        DecoderHost(control, files).run()


if __name__ == "__main__":
    main()
