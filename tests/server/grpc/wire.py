"""Messages of KServe's gRPC service, written byte by byte as clients send them."""

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def chunk(number: int, data: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def tensor(name: bytes, datatype: bytes, shape: tuple[int, ...]) -> bytes:
    sizes = b"".join(map(varint, shape))
    return chunk(5, chunk(1, name) + chunk(2, datatype) + chunk(3, sizes))


def texts(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def whisper_request(
    rows: npt.NDArray[np.float32], lengths: list[int], prefixes: list[bytes]
) -> bytes:
    """Returns the message that `send_whisper` of Triton-ASR-Client sends."""
    count = len(lengths)
    return b"".join(
        (
            chunk(1, b"infer_bls"),
            chunk(3, b"100000000"),
            tensor(b"WAV", b"FP32", rows.shape),
            tensor(b"WAV_LENS", b"INT32", (count, 1)),
            tensor(b"TEXT_PREFIX", b"BYTES", (count, 1)),
            chunk(6, chunk(1, b"TRANSCRIPTS")),
            chunk(7, rows.astype("<f4").tobytes()),
            chunk(7, struct.pack(f"<{count}i", *lengths)),
            chunk(7, texts(*prefixes)),
        )
    )


def parameter(name: bytes, value: bytes) -> bytes:
    return chunk(4, chunk(1, name) + chunk(2, value))


def streaming_requests(samples: npt.NDArray[np.float32]) -> Iterator[bytes]:
    """Yields the messages of `send_streaming`: 13600 samples, then 10240 each. Zeros fill the last
    one."""
    start, size = 0, 13600
    while start < len(samples):
        piece = samples[start : start + size]
        row = np.zeros(size, "<f4")
        row[: len(piece)] = piece
        yield b"".join(
            (
                chunk(1, b"streaming_wenet"),
                parameter(b"sequence_id", number(2, 10086)),
                parameter(b"sequence_start", number(1, int(start == 0))),
                parameter(b"sequence_end", number(1, int(start + size >= len(samples)))),
                tensor(b"WAV", b"FP32", (1, size)),
                tensor(b"WAV_LENS", b"INT32", (1, 1)),
                chunk(6, chunk(1, b"TRANSCRIPTS")),
                chunk(7, row.tobytes()),
                chunk(7, struct.pack("<i", len(piece))),
            )
        )
        start, size = start + size, 10240


def transcripts_of(reply: bytes) -> list[bytes]:
    """The texts of a reply with one output, whose shape must be `[n]`."""
    fields = dict(_fields(reply))
    output = dict(_fields(fields[5]))
    assert (output[1], output[2]) == (b"TRANSCRIPTS", b"BYTES")
    data, found = fields[6], []
    while data:
        (length,) = struct.unpack_from("<I", data)
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    assert output[3] == varint(len(found))
    return found


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields fields with a length; the test's replies have no others."""
    while data:
        key, data = _number(data)
        assert key & 7 == 2
        length, data = _number(data)
        yield key >> 3, data[:length]
        data = data[length:]


def _number(data: bytes) -> tuple[int, bytes]:
    value, shift = 0, 0
    for index, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data[index + 1 :]
    raise AssertionError("cut off")
