"""Messages between the gateway and a model worker, in length-prefixed frames.

A frame is the payload's length as a big-endian u32, then the payload: one msgpack map with its type
under `type`. There is no I/O here: `frame` makes bytes; `MessageFrameReader` takes them in any
split and returns messages.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import DecodeError, Raw, Struct
from msgspec.msgpack import Decoder, Encoder, decode

from core.errors import RemoteProtocolError

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"""Largest payload: 35 minutes of 16 kHz audio in one batch. A larger length means that the reader
has lost the frame boundaries."""

_LENGTH_BYTES = 4

NO_ENVIRONMENT: Mapping[str, str] = {}
"No additional environment variables."

PayloadT = TypeVar("PayloadT")
"""Type of a message's payload. The sender names it, so that it is encoded in place: a batch of long
utterances has megabytes. The receiver names `Raw`, and decodes it when it knows the type."""


class LoadRequest(Struct, frozen=True, tag_field="type", tag="load"):
    """Asks the worker to load an engine. It is the first message, and is sent once. The answer is
    `ReadyReply` or `FailureReply`."""

    kind: str
    'Kind of the engine, such as "asr".'
    name: str
    "Name of the engine for `engines.registry.load`."
    options: dict[str, Any]
    "The engine's settings as written in the configuration."


class CallRequest(Struct, Generic[PayloadT], frozen=True, tag_field="type", tag="call"):
    """Calls a method of the engine.

    Any number of `ChunkReply` follow, then `DoneReply` or `FailureReply`, all with the same
    `request_id`. `engines.runtime.worker.payloads` lists the methods of each kind of engine.
    """

    request_id: int
    "Number that the replies refer to."
    method: str
    payload: PayloadT
    "Arguments of the method. `Raw` on the worker's side, which decodes it by the method."


class CancelRequest(Struct, frozen=True, tag_field="type", tag="cancel"):
    """Cancels a call whose result is no longer needed.

    It has no reply, and normally the cancelled call has none either. An engine whose calls do not
    overlap has already replied to the call when it reads this.
    """

    request_id: int


class PingRequest(Struct, frozen=True, tag_field="type", tag="ping"):
    """Asks whether the worker is alive. `PongReply` answers it after all earlier requests."""

    number: int
    "Number that the `PongReply` repeats."


class ReadyReply(Struct, Generic[PayloadT], frozen=True, tag_field="type", tag="ready"):
    """Says that the engine is loaded."""

    info: PayloadT
    "Properties of the engine: `AsrInfo`, `TtsInfo`, `TextModelInfo`; None for a language model."


class ChunkReply(Struct, Generic[PayloadT], frozen=True, tag_field="type", tag="chunk"):
    """Part of the result of a call whose result is a stream."""

    request_id: int
    payload: PayloadT


class DoneReply(Struct, Generic[PayloadT], frozen=True, tag_field="type", tag="done"):
    """End of a call."""

    request_id: int
    payload: PayloadT
    "The result; None after a stream."


class FailureReply(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="failed"):
    """Says that a request failed, and why."""

    code: str
    "Error code as in `core.errors`."
    message: str
    "Message for the log and the caller."
    request_id: int | None = None
    "The failed call. None: the load failed, and the worker exits."
    retry_after_s: int | None = None
    "Set for an OverloadedError."
    is_request_error: bool = False
    "True for a RequestError."
    param: str | None = None
    "The wrong field of a RequestError."


class PongReply(Struct, frozen=True, tag_field="type", tag="pong"):
    """Answers a `PingRequest`."""

    number: int


WorkerRequest = LoadRequest | CallRequest[Raw] | CancelRequest | PingRequest
"Messages from the gateway, as the worker reads them."

WorkerReply = ReadyReply[Raw] | ChunkReply[Raw] | DoneReply[Raw] | FailureReply | PongReply
"Messages from the worker, as the gateway reads them."

T = TypeVar("T")


class MessageFrameReader(Generic[T]):
    """Reads frames from bytes in any split, and returns their messages. After a RemoteProtocolError
    the stream cannot be used any more."""

    def __init__(self, decoder: Decoder[T], max_payload_bytes: int | None = None) -> None:
        """Creates a reader. `decoder`: decodes one payload. `max_payload_bytes`: None means
        MAX_PAYLOAD_BYTES."""
        self._decoder, self._max_payload_bytes = decoder, max_payload_bytes
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> Iterator[T]:
        """Yields the messages that `data` completes. Consume all of them before the next call.
        Raises RemoteProtocolError for a bad or too large frame."""
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


def read_message(reader: MessageFrameReader[T], data: bytes) -> T:
    """Returns the one message in a frame. Raises RemoteProtocolError if the bytes are not exactly
    one frame. `reader`: a new reader of the wanted messages."""
    messages = list(reader.receive_data(data))
    if len(messages) != 1:
        raise RemoteProtocolError(f"{len(data)} bytes hold {len(messages)} messages, not one")
    return messages[0]


def decode_payload(payload: Raw, kind: type[T]) -> T:
    """Decodes a message's payload. Raises RemoteProtocolError if it is not of this type."""
    try:
        return decode(payload, type=kind)
    except (DecodeError, UnicodeDecodeError) as exc:
        raise RemoteProtocolError(f"bad payload: {exc}") from exc


def request_reader() -> MessageFrameReader[WorkerRequest]:
    """Returns a reader for the messages that a worker receives."""
    return MessageFrameReader(Decoder(WorkerRequest))


def reply_reader() -> MessageFrameReader[WorkerReply]:
    """Returns a reader for the messages that the gateway receives."""
    return MessageFrameReader(Decoder(WorkerReply))


def worker_command(
    python: str,
    fd: int,
    module: str = "engines.runtime.worker.main",
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    nice: int = 0,
) -> list[str]:
    """Returns the command line that starts a worker on an inherited socket. `python`: the
    interpreter. `fd`: the socket's file descriptor. `module`: the worker program. `environment`:
    further environment variables. `nice`: niceness of the process, 0 to 19."""
    # Set before the start, because libraries read them when they are loaded. Threads that spin
    # while they wait take the cores from each other: next to one busy process a decode took 97 ms;
    # without spinning it takes 10 ms. PCI_BUS_ID: CUDA counts GPUs like nvidia-smi, not by speed.
    settings = ["OMP_WAIT_POLICY=PASSIVE", "OPENBLAS_NUM_THREADS=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]
    settings += [f"{name}={value}" for name, value in environment.items()]
    priority = ["nice", "-n", str(nice)] if nice else []
    return [*priority, "env", *settings, python, "-m", module, "--fd", str(fd)]


def _plain_number(value: object) -> object:
    """Returns a NumPy scalar as a Python number: engines compute times with NumPy. Raises TypeError
    for other objects."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a message cannot hold the type {type(value).__name__}")


def frame(message: Struct) -> bytearray:
    """Encodes one message of this protocol, or of a similar one, as a frame. Raises
    RemoteProtocolError when it is too large, or has a value that msgpack cannot encode."""
    # Encoded in place: a batch of long utterances has megabytes, and each copy blocks the event
    # loop.
    data = bytearray(_LENGTH_BYTES)
    try:
        Encoder(enc_hook=_plain_number).encode_into(message, data, _LENGTH_BYTES)
    except (UnicodeEncodeError, OverflowError, TypeError) as exc:
        # A lone surrogate; an integer of 2 ** 64; an object of a library.
        raise RemoteProtocolError(f"cannot be sent: {exc}") from exc
    length = len(data) - _LENGTH_BYTES
    if length > MAX_PAYLOAD_BYTES:
        raise RemoteProtocolError(f"frame of {length} bytes, limit {MAX_PAYLOAD_BYTES}")
    data[:_LENGTH_BYTES] = length.to_bytes(_LENGTH_BYTES, "big")
    return data
