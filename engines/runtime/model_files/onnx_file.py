"""Reads the layers of an ONNX file with their weights, in the order in which they run, makes inner
values of a network its outputs, and reads the notes that a file has about itself.

An ONNX file is one protocol buffer; the field numbers below are from `onnx.proto`. We need few of
them, and the onnx package takes 35 MB with its dependencies.
"""

from collections.abc import Collection, Iterator, Mapping
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_GRAPH, _METADATA = 7, 14  # of ModelProto
_KEY, _VALUE = 1, 2  # of StringStringEntryProto
_NODE, _INITIALIZER, _INPUT_VALUE, _OUTPUT = 1, 5, 11, 12  # of GraphProto
_INPUT, _OP_TYPE = 1, 4  # of NodeProto
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA = 1, 2, 8, 9  # of TensorProto
_VALUE_NAME, _VALUE_TYPE = 1, 2  # of ValueInfoProto
_TENSOR_TYPE = 1  # of TypeProto
_SHAPE = 2  # of TypeProto.Tensor
_DIMENSION, _SIZE = 1, 1  # of TensorShapeProto, and of its Dimension
_FLOAT = 1
_MAX_VARINT_BITS = 64


class OnnxLayer(NamedTuple):
    """A node of the graph with its weights."""

    kind: str
    "Operator of the node: `Conv`, `LSTM`."
    weights: tuple[npt.NDArray[np.float32], ...]
    "Inputs of the node that are weights, in the operator's order."


class OnnxNotes(NamedTuple):
    """Facts about the network of an ONNX file, read without its weights."""

    metadata: Mapping[str, str]
    "Notes that whoever exported the network has added, by key."
    inputs: tuple[str, ...]
    "Names of the inputs."
    outputs: tuple[str, ...]
    "Names of the outputs."
    last_size: int | None
    "Last dimension of the first output, such as the number of tokens; None: the file has it open."


def read_notes(path: Path) -> OnnxNotes:
    """Returns the notes of an ONNX file. It reads only some pages of a file of gigabytes.

    Raises OSError if the file cannot be read, ValueError if it is no ONNX file or damaged.
    """
    with path.open("rb") as file:
        return _notes(memoryview(mmap(file.fileno(), 0, access=ACCESS_READ)))


def _notes(data: memoryview) -> OnnxNotes:
    metadata: dict[str, str] = {}
    inputs: list[str] = []
    outputs: list[memoryview] = []
    for number, value in wire_fields(data):
        if number == _METADATA and isinstance(value, memoryview):
            key, text = (b"".join(_parts(value, part)).decode() for part in (_KEY, _VALUE))
            metadata[key] = text
        elif number == _GRAPH and isinstance(value, memoryview):
            for part, entry in wire_fields(value):
                if part == _INPUT_VALUE and isinstance(entry, memoryview):
                    inputs += map(_text, _parts(entry, _VALUE_NAME))
                elif part == _OUTPUT and isinstance(entry, memoryview):
                    outputs.append(entry)
    if not outputs:
        raise ValueError("no network with outputs")
    names = tuple(_text(name) for output in outputs for name in _parts(output, _VALUE_NAME))
    return OnnxNotes(metadata, tuple(inputs), names, _last_size(outputs[0]))


def _last_size(value: memoryview) -> int | None:
    """Returns the last dimension of an input or output; None if it has no fixed one."""
    sizes = [
        _numbers(dimension, _SIZE)
        for kind in _parts(value, _VALUE_TYPE)
        for tensor in _parts(kind, _TENSOR_TYPE)
        for shape in _parts(tensor, _SHAPE)
        for dimension in _parts(shape, _DIMENSION)
    ]
    return sizes[-1][0] if sizes and sizes[-1] else None


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
    for field, value in wire_fields(message):
        if field == number and isinstance(value, memoryview):
            yield value


def _numbers(message: memoryview, number: int) -> list[int]:
    return [
        value for field, value in wire_fields(message) if field == number and type(value) is int
    ]


def _text(value: memoryview) -> str:
    return bytes(value).decode()


def wire_fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields (field number, value) of a protocol buffer: a number, or the bytes of a text, an inner
    message or a float. Skips fields of 8 bytes.

    Raises ValueError if the message is damaged.
    """
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
                yield key >> 3, _slice(message, at, 4)
                at += 4
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
