"""Reads the header of a GGUF file, the format of llama.cpp, and checks that its tensors lie within
the file. No weights are read.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from core.errors import EarshotError

MAGIC = b"GGUF"

KNOWN_VERSIONS = (2, 3)
"Versions of the format; both are read alike. Version 1 is from before August 2023."

MAX_ENTRIES, MAX_TENSORS, MAX_RANK = 10_000, 100_000, 4
"Largest numbers that are plausible: large models have some 60 entries and 3 000 tensors."
MAX_TEXT_BYTES = 16 * 1024 * 1024
"Longest text; chat templates have up to 100 kB."
MAX_ITEMS = 4_000_000
"Most items of an array; the largest vocabularies have 300 000 tokens."

DEFAULT_ALIGNMENT = 32
"Bytes to which the data of each tensor is aligned, if the file does not say."

PROJECTOR = "clip"
"Architecture of a vision projector, the part of a model that turns images into tokens."

_STRING, _ARRAY = 8, 9
_NUMBERS: Mapping[int, struct.Struct] = {
    code: struct.Struct(f"<{letter}")
    for code, letter in ((0, "B"), (1, "b"), (2, "H"), (3, "h"), (4, "I"), (5, "i"), (6, "f"),
                         (7, "?"), (10, "Q"), (11, "q"), (12, "d"))
}  # fmt: skip
"Value types of a fixed size, by their code."

_UINT32, _UINT64 = _NUMBERS[4], _NUMBERS[10]

_TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
}  # fmt: skip
"""Types of tensors by their code: name, number of values in a block, bytes of a block. The size of
a newer type is not known, so only the start of such a tensor is checked."""


class UnreadableGgufError(EarshotError):
    """The file is not a complete GGUF file, or contradicts itself."""

    code = "gguf_unreadable"


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Properties of a GGUF file."""

    architecture: str
    "Family of the model, such as llama or qwen3; clip for a vision projector."
    name: str
    "Name of the model as its author wrote it; may be empty."
    context_tokens: int | None
    "Longest prompt and answer together that the model was trained for; None: not in the file."
    weight_type: str
    "Number type that takes most of the bytes, such as Q4_1."
    has_chat_template: bool

    @property
    def is_projector(self) -> bool:
        """True for a vision projector, which writes no text."""
        return self.architecture == PROJECTOR


def read_gguf_header(path: Path) -> GgufHeader:
    """Reads all entries and the position of every tensor. Raises UnreadableGgufError for a file of
    another format, and for a truncated or contradictory one."""
    try:
        with (
            path.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _read(_Cursor(data))
    except OSError as error:
        raise UnreadableGgufError(f"{path}: {error.strerror}") from error
    except (ValueError, struct.error) as error:  # also for an empty file, which cannot be mapped
        reason = str(error) if type(error) is _InvalidFile else "it ends within its header"
        raise UnreadableGgufError(f"{path} is not a usable GGUF file: {reason}") from error


class _InvalidFile(ValueError):
    """The file breaks the rules of its format; the message says how."""


class _Cursor:
    """Reads the values of the file one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def number(self, kind: struct.Struct) -> Any:
        (value,) = kind.unpack_from(self.data, self.at)
        self.at += kind.size
        return value

    def text(self) -> str:
        length = self.number(_UINT64)
        self._check_room(length)
        start, self.at = self.at, self.at + length
        try:
            return self.data[start : self.at].decode()
        except UnicodeDecodeError:
            raise _InvalidFile("a text of its header is not UTF-8") from None

    def value(self) -> Any:
        """Returns an entry's value; None for an array, which is skipped."""
        kind = self.number(_UINT32)
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            self._skip_array()
            return None
        return self.number(_number_type(kind))

    def _skip_array(self) -> None:
        kind, count = self.number(_UINT32), self.number(_UINT64)
        if count > MAX_ITEMS:
            raise _InvalidFile(f"an array of {count} items; at most {MAX_ITEMS} are plausible")
        if kind != _STRING:
            self.at += count * _number_type(kind).size
            return
        for _ in range(count):
            length = self.number(_UINT64)
            self._check_room(length)
            self.at += length

    def _check_room(self, length: int) -> None:
        if length > MAX_TEXT_BYTES or self.at + length > len(self.data):
            raise _InvalidFile(f"a text of {length} bytes, which is more than the file can hold")


def _number_type(code: int) -> struct.Struct:
    kind = _NUMBERS.get(code)
    if kind is None:
        raise _InvalidFile(f"a value of the unknown type {code}")
    return kind


def _read(cursor: _Cursor) -> GgufHeader:
    if cursor.data[: len(MAGIC)] != MAGIC:
        raise _InvalidFile("it does not begin with GGUF")
    cursor.at = len(MAGIC)
    version = cursor.number(_UINT32)
    if version not in KNOWN_VERSIONS:
        known = " and ".join(map(str, KNOWN_VERSIONS))
        raise _InvalidFile(f"version {version} of the format; versions {known} are known")
    tensors, entries = cursor.number(_UINT64), cursor.number(_UINT64)
    if tensors > MAX_TENSORS or entries > MAX_ENTRIES:
        raise _InvalidFile(f"{tensors} tensors and {entries} entries, which is not plausible")
    values = {cursor.text(): cursor.value() for _ in range(entries)}
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str):
        raise _InvalidFile("it does not say its architecture")
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise _InvalidFile(f"an alignment of {alignment!r}")
    weight_type = _check_tensors(cursor, tensors, alignment)
    context_tokens = values.get(f"{architecture}.context_length")
    return GgufHeader(
        architecture,
        str(values.get("general.name") or ""),
        context_tokens if isinstance(context_tokens, int) and context_tokens > 0 else None,
        weight_type,
        bool(values.get("tokenizer.chat_template")),
    )


def _check_tensors(cursor: _Cursor, count: int, alignment: int) -> str:
    """Checks that every tensor lies within the file. Returns the number type that takes most of the
    bytes."""
    bytes_by_type: Counter[str] = Counter()
    ends: list[tuple[int, str]] = []
    for _ in range(count):
        name, rank = cursor.text(), cursor.number(_UINT32)
        if not 1 <= rank <= MAX_RANK:
            raise _InvalidFile(f"the tensor {name[:64]!r} has {rank} dimensions")
        shape = [cursor.number(_UINT64) for _ in range(rank)]
        code, offset = cursor.number(_UINT32), cursor.number(_UINT64)
        kind, block_values, block_bytes = _TENSOR_TYPES.get(code, (f"type {code}", 1, 0))
        if 0 in shape or shape[0] % block_values or offset % alignment:
            where = f"of shape {shape} and type {kind} at {offset}"
            raise _InvalidFile(f"the tensor {name[:64]!r} {where}, which is not possible")
        size_bytes = prod(shape) // block_values * block_bytes
        bytes_by_type[kind] += size_bytes
        ends.append((offset + size_bytes, name))
    if not ends:
        raise _InvalidFile("it has no tensors")
    # The data begins at the next aligned position after the header.
    start = -(-cursor.at // alignment) * alignment
    end, name = max(ends)
    if start + end > len(cursor.data):
        missing = start + end - len(cursor.data)
        raise _InvalidFile(f"it is truncated: {missing} bytes of the tensor {name[:64]!r} missing")
    return bytes_by_type.most_common(1)[0][0]
