"""Decodes untrusted audio files, each in a process of its own, a bounded number at once."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from msgspec.msgpack import Decoder, encode

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import (
    EngineCrashed,
    OverloadedError,
    PayloadTooLarge,
    RemoteProtocolError,
    RequestError,
)
from core.ports import Metrics
from engines.runtime.worker.protocol import (
    CancelRequest,
    FailureReply,
    LoadRequest,
    MessageFrameReader,
    PongReply,
    worker_command,
)
from media.files.decode import FileLimits
from serving.workers.child_process import ChildProcessWorker
from serving.workers.file_decoder_host import (
    PIECE_BYTES,
    DecodeFileRequest,
    FileDecodeEnd,
    HostReady,
    HostReply,
    PcmChunk,
    PcmEnd,
    PcmReply,
)

logger = logging.getLogger(__name__)

UPLOADS = 16
"""Number of callers' files that are decoded at once. A long file is decoded as fast as it is
recognised, so it keeps its slot that long. Together they take at most 16 times MEMORY_BYTES,
1 GiB."""

DEVICE_UPLOADS = 4
"""Number of files of Willow devices that are decoded at once. The devices have no key, so their
files never take a caller's slot."""

QUEUE_S = 30.0
"Longest wait of a file for a slot. After that its sender gets OverloadedError."

PIECE_S = 30.0
"""Longest wait for the next piece of a file's audio, which normally takes milliseconds. A decoder
that works too long is ended by its limit of processor time. One that got no processor time in this
period is on a machine that is far too busy."""

MEMORY_BYTES = 64 * 1024 * 1024
"""Memory of a decoder, in addition to what it has before it opens a file. Two hours of AAC have an
index of 8 MB; the longest frame is 2 MB."""

PROCESSOR_S = 5
"""Seconds of processor time to open a file and understand it. A film of 100 MB took a tenth of
it when measured, and small machines are ten times slower."""

PROCESSOR_PER_AUDIO_S = 0.02
"""Seconds of processor time allowed per second of decoded audio. AAC, the slowest, took 0.0015
when measured."""

RETRY_AFTER_S = 5
"Seconds after which a refused client should try again."

_MAX_PAYLOAD_BYTES = PIECE_BYTES + 1024
"Largest message of a decoder: one piece of audio and its frame."
_TOO_LARGE = ("audio_too_large", "audio_too_long")
"Error codes of a decoder that mean a payload that is too large."
_MAX_MESSAGE = 1000
"Longest error message of a decoder that is passed on, in characters."


@dataclass(slots=True, eq=False)
class _FileDecode:
    """A file that a process is decoding, or that was cancelled while its process still runs."""

    exit_code: asyncio.Future[int]
    "Gets the exit code of its process."
    slots: asyncio.Semaphore
    "Semaphore that gets its slot back when the process is gone."


class DecoderProcess(ChildProcessWorker[None, HostReply]):
    """The host process that forks the decoders. `run` supervises it; each door gets a `share` of
    it."""

    def __init__(self, metrics: Metrics, *, processor_s: float = PROCESSOR_S) -> None:
        super().__init__(
            LoadRequest("files", "decoder", {}), metrics, name="decoder", label="files"
        )
        self._has_loaded = True  # a failed first load is retried: the server works without uploads
        self._files: socket.socket | None = None
        self._running: dict[int, _FileDecode] = {}
        self._next_id = 0
        self.processor_s = processor_s

    def share(self, max_files: int) -> "DecoderShare":
        """Returns a decoder for at most `max_files` files at once, independent of the other
        shares."""
        return DecoderShare(self, max_files)

    async def begin(
        self, file: BinaryIO, rate_hz: int, limits: FileLimits, slots: asyncio.Semaphore
    ) -> tuple[int, asyncio.Future[int], socket.socket]:
        """Passes a file to the host. Returns the request's id, a future for the exit code, and the
        socket that the audio comes from.

        Raises EngineCrashed, OverloadedError. `slots` gets its slot back when the decoder's
        process is gone.
        """
        await self._wait_until_restarted()
        self._next_id += 1
        request_id = self._next_id
        request = DecodeFileRequest(
            request_id,
            rate_hz,
            limits.max_bytes,
            limits.max_duration_s,
            MEMORY_BYTES,
            self.processor_s,
            PROCESSOR_PER_AUDIO_S,
        )
        parent_socket, child_socket = socket.socketpair()
        try:
            with child_socket:
                self._send_to_host(request, file.fileno(), child_socket.fileno())
        except BaseException:
            parent_socket.close()
            raise
        exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._running[request_id] = _FileDecode(exit_code, slots)
        return request_id, exit_code, parent_socket

    def cancel(self, request_id: int) -> None:
        """Kills the process that decodes this file, if it still runs."""
        if request_id in self._running:
            self._write_message(CancelRequest(request_id))

    def _send_to_host(self, request: DecodeFileRequest, file: int, audio: int) -> None:
        """Sends a request with the descriptors of the file and of the socket for its audio."""
        if self._files is None:
            raise EngineCrashed(self._kind, self._name, "its worker process died")
        data = encode(request)
        try:
            socket.send_fds(self._files, [data], [file, audio])
        except BlockingIOError:
            raise OverloadedError(
                "too many files are waiting to be decoded", retry_after_s=RETRY_AFTER_S
            ) from None
        except OSError as exc:
            raise EngineCrashed(self._kind, self._name, "its worker process died") from exc

    async def _start(self, child_socket: socket.socket) -> asyncio.subprocess.Process:
        self._files, child_files = socket.socketpair()
        self._files.setblocking(False)
        descriptors = (child_socket.fileno(), child_files.fileno())
        module = "serving.workers.file_decoder_host"
        command = worker_command(sys.executable, descriptors[0], module)
        with child_files:
            return await asyncio.create_subprocess_exec(
                *command,
                *("--files-fd", str(descriptors[1])),
                pass_fds=descriptors,
                stdin=asyncio.subprocess.DEVNULL,
            )

    def _reader(self) -> MessageFrameReader[HostReply]:
        return MessageFrameReader(Decoder(HostReply))

    def _receive(self, reply: HostReply) -> None:
        match reply:
            case HostReady():
                self._set_loaded(None)
            case FileDecodeEnd(request_id=request_id, exit_code=exit_code):
                running = self._running.pop(request_id)
                running.slots.release()
                if not running.exit_code.done():
                    running.exit_code.set_result(exit_code)
            case PongReply():
                pass  # its arrival is all that matters

    def _fail_requests(self, why: str) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None
        for running in self._running.values():
            running.slots.release()
            if not running.exit_code.done():
                running.exit_code.set_exception(EngineCrashed(self._kind, self._name, why))
                running.exit_code.exception()  # counts as seen: its caller may be leaving just now
        self._running.clear()


class DecoderShare:
    """Decodes at most a fixed number of files at once. Implements
    `media.files.decode.FileDecoder`."""

    def __init__(self, process: DecoderProcess, max_files: int) -> None:
        self._process = process
        self._slots = asyncio.Semaphore(max_files)

    async def blocks(
        self, file: BinaryIO, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
    ) -> AsyncGenerator[Pcm, None]:
        """Yields the file's audio as fast as the caller takes it: int16, mono, at `rate_hz`.
        Closing the generator kills the decoder's process.

        Raises RequestError for a file that cannot be decoded, PayloadTooLarge, OverloadedError,
        EngineCrashed.
        """
        request_id, exit_code, parent_socket = await self._begin(
            file, rate_hz, limits or FileLimits()
        )
        try:
            async with _stream(parent_socket) as reader:
                reply_reader: MessageFrameReader[PcmReply] = MessageFrameReader(
                    Decoder(PcmReply), _MAX_PAYLOAD_BYTES
                )
                while data := await _next_data(reader):
                    for reply in _decode_replies(reply_reader, data):
                        match reply:
                            case PcmChunk(pcm=pcm):
                                yield np.frombuffer(pcm, "<i2").astype(np.int16, copy=False)
                            case PcmEnd():
                                return
                            case FailureReply(code=code, message=message):
                                raise _refusal(code, message)
            raise _error_of_exit(await exit_code, self._process.processor_s)
        finally:
            self._process.cancel(request_id)

    async def _begin(
        self, file: BinaryIO, rate_hz: int, limits: FileLimits
    ) -> tuple[int, asyncio.Future[int], socket.socket]:
        try:
            async with asyncio.timeout(QUEUE_S):
                await self._slots.acquire()
        except TimeoutError:
            raise OverloadedError(
                f"no file could be decoded for {QUEUE_S:.0f} s: the queue is full",
                retry_after_s=RETRY_AFTER_S,
            ) from None
        try:
            return await self._process.begin(file, rate_hz, limits, self._slots)
        except BaseException:
            self._slots.release()
            raise


@asynccontextmanager
async def _stream(parent_socket: socket.socket) -> AsyncIterator[asyncio.StreamReader]:
    try:
        reader, writer = await asyncio.open_connection(sock=parent_socket, limit=PIECE_BYTES)
    except BaseException:
        parent_socket.close()
        raise
    try:
        yield reader
    finally:
        writer.close()


async def _next_data(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(PIECE_S):
            return await reader.read(PIECE_BYTES)
    except TimeoutError:
        raise OverloadedError(
            f"decoding of the file made no progress for {PIECE_S:.0f} s",
            retry_after_s=RETRY_AFTER_S,
        ) from None
    except ConnectionError:
        return b""


def _decode_replies(reader: MessageFrameReader[PcmReply], data: bytes) -> list[PcmReply]:
    """Decodes a decoder's messages. They are not trusted: a file may have taken over the decoder.
    Raises RequestError for invalid messages."""
    try:
        replies = list(reader.receive_data(data))
    except RemoteProtocolError as exc:
        raise _unsupported("the decoder crashed on this file") from exc
    if any(isinstance(reply, PcmChunk) and len(reply.pcm) % 2 for reply in replies):
        raise _unsupported("the decoder crashed on this file")
    return replies


def _refusal(code: str, message: str) -> RequestError:
    message = message[:_MAX_MESSAGE]
    if code in _TOO_LARGE:
        return PayloadTooLarge(message, code=code)
    return RequestError(message, code="unsupported_audio")


def _error_of_exit(exit_code: int, processor_s: float) -> RequestError:
    """Returns the error for a decoder that ended without a message."""
    logger.warning("! files: a decoder ended with exit status %d", exit_code)
    if exit_code == -signal.SIGXCPU:
        return _unsupported(
            f"it takes too long to decode; allowed are {processor_s:g} s of processor time and"
            f" {PROCESSOR_PER_AUDIO_S} s for each second of sound"
        )
    return _unsupported(
        f"the decoder crashed on this file; it may use {MEMORY_BYTES // 2**20} MB of memory"
    )


def _unsupported(problem: str) -> RequestError:
    return RequestError(f"unsupported audio: {problem}", code="unsupported_audio")
