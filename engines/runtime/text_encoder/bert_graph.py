"""Builds the ONNX network of a checkpoint of the BERT family.

The file that this module returns has only the graph, some 20 kB. The weights stay in the
checkpoint's safetensors file: the network refers to them by their offset in it. So nothing is
converted or copied, and neither torch nor the onnx package is needed. The field numbers are from
`onnx.proto`.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from core.errors import EngineError
from engines.runtime.onnx_file import field
from engines.runtime.text_encoder.folder import (
    CHECKPOINT_FILE,
    TextModelFolder,
    position_offset,
)

IR_VERSION = 9
"Version of ONNX's file format: the first with opset 20."
OPSET = 20
"Version of the operators: the first with Gelu."
MICROSOFT = "com.microsoft"
"Set of operators that onnxruntime adds, with attention as one operator."

MAX_HEADER_BYTES = 16 * 1024 * 1024
"Largest header of a safetensors file. Those of large models have 200 kB."

DATA_TYPES = {"F32": 1, "F16": 10, "BF16": 16}
"Number types of weights, with their number in ONNX."
SIZES_BYTES = {"F32": 4, "F16": 2, "BF16": 2}

_FLOAT, _INT32, _INT64 = 1, 6, 7

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class _Tensor(Struct):
    """Entry of the header of a safetensors file."""

    dtype: str
    shape: list[Annotated[int, Meta(ge=0)]]
    data_offsets: tuple[int, int]


def build_graph(model: TextModelFolder) -> bytes:
    """Returns the network as an ONNX file, which has to be loaded with the model's folder as the
    place of its weights. Its output is `last_hidden_state` for embeddings, `logits` for reranking.
    Raises EngineError if the checkpoint lacks weights or has others than its config.json says."""
    return _Builder(model).build()


class _Builder:
    """The graph while it is built. Methods that add an operator return the name of its output."""

    def __init__(self, model: TextModelFolder) -> None:
        self._model, self._config = model, model.config
        self._tensors, self._data_start = self._read_header()
        self._prefix = next(
            (
                prefix
                for prefix in ("", "bert.", "roberta.")
                if f"{prefix}embeddings.word_embeddings.weight" in self._tensors
            ),
            "",
        )
        self._nodes: list[bytes] = []
        self._initializers: dict[str, bytes] = {}

    def build(self) -> bytes:
        hidden = self._embeddings()
        mask = self._node("Cast", ["attention_mask"], to=_INT32)
        for index in range(self._config.num_hidden_layers):
            hidden = self._layer(f"encoder.layer.{index}", hidden, mask)
        shape: tuple[int | str, ...]
        if self._model.kind == "embed":
            output, shape = "last_hidden_state", ("batch", "tokens", self._config.hidden_size)
            self._node("Identity", [hidden], output=output)
        else:
            output, shape = "logits", ("batch", 1)
            self._node("Identity", [self._logits(hidden)], output=output)
        graph = b"".join(
            (
                *(field(1, node) for node in self._nodes),
                field(2, b"text_encoder"),
                *(field(5, tensor) for tensor in self._initializers.values()),
                *(field(11, _value(name, _INT64, ("batch", "tokens"))) for name in INPUTS),
                field(12, _value(output, _FLOAT, shape)),
            )
        )
        opsets = [_number(2, OPSET), field(1, MICROSOFT.encode()) + _number(2, 1)]
        return b"".join(
            (_number(1, IR_VERSION), field(7, graph), *(field(8, opset) for opset in opsets))
        )

    def _embeddings(self) -> str:
        config, size = self._config, self._config.hidden_size
        words = self._weight("embeddings.word_embeddings.weight", (config.vocab_size, size))
        positions = self._weight(
            "embeddings.position_embeddings.weight", (config.max_position_embeddings, size)
        )
        types = self._weight("embeddings.token_type_embeddings.weight", (None, size))
        offset = position_offset(config)
        shape = self._node("Shape", ["input_ids"])
        length = self._node("Gather", [shape, self._int64("one", [1])], axis=0)
        end = self._node("Add", [length, self._int64("offset", [offset])])
        ends = [self._int64("offset", [offset]), end, self._int64("zero", [0])]
        at = self._node("Slice", [positions, *ends])
        total = self._node("Gather", [words, "input_ids"], axis=0)
        total = self._node("Add", [total, self._node("Gather", [types, "token_type_ids"], axis=0)])
        return self._norm("embeddings.LayerNorm", self._node("Add", [total, at]))

    def _layer(self, name: str, hidden: str, mask: str) -> str:
        config, size = self._config, self._config.hidden_size
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        weights = [self._transposed(f"{part}.weight", (size, size)) for part in parts]
        biases = [self._weight(f"{part}.bias", (size,)) for part in parts]
        attended = self._node(
            "Attention",
            [
                hidden,
                self._node("Concat", weights, axis=1),
                self._node("Concat", biases, axis=0),
                mask,
            ],
            domain=MICROSOFT,
            num_heads=config.num_attention_heads,
        )
        attended = self._linear(f"{name}.attention.output.dense", attended, (size, size))
        hidden = self._norm(
            f"{name}.attention.output.LayerNorm", self._node("Add", [attended, hidden])
        )
        inner = self._linear(f"{name}.intermediate.dense", hidden, (None, size))
        outer = self._linear(f"{name}.output.dense", self._node("Gelu", [inner]), (size, None))
        return self._norm(f"{name}.output.LayerNorm", self._node("Add", [outer, hidden]))

    def _logits(self, hidden: str) -> str:
        """Adds the head of a cross-encoder, which sees the first token only."""
        size = self._config.hidden_size
        first = self._node("Gather", [hidden, self._int64("first", None, 0)], axis=1)
        if self._config.model_type == "bert":
            pooled = self._node("Tanh", [self._linear("pooler.dense", first, (size, size))])
            return self._linear("classifier", pooled, (1, size), prefix="")
        pooled = self._linear("classifier.dense", first, (size, size), prefix="")
        pooled = self._node("Tanh", [pooled])
        return self._linear("classifier.out_proj", pooled, (1, size), prefix="")

    def _linear(
        self, name: str, value: str, shape: Sequence[int | None], prefix: str | None = None
    ) -> str:
        weight = self._transposed(f"{name}.weight", shape, prefix)
        product = self._node("MatMul", [value, weight])
        return self._node("Add", [product, self._weight(f"{name}.bias", (shape[0],), prefix)])

    def _norm(self, name: str, value: str) -> str:
        size = (self._config.hidden_size,)
        scale, bias = self._weight(f"{name}.weight", size), self._weight(f"{name}.bias", size)
        epsilon = self._config.layer_norm_eps
        return self._node("LayerNormalization", [value, scale, bias], axis=-1, epsilon=epsilon)

    def _transposed(self, name: str, shape: Sequence[int | None], prefix: str | None = None) -> str:
        # onnxruntime computes this once, when it loads the network.
        return self._node("Transpose", [self._weight(name, shape, prefix)], perm=[1, 0])

    def _weight(self, name: str, shape: Sequence[int | None], prefix: str | None = None) -> str:
        """Refers to a tensor of the checkpoint. `shape`: the expected one; None: any size. Raises
        EngineError."""
        full_name = f"{self._prefix if prefix is None else prefix}{name}"
        tensor = self._tensors.get(full_name)
        if tensor is None:
            raise self._error(f"has no weights {full_name!r}")
        sizes = zip(tensor.shape, shape, strict=False)
        if len(tensor.shape) != len(shape) or any(want not in {None, got} for got, want in sizes):
            expected = ["any" if want is None else want for want in shape]
            raise self._error(
                f"{full_name!r} has the shape {tensor.shape}, but config.json says {expected}"
            )
        if full_name not in self._initializers:
            self._initializers[full_name] = self._reference(full_name, tensor)
        if tensor.dtype == "F32":
            return full_name
        return self._node("Cast", [full_name], to=_FLOAT)

    def _reference(self, name: str, tensor: _Tensor) -> bytes:
        """Returns a TensorProto whose data are in the checkpoint."""
        begin, end = tensor.data_offsets
        place = {
            "location": CHECKPOINT_FILE,
            "offset": str(self._data_start + begin),
            "length": str(end - begin),
        }
        return b"".join(
            (
                *(_number(1, size) for size in tensor.shape),
                _number(2, DATA_TYPES[tensor.dtype]),
                field(8, name.encode()),
                *(
                    field(13, field(1, key.encode()) + field(2, value.encode()))
                    for key, value in place.items()
                ),
                _number(14, 1),  # EXTERNAL
            )
        )

    def _int64(self, name: str, values: Sequence[int] | None, scalar: int = 0) -> str:
        """Adds a constant: a list, or a scalar if `values` is None."""
        numbers = [scalar] if values is None else list(values)
        dims = b"" if values is None else _number(1, len(numbers))
        raw = struct.pack(f"<{len(numbers)}q", *numbers)
        self._initializers[name] = (
            dims + _number(2, _INT64) + field(8, name.encode()) + field(9, raw)
        )
        return name

    def _node(
        self,
        kind: str,
        inputs: Sequence[str],
        *,
        output: str = "",
        domain: str = "",
        **attributes: float | Sequence[int],
    ) -> str:
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

    def _read_header(self) -> tuple[Mapping[str, _Tensor], int]:
        """Returns the tensors by name, and the position of the first one's data. Raises
        EngineError if the file is damaged."""
        file = self._model.path / CHECKPOINT_FILE
        size_bytes = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or not 0 < length <= min(MAX_HEADER_BYTES, size_bytes - 8):
                raise self._error("is no safetensors file")
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
            raise self._error(f"has a damaged header: {error}") from error
        data_bytes = size_bytes - 8 - length
        for name, tensor in tensors.items():
            self._check_tensor(name, tensor, data_bytes)
        return tensors, 8 + length

    def _check_tensor(self, name: str, tensor: _Tensor, data_bytes: int) -> None:
        if tensor.dtype not in DATA_TYPES:
            allowed = ", ".join(DATA_TYPES)
            raise self._error(f"{name!r} has the type {tensor.dtype}; allowed: {allowed}")
        begin, end = tensor.data_offsets
        need_bytes = SIZES_BYTES[tensor.dtype]
        for size in tensor.shape:
            need_bytes *= size
        if not 0 <= begin <= end <= data_bytes or end - begin != need_bytes:
            raise self._error(
                f"{name!r} lies about its size: shape {tensor.shape}, bytes {begin} to {end} of"
                f" {data_bytes}"
            )

    def _error(self, why: str) -> EngineError:
        return EngineError(self._model.kind, self._model.info.model, f"{CHECKPOINT_FILE} {why}")


def _number(number: int, value: int) -> bytes:
    """Returns a field that holds a whole number."""
    return _varint(number << 3) + _varint(value & 2**64 - 1)  # a negative number has ten bytes


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _attribute(name: str, value: float | Sequence[int]) -> bytes:
    """Returns an AttributeProto: a float, an int, or a list of ints."""
    head = field(1, name.encode())
    if isinstance(value, int):
        return head + _number(3, value) + _number(20, 2)
    if isinstance(value, float):
        return head + bytes([2 << 3 | 5]) + struct.pack("<f", value) + _number(20, 1)
    return head + b"".join(_number(8, number) for number in value) + _number(20, 7)


def _value(name: str, data_type: int, shape: Sequence[int | str]) -> bytes:
    """Returns a ValueInfoProto: name, type and shape of an input or output."""
    dims = b"".join(
        field(1, field(2, size.encode()) if isinstance(size, str) else _number(1, size))
        for size in shape
    )
    return field(1, name.encode()) + field(2, field(1, _number(1, data_type) + field(2, dims)))
