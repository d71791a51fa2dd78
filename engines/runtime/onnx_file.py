"""Reads the layers of an ONNX file with their weights, in the order in which they run, and makes
inner values of a network its outputs.

An ONNX file is one protocol buffer; the field numbers below are from `onnx.proto`. We need few of
them, and the onnx package takes 35 MB with its dependencies.
"""

from collections.abc import Collection, Iterator
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_GRAPH = 7  # of ModelProto
_NODE, _INITIALIZER, _OUTPUT = 1, 5, 12  # of GraphProto
_INPUT, _OP_TYPE = 1, 4  # of NodeProto
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA = 1, 2, 8, 9  # of TensorProto
_VALUE_NAME = 1  # of ValueInfoProto
_FLOAT = 1
_MAX_VARINT_BITS = 64


class OnnxLayer(NamedTuple):
    """A node of the graph with its weights."""

    kind: str
    "Operator of the node: `Conv`, `LSTM`."
    weights: tuple[npt.NDArray[np.float32], ...]
    "Inputs of the node that are weights, in the operator's order."


def layers(data: bytes, kinds: Collection[str]) -> list[OnnxLayer]:
    """Returns the nodes with an operator in `kinds`.

    Raises ValueError if `data` is no ONNX file or damaged.
    """
    matching_layers: list[OnnxLayer] = []
    for graph in _parts(memoryview(data), _GRAPH):
        tensors = dict(_weights(graph))
        for node in _parts(graph, _NODE):
            kind = "".join(map(_text, _parts(node, _OP_TYPE)))
            if kind in kinds:
                names = map(_text, _parts(node, _INPUT))
                matching_layers.append(
                    OnnxLayer(kind, tuple(tensors[name] for name in names if name in tensors))
                )
    return matching_layers


def operator_inputs(data: bytes, kind: str) -> list[tuple[str, ...]]:
    """Returns the names of the values that each node with the operator `kind` takes.

    Raises ValueError if `data` is no ONNX file or damaged.
    """
    return [
        tuple(map(_text, _parts(node, _INPUT)))
        for graph in _parts(memoryview(data), _GRAPH)
        for node in _parts(graph, _NODE)
        if [kind] == list(map(_text, _parts(node, _OP_TYPE)))
    ]


def with_output(data: bytes, name: str) -> bytes:
    """Returns the network's file with the inner value `name` as an additional, last output.

    Protocol buffers that follow each other are read as one message, in which a repeated field has
    the entries of both. So it suffices to append a graph that has nothing but the output.
    """
    value = field(_VALUE_NAME, name.encode())
    return data + field(_GRAPH, field(_OUTPUT, value))


def field(number: int, content: bytes) -> bytes:
    """Encodes a field of a message. `content`: a text, bytes or an encoded message."""
    head = bytearray([number << 3 | 2])
    length = len(content)
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + content


def _weights(graph: memoryview) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Yields (name, weights). Other types than float32 are left out: they hold settings of an
    operator."""
    for tensor in _parts(graph, _INITIALIZER):
        if _numbers(tensor, _DATA_TYPE) != [_FLOAT]:
            continue
        name = "".join(map(_text, _parts(tensor, _NAME)))
        raw, shape = b"".join(_parts(tensor, _RAW_DATA)), _numbers(tensor, _DIMS)
        if not raw or len(raw) != 4 * prod(shape):
            raise ValueError(f"{len(raw)} bytes of weights for {name!r}, of shape {shape}")
        yield name, np.frombuffer(raw, "<f4").reshape(shape)


def _parts(message: memoryview, number: int) -> Iterator[memoryview]:
    """Yields the texts, bytes or inner messages in the fields with this number."""
    for field, value in _fields(message):
        if field == number and isinstance(value, memoryview):
            yield value


def _numbers(message: memoryview, number: int) -> list[int]:
    return [value for field, value in _fields(message) if field == number and type(value) is int]


def _text(value: memoryview) -> str:
    return bytes(value).decode()


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields (field number, value) of a message. Skips fields of fixed width, which are not needed
    here."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                value, at = _varint(message, at)
                yield key >> 3, value
            case 2:
                length, at = _varint(message, at)
                yield key >> 3, _slice(message, at, length)
                at += length
            case 1:
                at += len(_slice(message, at, 8))
            case 5:
                at += len(_slice(message, at, 4))
            case other:
                raise ValueError(f"a field of wire type {other}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Returns the variable-length number at `at`, and the position behind it."""
    value = 0
    for shift in range(0, _MAX_VARINT_BITS, 7):
        (byte,) = _slice(message, at, 1)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number of more than {_MAX_VARINT_BITS} bits")


def _slice(message: memoryview, at: int, length: int) -> memoryview:
    if at + length > len(message):
        raise ValueError("the file ends early")
    return message[at : at + length]
