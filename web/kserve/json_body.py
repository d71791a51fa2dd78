"""Decodes and encodes the bodies of KServe's HTTP API: JSON, and tensors as bytes after it.

The extension for bytes:
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from core.errors import PayloadTooLarge, RequestError
from web.kserve.tensors import (
    MAX_TENSORS,
    InferRequest,
    InferResponse,
    Parameter,
    Tensor,
    by_name,
    bytes_of,
    invalid,
    tensor_of_bytes,
    tensor_of_values,
)
from web.openai.json_body import decode_json

HEADER_LENGTH = "Inference-Header-Content-Length"
"Header with the number of bytes of the JSON, if bytes of tensors follow it."

MAX_JSON_BYTES = 8 * 2**20
"""Largest JSON of a request: 30 s of sound as numbers. It is decoded while nothing else runs;
longer sound is sent as bytes."""

Parameters = dict[str, bool | int | float | str | None]


class InputFields(Struct, frozen=True, kw_only=True):
    """One input."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    "`binary_data_size`: number of bytes of this tensor after the JSON; then `data` is left out."
    data: Any = None
    "Elements in row order; nested lists are allowed."


class OutputFields(Struct, frozen=True, kw_only=True):
    """One output that the client wants."""

    name: str
    parameters: Parameters = {}
    "`binary_data`: true for bytes after the JSON in place of `data`."


class InferFields(Struct, frozen=True, kw_only=True):
    """Body of a request to compute."""

    id: str = ""
    parameters: Parameters = {}
    "`binary_data_output`: true if all outputs are to be bytes."
    inputs: Annotated[list[InputFields], Meta(min_length=1, max_length=MAX_TENSORS)]
    outputs: Annotated[list[OutputFields], Meta(max_length=MAX_TENSORS)] = []


@dataclass(frozen=True, slots=True)
class DecodedBody:
    """A request, and the form in which its client wants the outputs."""

    request: InferRequest
    binary_outputs: Mapping[str, bool]
    "Name of an output -> True: as bytes."
    is_binary: bool
    "Form of the outputs that `binary_outputs` does not name."


def decode_infer(
    model: str, version: str, body: bytes, header_length: str | None = None
) -> DecodedBody:
    """Decodes the body of a request to compute. `header_length`: the header of that name.

    Raises RequestError invalid_json, invalid_value, missing_required_parameter, too_large.
    """
    json_bytes = _json_length(body, header_length)
    if json_bytes > MAX_JSON_BYTES:
        raise PayloadTooLarge(
            f"the JSON has {json_bytes} bytes; at most {MAX_JSON_BYTES} are allowed: send the"
            " tensors as bytes"
        )
    fields = decode_json(body[:json_bytes], InferFields)
    rest = memoryview(body)[json_bytes:]
    tensors: list[Tensor] = []
    for tensor in fields.inputs:
        size = tensor.parameters.get("binary_data_size")
        if size is None:
            tensors.append(
                tensor_of_values(tensor.name, tensor.datatype, tensor.shape, tensor.data)
            )
            continue
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(rest):
            raise invalid(tensor.name, f"its binary_data_size is not 0 to {len(rest)}")
        tensors.append(tensor_of_bytes(tensor.name, tensor.datatype, tensor.shape, rest[:size]))
        rest = rest[size:]
    if rest:
        raise invalid("inputs", f"{len(rest)} bytes after the JSON belong to no tensor")
    request = InferRequest(
        model,
        version,
        fields.id,
        _parameters(fields.parameters),
        by_name(tensors),
        tuple(tensor.name for tensor in fields.outputs),
    )
    forms = {
        tensor.name: tensor.parameters["binary_data"] is True
        for tensor in fields.outputs
        if "binary_data" in tensor.parameters
    }
    return DecodedBody(request, forms, fields.parameters.get("binary_data_output") is True)


def encode_infer(response: InferResponse, body: DecodedBody) -> tuple[bytes, int | None]:
    """Returns the body of the answer, and the number of bytes of its JSON if others follow."""
    outputs: list[dict[str, Any]] = []
    rest: list[bytes] = []
    for tensor in response.outputs:
        shown: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        if body.binary_outputs.get(tensor.name, body.is_binary):
            data = bytes_of(tensor)
            rest.append(data)
            shown["parameters"] = {"binary_data_size": len(data)}
        elif isinstance(tensor.values, tuple):
            shown["data"] = [text.decode(errors="replace") for text in tensor.values]
        else:
            shown["data"] = tensor.values.tolist()
        outputs.append(shown)
    answer = {
        "model_name": response.model,
        "model_version": response.version,
        **({"id": response.id} if response.id else {}),
        "outputs": outputs,
    }
    head = msgspec.json.encode(answer)
    return b"".join((head, *rest)), len(head) if rest else None


def _json_length(body: bytes, header_length: str | None) -> int:
    if header_length is None:
        return len(body)
    if not (header_length.isascii() and header_length.isdigit() and len(header_length) < 12):
        length = -1
    else:
        length = int(header_length)
    if not 0 <= length <= len(body):
        raise RequestError(
            f"Invalid {HEADER_LENGTH}: {header_length[:16]!r}; the body has {len(body)} bytes.",
            code="invalid_value",
            param=HEADER_LENGTH,
        )
    return length


def _parameters(fields: Parameters) -> dict[str, Parameter]:
    return {name: value for name, value in fields.items() if value is not None}
