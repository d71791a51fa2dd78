"""ONNX files: layers are read in order and outputs added; a damaged file raises ValueError."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.runtime.model_files.onnx_file import layers, operator_inputs, with_output

BYTES, INT64, FLOAT = 2, 7, 1


def varint(value: int) -> bytes:
    head = b""
    while value >= 0x80:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


def part(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def tensor(name: str, values: npt.NDArray[np.generic], kind: int = FLOAT) -> bytes:
    dims = b"".join(number(1, size) for size in values.shape)
    return part(5, dims + number(2, kind) + part(8, name) + part(9, values.tobytes()))


def node(kind: str, *inputs: str) -> bytes:
    return part(1, b"".join(part(1, name) for name in inputs) + part(4, kind))


MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
BIAS = np.ones(300, np.float32)
FILE = number(1, 8) + part(
    7,
    node("Conv", "sound", "matrix", "bias")
    + node("Relu", "x")
    + node("LSTM", "x", "", "matrix", "axes")
    + tensor("bias", BIAS)
    + tensor("axes", np.arange(2), INT64)
    + tensor("matrix", MATRIX),
)


def test_layers_are_read_in_order_with_their_weights() -> None:
    first, second = layers(FILE, {"Conv", "LSTM"})
    assert (first.kind, second.kind) == ("Conv", "LSTM")
    np.testing.assert_array_equal(first.weights[0], MATRIX)
    np.testing.assert_array_equal(first.weights[1], BIAS)
    np.testing.assert_array_equal(second.weights[0], MATRIX)
    assert len(second.weights) == 1


def test_fields_of_fixed_width_are_skipped() -> None:
    fixed = varint(3 << 3 | 1) + bytes(8) + varint(4 << 3 | 5) + bytes(4)
    assert [layer.kind for layer in layers(fixed + FILE, {"LSTM"})] == ["LSTM"]


def test_the_inputs_of_an_operator_are_read() -> None:
    assert operator_inputs(FILE, "LSTM") == [("x", "", "matrix", "axes")]
    assert operator_inputs(FILE, "Add") == []


def test_an_inner_value_becomes_an_output_and_the_layers_are_kept() -> None:
    longer = with_output(FILE, "x" * 200)
    assert longer == FILE + part(7, part(12, part(1, "x" * 200)))
    assert len(layers(longer, {"Conv", "LSTM"})) == 2


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (FILE[:-1], "the file ends early"),
        (b"\xff" * 20, "more than 64 bits"),
        (b"hello", "wire type|ends early"),
        (part(7, tensor("w", MATRIX)[:-1]), "the file ends early"),
        (part(7, tensor("w", MATRIX).replace(number(1, 3), number(1, 4))), r"24 bytes .*\[2, 4\]"),
    ],
)
def test_a_damaged_file_is_refused(file: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        layers(file, {"Conv"})


@given(st.integers(0, len(FILE) - 1), st.binary(max_size=12))
def test_any_damage_raises_only_value_errors(at: int, other: bytes) -> None:
    try:
        found = layers(FILE[:at] + other + FILE[at + len(other) :], {"Conv", "LSTM"})
    except ValueError:
        return
    assert len(found) <= len(FILE)
