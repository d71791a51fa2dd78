"""Tensors, requests and responses of KServe's protocol, version 2, and the bytes of a tensor.

https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import RequestError

MAX_TENSORS = 16
"Largest number of inputs or outputs of a request. No model here has more than five."
MAX_DIMENSIONS = 8
"Largest number of dimensions of a tensor. Those of the models here have two."
MAX_ELEMENTS = 2**28
"Largest number of elements that a shape may name; a message of the largest size holds fewer."
MAX_NAME_CHARS = 64
"Number of characters of a client's name that an error repeats."

BYTES = "BYTES"
"Datatype of texts: each element has its length as four bytes, little-endian, before it."

NUMPY_TYPES: Mapping[str, str] = {
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"Datatype of the protocol -> type of numpy, without BYTES."

Parameter = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any] | tuple[bytes, ...]
    "Elements in row order: a flat array, or the texts of datatype BYTES."


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request to compute."""

    model: str
    version: str = ""
    id: str = ""
    "Id of the client; the response repeats it."
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    "Names of the outputs to return; empty: all."


@dataclass(frozen=True, slots=True)
class InferResponse:
    """Tensors that answer a request."""

    model: str
    version: str
    id: str
    outputs: tuple[Tensor, ...]


def invalid(param: str, reason: str) -> RequestError:
    """Returns the error for a wrong value."""
    name = param[:MAX_NAME_CHARS]
    return RequestError(f"Invalid {name!r}: {reason}.", code="invalid_value", param=name)


def check_shape(name: str, shape: Sequence[int]) -> int:
    """Returns the number of elements. Raises RequestError."""
    if len(shape) > MAX_DIMENSIONS:
        raise invalid(name, f"it has {len(shape)} dimensions; at most {MAX_DIMENSIONS} are allowed")
    if any(size < 0 for size in shape):
        raise invalid(name, "its shape has a negative number")
    count = prod(shape)
    if count > MAX_ELEMENTS:
        raise invalid(name, f"it has {count} elements; at most {MAX_ELEMENTS} are allowed")
    return count


def check_datatype(name: str, datatype: str) -> None:
    """Raises RequestError for an unknown datatype."""
    if datatype != BYTES and datatype not in NUMPY_TYPES:
        allowed = ", ".join((*NUMPY_TYPES, BYTES))
        raise invalid(name, f"the datatype {datatype[:16]!r} is not known; allowed: {allowed}")


def by_name(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Returns the inputs of a request by name. Raises RequestError."""
    if len(tensors) > MAX_TENSORS:
        raise invalid("inputs", f"there are {len(tensors)}; at most {MAX_TENSORS} are allowed")
    named = {tensor.name: tensor for tensor in tensors}
    if len(named) < len(tensors):
        raise invalid("inputs", "two have the same name")
    return named


def tensor_of_bytes(
    name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview
) -> Tensor:
    """Returns a tensor from its binary form. Raises RequestError."""
    check_datatype(name, datatype)
    count = check_shape(name, shape)
    if datatype == BYTES:
        texts = tuple(_texts(name, data, count))
        if len(texts) != count:
            raise _wrong_count(name, shape, count, len(texts))
        return Tensor(name, datatype, tuple(shape), texts)
    numpy_type = np.dtype(NUMPY_TYPES[datatype])
    if len(data) != count * numpy_type.itemsize:
        raise invalid(
            name,
            f"the shape {list(shape)} of {datatype} needs {count * numpy_type.itemsize} bytes, but"
            f" there are {len(data)}",
        )
    return Tensor(name, datatype, tuple(shape), np.frombuffer(data, numpy_type))


def tensor_of_values(name: str, datatype: str, shape: Sequence[int], values: Any) -> Tensor:
    """Returns a tensor from numbers or texts, which may be nested lists. Raises RequestError."""
    check_datatype(name, datatype)
    count = check_shape(name, shape)
    if datatype == BYTES:
        texts = tuple(_flat_texts(name, values))
        if len(texts) != count:
            raise _wrong_count(name, shape, count, len(texts))
        return Tensor(name, datatype, tuple(shape), texts)
    wanted = np.dtype(NUMPY_TYPES[datatype])
    wrong = invalid(name, f"its data are not {datatype} numbers of one shape")
    try:
        array = np.asarray(values).reshape(-1)
    except (ValueError, TypeError, OverflowError):
        raise wrong from None
    if array.size and array.dtype.kind not in _ALLOWED_KINDS[wanted.kind]:
        raise wrong
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(wanted)
    if wanted.kind in "iu" and not np.array_equal(converted, array):
        raise invalid(name, f"a number does not fit into {datatype}")
    if len(converted) != count:
        raise _wrong_count(name, shape, count, len(converted))
    return Tensor(name, datatype, tuple(shape), converted)


def bytes_of(tensor: Tensor) -> bytes:
    """Returns the binary form of a tensor."""
    if isinstance(tensor.values, tuple):
        return b"".join(struct.pack("<I", len(text)) + text for text in tensor.values)
    return tensor.values.tobytes()


_ALLOWED_KINDS: Mapping[str, str] = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}
"Kind of numpy's type -> kinds of JSON's numbers that it takes."


def _texts(name: str, data: bytes | memoryview, count: int) -> Iterator[bytes]:
    """Yields the texts of the binary form, at most one more than `count`. Raises RequestError."""
    position = 0
    for _ in range(count + 1):
        if position == len(data):
            return
        if position + 4 > len(data):
            raise invalid(name, "the length of a text is cut off")
        (length,) = struct.unpack_from("<I", data, position)
        position += 4
        if position + length > len(data):
            raise invalid(name, "a text is cut off")
        yield bytes(data[position : position + length])
        position += length


def _flat_texts(name: str, values: Any) -> Iterator[bytes]:
    if isinstance(values, str):
        yield values.encode(errors="replace")
    elif isinstance(values, bytes):
        yield values
    elif isinstance(values, list):
        for value in values:
            yield from _flat_texts(name, value)
    else:
        raise invalid(name, "its data are not texts")


def _wrong_count(name: str, shape: Sequence[int], count: int, got: int) -> RequestError:
    return invalid(name, f"the shape {list(shape)} needs {count} elements, but there are {got}")
