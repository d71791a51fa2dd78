"""Reads the properties of a CTranslate2 `model.bin` from its headers, without loading the
weights."""

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from core.errors import EarshotError

TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
"Number types, in the order of their codes in the file."

KNOWN_VERSIONS = range(4, 7)
"Versions of the file's layout, as CTranslate2 2 to 4 write them."

EMBEDDINGS = "decoder/embeddings/weight"
"Variable of a Whisper that has one row for each token of its vocabulary."

MAX_NAME_BYTES, MAX_RANK, MAX_VARIABLES = 1024, 8, 100_000
"Bounds of a plausible file. A file beyond them is not a model."


class UnreadableWeightsError(EarshotError):
    """The file is not a complete CTranslate2 model."""

    code = "model_unreadable"


@dataclass(frozen=True, slots=True)
class Ct2WeightsHeader:
    """Properties of a CTranslate2 file."""

    spec: str
    "Kind of the model, such as WhisperSpec."
    weight_type: str
    """Number type of most of its bytes. The type for computing is chosen when the weights are
    loaded."""
    vocabulary: int = 0
    "Number of tokens that a Whisper's decoder knows; 0 for another kind of model."


def read_weights_file(path: Path) -> Ct2WeightsHeader:
    """Reads the header of every variable. Raises UnreadableWeightsError for a foreign or incomplete
    file."""
    try:
        with path.open("rb") as opened:
            return _read_headers(opened, path.stat().st_size)
    except OSError as error:
        raise UnreadableWeightsError(f"{path}: {error.strerror}") from error
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise UnreadableWeightsError(f"{path} is not a CTranslate2 model, or incomplete") from error


def _read_headers(opened: BinaryIO, size_bytes: int) -> Ct2WeightsHeader:
    """Reads the headers, and skips the weights between them."""
    name = opened.name
    version = _number(opened, "I")
    if version not in KNOWN_VERSIONS:
        raise UnreadableWeightsError(f"{name} is not a CTranslate2 model")
    spec = _text(opened)
    _number(opened, "I")  # the spec's revision
    bytes_by_type: Counter[str] = Counter()
    vocabulary = 0
    variables = _number(opened, "I")
    if variables > MAX_VARIABLES:
        raise UnreadableWeightsError(f"{name} is not a CTranslate2 model: {variables} variables")
    for _ in range(variables):
        variable = _text(opened)
        rank = _number(opened, "B")
        if rank > MAX_RANK:
            raise UnreadableWeightsError(
                f"{name} is not a CTranslate2 model: a variable of {rank} dimensions"
            )
        shape = [_number(opened, "I") for _ in range(rank)]
        if variable == EMBEDDINGS and shape:
            vocabulary = shape[0]
        number_type = TYPES[_number(opened, "B")]
        length = _number(opened, "I")
        bytes_by_type[number_type] += length
        if opened.seek(length, 1) > size_bytes:
            raise UnreadableWeightsError(f"{name} is incomplete: it ends within a variable")
    weight_type = max(bytes_by_type, key=bytes_by_type.__getitem__, default="none")
    return Ct2WeightsHeader(spec, weight_type, vocabulary)


def _number(opened: BinaryIO, code: str) -> int:
    """Reads an unsigned number. `code`: its type, as the module struct names it."""
    value: int = struct.unpack(f"<{code}", opened.read(struct.calcsize(code)))[0]
    return value


def _text(opened: BinaryIO) -> str:
    length = _number(opened, "H")
    if length > MAX_NAME_BYTES:
        raise UnreadableWeightsError(f"{opened.name} is not a CTranslate2 model")
    return opened.read(length).rstrip(b"\0").decode()
