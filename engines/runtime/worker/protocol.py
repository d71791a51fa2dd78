"""What a gateway and its model worker say to each other: typed messages in length-prefixed frames.

A frame is a big-endian u32, the payload's length, then one msgpack map with its type under `type`.
Sans-IO: `frame` makes bytes, `MessageFrameReader` takes them back in any split.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import DecodeError, Struct
from msgspec.msgpack import Decoder, Encoder

from core.errors import RemoteProtocolError
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"35 minutes of 16 kHz audio in one batch; a larger length means that the stream is out of step."

_LENGTH_BYTES = 4


class LoadRequest(Struct, frozen=True, tag_field="type", tag="load"):
    """First message to a worker, once: become this engine. Answered by `ReadyReply` or
    `FailureReply`."""

    kind: str
    name: str
    options: dict[str, Any]
    "The engine's settings as written in the configuration."


class AsrItemMessage(Struct, frozen=True):
    """An `AsrItem` with its samples as little-endian int16 bytes."""

    utterance: str
    pcm: bytes
    is_final: bool
    options: AsrOptions

    @classmethod
    def of(cls, item: AsrItem) -> "AsrItemMessage":
        pcm = item.pcm.astype("<i2", copy=False).tobytes()
        return cls(item.utterance, pcm, item.is_final, item.options)

    def to_item(self) -> AsrItem:
        """The samples are a read-only view of the frame. Raises RemoteProtocolError on half a
        sample."""
        if len(self.pcm) % 2:
            raise RemoteProtocolError(f"{len(self.pcm)} bytes are no whole number of samples")
        pcm = np.frombuffer(self.pcm, "<i2").astype(np.int16, copy=False)
        return AsrItem(self.utterance, pcm, self.is_final, self.options)


class DecodeRequest(Struct, frozen=True, tag_field="type", tag="decode"):
    """Run one batch. Answered by `DecodeReply` or `FailureReply` with the same `request_id`."""

    request_id: int
    items: list[AsrItemMessage]


class CancelRequest(Struct, frozen=True, tag_field="type", tag="cancel"):
    """Nobody waits for that `DecodeRequest` any more. No answer, also not to it; an engine whose
    calls do not overlap has computed it by then, and answers."""

    request_id: int


class ForgetRequest(Struct, frozen=True, tag_field="type", tag="forget"):
    """Drop what is cached for an utterance. No answer."""

    utterance: str


class PingRequest(Struct, frozen=True, tag_field="type", tag="ping"):
    """Does it live? Answered by `PongReply`, after everything before it."""

    number: int


class ReadyReply(Struct, frozen=True, tag_field="type", tag="ready"):
    """The engine is loaded."""

    info: AsrInfo


class DecodeReply(Struct, frozen=True, tag_field="type", tag="decoded"):
    request_id: int
    results: list[AsrResult]
    "One per item, in order."


class FailureReply(Struct, frozen=True, tag_field="type", tag="failed"):
    code: str
    "As in `core.errors`."
    message: str
    request_id: int | None = None
    "None: the load failed, and the worker exits."


class PongReply(Struct, frozen=True, tag_field="type", tag="pong"):
    number: int


WorkerRequest = LoadRequest | DecodeRequest | CancelRequest | ForgetRequest | PingRequest
"Gateway to worker."

WorkerReply = ReadyReply | DecodeReply | FailureReply | PongReply
"Worker to gateway."

T = TypeVar("T")


class MessageFrameReader(Generic[T]):
    """Bytes in any split -> messages. Raises RemoteProtocolError; the stream is then lost."""

    def __init__(self, decoder: Decoder[T], max_payload_bytes: int | None = None) -> None:
        """`max_payload_bytes`: None is MAX_PAYLOAD_BYTES."""
        self._decoder, self._max_payload_bytes = decoder, max_payload_bytes
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> Iterator[T]:
        """The messages that `data` completes. Consume all of them before the next call."""
        self._buffer += data
        limit = self._max_payload_bytes or MAX_PAYLOAD_BYTES
        while len(self._buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
            if length > limit:
                raise RemoteProtocolError(f"frame of {length} bytes, limit {limit}")
            end = _LENGTH_BYTES + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_LENGTH_BYTES:end])
            del self._buffer[:end]
            try:
                message = self._decoder.decode(payload)
            except (DecodeError, UnicodeDecodeError) as exc:
                raise RemoteProtocolError(f"bad frame: {exc}") from exc
            yield message


def request_reader() -> MessageFrameReader[WorkerRequest]:
    """For the worker."""
    return MessageFrameReader(Decoder(WorkerRequest))


def reply_reader() -> MessageFrameReader[WorkerReply]:
    """For the gateway."""
    return MessageFrameReader(Decoder(WorkerReply))


def worker_command(python: str, fd: int, module: str = "engines.runtime.worker.main") -> list[str]:
    """How to start a worker on an inherited socket.

    Its thread libraries read these settings when they are loaded. Threads that spin while they
    wait take the cores from each other: beside one busy process a decode took 97 ms, and takes 10.
    GPUs are to be counted as nvidia-smi counts them, not by speed.
    """
    settings = ["OMP_WAIT_POLICY=PASSIVE", "OPENBLAS_NUM_THREADS=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]
    return ["env", *settings, python, "-m", module, "--fd", str(fd)]


def frame(message: Struct) -> bytearray:
    """One message, of this protocol or one like it, as it goes on the wire. Raises
    RemoteProtocolError when it is too large, or has what nobody can write down.

    Encoded in place: a batch of long utterances is megabytes, and each copy stops the event loop.
    """
    data = bytearray(_LENGTH_BYTES)
    try:
        Encoder().encode_into(message, data, _LENGTH_BYTES)
    except (UnicodeEncodeError, OverflowError) as exc:  # half a surrogate pair, 2 ** 64
        raise RemoteProtocolError(f"cannot be sent: {exc}") from exc
    length = len(data) - _LENGTH_BYTES
    if length > MAX_PAYLOAD_BYTES:
        raise RemoteProtocolError(f"frame of {length} bytes, limit {MAX_PAYLOAD_BYTES}")
    data[:_LENGTH_BYTES] = length.to_bytes(_LENGTH_BYTES, "big")
    return data
