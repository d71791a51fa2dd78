"""Bodies of KServe's HTTP API: JSON, and bytes after it."""

import json
import struct
from typing import Any

import msgspec
import pytest

from core.errors import EarshotError
from web.kserve.json_body import decode_infer, encode_infer
from web.kserve.tensors import InferResponse, tensor_of_values

LENGTHS = {"name": "WAV_LENS", "shape": [1, 1], "datatype": "INT32", "data": [[3]]}
SOUND = {
    "name": "WAV",
    "shape": [1, 3],
    "datatype": "FP32",
    "parameters": {"binary_data_size": 12},
}


def body(*inputs: Any, **fields: Any) -> tuple[bytes, str]:
    head = json.dumps({"inputs": inputs, **fields}).encode()
    return head + struct.pack("<3f", 0.5, 0.25, -1), str(len(head))


def test_numbers_and_bytes_are_read_from_one_body() -> None:
    decoded = decode_infer("m", "1", *body(SOUND, LENGTHS, id="7", parameters={"sequence_id": 3}))
    request = decoded.request
    assert (request.model, request.version, request.id) == ("m", "1", "7")
    assert request.parameters == {"sequence_id": 3}
    assert list(request.inputs["WAV"].values) == [0.5, 0.25, -1]
    assert list(request.inputs["WAV_LENS"].values) == [3]


def test_each_output_has_the_form_that_was_asked_for() -> None:
    texts = tensor_of_values("TRANSCRIPTS", "BYTES", [2], ["hé", ""])
    response = InferResponse("m", "1", "7", (texts,))
    plain, length = encode_infer(response, decode_infer("m", "", *body(SOUND)))
    assert length is None
    assert msgspec.json.decode(plain)["outputs"][0]["data"] == ["hé", ""]
    asked = decode_infer(
        "m",
        "",
        *body(SOUND, outputs=[{"name": "TRANSCRIPTS", "parameters": {"binary_data": True}}]),
    )
    answer, length = encode_infer(response, asked)
    assert length is not None
    assert answer[length:] == b"\x03\x00\x00\x00h\xc3\xa9\x00\x00\x00\x00"
    (output,) = msgspec.json.decode(answer[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 11}


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"{", None),
        (b"{}", None),
        (b'{"inputs": []}', None),
        (b'{"inputs": [1]}', None),
        (b"{}", "3"),
        (b"{}", "-1"),
        (b"{}", "two"),
        (*body({**SOUND, "parameters": {"binary_data_size": 13}}),),
        (*body({**SOUND, "parameters": {"binary_data_size": "12"}}),),
        (*body(LENGTHS),),
        (*body(SOUND, SOUND),),
        (*body({**SOUND, "parameters": {"binary_data_size": 0}}, SOUND),),
        (b" " * (8 * 2**20 + 1), None),
    ],
)
def test_wrong_bodies_are_refused(data: bytes, length: str | None) -> None:
    with pytest.raises(EarshotError) as error:
        decode_infer("m", "", data, length)
    assert len(str(error.value)) < 400
