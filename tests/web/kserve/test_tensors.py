"""Tensors as bytes and as numbers of JSON, and what is refused."""

import struct
from typing import Any

import numpy as np
import pytest

from core.errors import RequestError
from web.kserve.tensors import bytes_of, tensor_of_bytes, tensor_of_values

TWO_TEXTS = b"\x02\x00\x00\x00hi\x00\x00\x00\x00"


def test_every_datatype_survives_both_forms() -> None:
    for datatype, values in (
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("FP16", [0.5, -2.0]),
        ("FP32", [0.25, 3]),
    ):
        tensor = tensor_of_values("x", datatype, [2, 1], [[values[0]], [values[1]]])
        again = tensor_of_bytes("x", datatype, [2, 1], bytes_of(tensor))
        assert list(again.values) == values
    texts = tensor_of_bytes("x", "BYTES", [2], TWO_TEXTS)
    assert texts.values == (b"hi", b"")
    assert bytes_of(texts) == TWO_TEXTS
    assert tensor_of_values("x", "BYTES", [2, 1], [["hi"], [""]]).values == texts.values


def test_little_endian_bytes_are_numbers() -> None:
    tensor = tensor_of_bytes("WAV_LENS", "INT32", [1, 1], struct.pack("<i", 13600))
    np.testing.assert_array_equal(tensor.values, [13600])


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "reason"),
    [
        ("FP32", [2], bytes(7), "needs 8 bytes, but there are 7"),
        ("FP32", [-1], bytes(4), "negative number"),
        ("FP32", [2**20, 2**20], b"", "at most"),
        ("FP32", [1] * 9, bytes(4), "9 dimensions"),
        ("FP8", [1], b"x", "not known; allowed: BOOL"),
        ("BYTES", [2], TWO_TEXTS[:5], "cut off"),
        ("BYTES", [3], TWO_TEXTS, "needs 3 elements, but there are 2"),
        ("BYTES", [1], TWO_TEXTS, "needs 1 elements, but there are 2"),
        ("BYTES", [1], b"\xff\xff\xff\xff", "cut off"),
    ],
)
def test_wrong_bytes_are_refused(datatype: str, shape: list[int], data: bytes, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as error:
        tensor_of_bytes("WAV", datatype, shape, data)
    assert (error.value.code, error.value.param) == ("invalid_value", "WAV")


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("FP32", ["1.5"]),
        ("FP32", [[1.0], [1.0, 2.0]]),
        ("FP32", [None]),
        ("FP32", {"a": 1}),
        ("INT32", [2**31]),
        ("INT32", [1.5]),
        ("UINT8", [-1]),
        ("INT64", [2**70]),
        ("BOOL", [1]),
        ("BYTES", [1]),
        ("FP32", [1.0, 2.0]),
    ],
)
def test_wrong_values_are_refused(datatype: str, values: Any) -> None:
    with pytest.raises(RequestError):
        tensor_of_values("x", datatype, [1], values)
