"""Writes ONNX networks whose weights stay in a checkpoint's safetensors file.

A network refers to its weights by their offset in the checkpoint, which ONNX allows (external
data). So nothing is converted or copied, and neither torch nor the onnx package is needed. The
field numbers are from `onnx.proto`.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from core.errors import EngineError
from engines.runtime.model_files.onnx_file import field

CHECKPOINT_FILE = "model.safetensors"

IR_VERSION = 9
"Version of ONNX's file format: the first that allows opset 20."
OPSET = 20
"Version of ONNX's operators: the first with Gelu."
MICROSOFT = "com.microsoft"
"Set of operators that onnxruntime adds, with attention as one operator."

MAX_HEADER_BYTES = 16 * 1024 * 1024
"Largest header of a safetensors file. Those of large models have 200 kB."

DATA_TYPES = {"F32": 1, "F16": 10, "BF16": 16}
"Number types of weights -> their code in ONNX."
SIZES_BYTES = {"F32": 4, "F16": 2, "BF16": 2}

FLOAT, INT32, INT64 = 1, 6, 7
"Codes of number types in ONNX."


class _Tensor(Struct):
    """Entry of the header of a safetensors file."""

    dtype: str
    shape: list[Annotated[int, Meta(ge=0)]]
    data_offsets: tuple[int, int]
    "First byte and the byte after the last, counted from the end of the header."


class Checkpoint:
    """Header of a safetensors file: the position of each tensor in it."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Reads `model.safetensors` in the folder of a model. `kind`: kind of the engine for error
        messages, such as `clip`. Raises EngineError if the file is damaged."""
        self._file, self._kind = folder / CHECKPOINT_FILE, kind
        self.tensors, self.data_start = self._read_header()

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def _read_header(self) -> tuple[Mapping[str, _Tensor], int]:
        """Returns the tensors by name, and the position of the first one's data. Raises
        EngineError if the file is damaged."""
        file = self._file
        size_bytes = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or not 0 < length <= min(MAX_HEADER_BYTES, size_bytes - 8):
                raise self.error("is not a safetensors file")
            header = stream.read(length)
        try:
            raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
            raw.pop("__metadata__", None)
            tensors = {
                name: msgspec.json.decode(value, type=_Tensor)
                for name, value in raw.items()
                if not name.endswith("position_ids")  # a constant, not a weight
            }
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.error(f"has a damaged header: {error}") from error
        data_bytes = size_bytes - 8 - length
        for name, tensor in tensors.items():
            self._check_tensor(name, tensor, data_bytes)
        return tensors, 8 + length

    def _check_tensor(self, name: str, tensor: _Tensor, data_bytes: int) -> None:
        if tensor.dtype not in DATA_TYPES:
            allowed = ", ".join(DATA_TYPES)
            raise self.error(f"{name!r} has the type {tensor.dtype}; allowed: {allowed}")
        begin, end = tensor.data_offsets
        need_bytes = SIZES_BYTES[tensor.dtype]
        for size in tensor.shape:
            need_bytes *= size
        if not 0 <= begin <= end <= data_bytes or end - begin != need_bytes:
            raise self.error(
                f"{name!r} has a wrong size: shape {tensor.shape}, bytes {begin} to {end} of"
                f" {data_bytes}"
            )

    def error(self, why: str) -> EngineError:
        """Returns the error for this file."""
        return EngineError(self._kind, self._file.parent.name, f"{CHECKPOINT_FILE} {why}")


class GraphWriter:
    """A network while it is built. Methods that add an operator return the name of its output."""

    def __init__(self, checkpoint: Checkpoint, prefix: str = "") -> None:
        """Creates a network without operators. `prefix`: text before the names of its weights."""
        self._checkpoint, self._prefix = checkpoint, prefix
        self._nodes: list[bytes] = []
        self._initializers: dict[str, bytes] = {}

    def encode(
        self,
        name: str,
        inputs: Sequence[tuple[str, int, Sequence[int | str]]],
        output: tuple[str, Sequence[int | str]],
    ) -> bytes:
        """Returns the network as an ONNX file. Its loader must be given the model's folder as the
        location of the weights. `inputs`: name, type and shape of each; a text in a shape names a
        variable size. `output`: name and shape of the output, which is FLOAT."""
        graph = b"".join(
            (
                *(field(1, node) for node in self._nodes),
                field(2, name.encode()),
                *(field(5, tensor) for tensor in self._initializers.values()),
                *(field(11, _value(*entry)) for entry in inputs),
                field(12, _value(output[0], FLOAT, output[1])),
            )
        )
        opsets = [_int_field(2, OPSET), field(1, MICROSOFT.encode()) + _int_field(2, 1)]
        return b"".join(
            (_int_field(1, IR_VERSION), field(7, graph), *(field(8, opset) for opset in opsets))
        )

    def linear(
        self, name: str, value: str, shape: Sequence[int | None], prefix: str | None = None
    ) -> str:
        """Adds a linear layer with a bias. `value`: name of its input. `shape`, `prefix`: see
        `weight`; outputs come first."""
        weight = self.transposed(f"{name}.weight", shape, prefix)
        product = self.node("MatMul", [value, weight])
        return self.node("Add", [product, self.weight(f"{name}.bias", (shape[0],), prefix)])

    def norm(self, name: str, value: str, size: int, epsilon: float) -> str:
        """Adds a layer normalisation of vectors of `size` numbers."""
        scale, bias = (self.weight(f"{name}.{part}", (size,)) for part in ("weight", "bias"))
        return self.node("LayerNormalization", [value, scale, bias], axis=-1, epsilon=epsilon)

    def self_attention(
        self,
        parts: Sequence[str],
        value: str,
        size: int,
        heads: int,
        *,
        mask: str = "",
        is_causal: bool = False,
    ) -> str:
        """Adds self-attention without the output projection. `parts`: names of the layers for
        queries, keys and values. `mask`: name of a value with 1 for each token and 0 for padding.
        `is_causal`: a token sees only those before it."""
        weights = [self.transposed(f"{part}.weight", (size, size)) for part in parts]
        biases = [self.weight(f"{part}.bias", (size,)) for part in parts]
        inputs = [
            value,
            self.node("Concat", weights, axis=1),
            self.node("Concat", biases, axis=0),
            *((mask,) if mask else ()),
        ]
        return self.node(
            "Attention", inputs, domain=MICROSOFT, num_heads=heads, unidirectional=int(is_causal)
        )

    def transposed(self, name: str, shape: Sequence[int | None], prefix: str | None = None) -> str:
        """Refers to a matrix of the checkpoint in transposed form."""
        # onnxruntime computes this once, when it loads the network.
        return self.node("Transpose", [self.weight(name, shape, prefix)], perm=[1, 0])

    def weight(self, name: str, shape: Sequence[int | None], prefix: str | None = None) -> str:
        """Refers to a tensor of the checkpoint. `shape`: the expected one; None in it: any size.
        `prefix`: text before the name; None: the network's. Raises EngineError if the tensor is
        missing or has another shape."""
        full_name = f"{self._prefix if prefix is None else prefix}{name}"
        tensor = self._checkpoint.tensors.get(full_name)
        if tensor is None:
            raise self._checkpoint.error(f"has no weights {full_name!r}")
        sizes = zip(tensor.shape, shape, strict=False)
        if len(tensor.shape) != len(shape) or any(want not in {None, got} for got, want in sizes):
            expected = ["any" if want is None else want for want in shape]
            raise self._checkpoint.error(
                f"{full_name!r} has the shape {tensor.shape}, but config.json says {expected}"
            )
        if full_name not in self._initializers:
            self._initializers[full_name] = self._reference(full_name, tensor)
        if tensor.dtype == "F32":
            return full_name
        return self.node("Cast", [full_name], to=FLOAT)

    def _reference(self, name: str, tensor: _Tensor) -> bytes:
        """Returns a TensorProto whose data are in the checkpoint."""
        begin, end = tensor.data_offsets
        location = {
            "location": CHECKPOINT_FILE,
            "offset": str(self._checkpoint.data_start + begin),
            "length": str(end - begin),
        }
        return b"".join(
            (
                *(_int_field(1, size) for size in tensor.shape),
                _int_field(2, DATA_TYPES[tensor.dtype]),
                field(8, name.encode()),
                *(
                    field(13, field(1, key.encode()) + field(2, value.encode()))
                    for key, value in location.items()
                ),
                _int_field(14, 1),  # EXTERNAL
            )
        )

    def int64(self, name: str, values: Sequence[int] | None, scalar: int = 0) -> str:
        """Adds a constant: the list `values`, or the number `scalar` if that is None."""
        numbers = [scalar] if values is None else list(values)
        dims = b"" if values is None else _int_field(1, len(numbers))
        raw = struct.pack(f"<{len(numbers)}q", *numbers)
        self._initializers[name] = (
            dims + _int_field(2, INT64) + field(8, name.encode()) + field(9, raw)
        )
        return name

    def scalar(self, name: str, value: float) -> str:
        """Adds a float constant."""
        raw = struct.pack("<f", value)
        self._initializers[name] = _int_field(2, FLOAT) + field(8, name.encode()) + field(9, raw)
        return name

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        *,
        output: str = "",
        domain: str = "",
        **attributes: float | str | Sequence[int],
    ) -> str:
        """Adds an operator. `kind`: its name in ONNX. `output`: name of its output; empty: a new
        one. `domain`: set of operators; empty: ONNX's own."""
        output = output or f"{kind}_{len(self._nodes)}"
        self._nodes.append(
            b"".join(
                (
                    *(field(1, name.encode()) for name in inputs),
                    field(2, output.encode()),
                    field(3, output.encode()),
                    field(4, kind.encode()),
                    *(field(5, _attribute(name, value)) for name, value in attributes.items()),
                    *((field(7, domain.encode()),) if domain else ()),
                )
            )
        )
        return output


def _int_field(number: int, value: int) -> bytes:
    """Encodes a field that holds a whole number."""
    return _varint(number << 3) + _varint(value & 2**64 - 1)  # a negative number has ten bytes


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _attribute(name: str, value: float | str | Sequence[int]) -> bytes:
    """Returns an AttributeProto: a float, an int, a text, or a list of ints."""
    head = field(1, name.encode())
    if isinstance(value, int):
        return head + _int_field(3, value) + _int_field(20, 2)
    if isinstance(value, float):
        return head + bytes([2 << 3 | 5]) + struct.pack("<f", value) + _int_field(20, 1)
    if isinstance(value, str):
        return head + field(4, value.encode()) + _int_field(20, 3)
    return head + b"".join(_int_field(8, number) for number in value) + _int_field(20, 7)


def _value(name: str, data_type: int, shape: Sequence[int | str]) -> bytes:
    """Returns a ValueInfoProto: name, type and shape of an input or output."""
    dims = b"".join(
        field(1, field(2, size.encode()) if isinstance(size, str) else _int_field(1, size))
        for size in shape
    )
    return field(1, name.encode()) + field(2, field(1, _int_field(1, data_type) + field(2, dims)))
