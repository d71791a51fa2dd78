"""Embeddings as models of KServe's protocol: texts in, vectors out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.errors import RequestError
from engines.base.text import TextModelInfo
from serving.text.model import Embedder
from web.kserve.tensors import BYTES, InferRequest, Tensor, invalid
from web.openai.text.door import check_prompt, vectors_of
from web.openai.text.fields import MAX_INPUTS, check_texts

TEXT = "TEXT"
EMBEDDING = "EMBEDDING"
INPUT_TYPE = "input_type"

INPUTS: tuple[dict[str, Any], ...] = ({"name": TEXT, "datatype": BYTES, "shape": [-1, 1]},)

__all__ = ["INPUTS", "MAX_INPUTS", "embed", "embedding_request", "outputs"]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """The texts of a request."""

    texts: tuple[str, ...]
    prompt: str
    "Name of the model's prefix for these texts; empty: its default."


def outputs(info: TextModelInfo) -> Sequence[dict[str, Any]]:
    """Returns the outputs of a model."""
    return ({"name": EMBEDDING, "datatype": "FP32", "shape": [-1, info.dimensions]},)


def embedding_request(request: InferRequest, info: TextModelInfo) -> EmbeddingRequest:
    """Returns the texts of a request. Raises RequestError."""
    if set(request.inputs) != {TEXT}:
        unknown = next((name for name in request.inputs if name != TEXT), "")
        raise RequestError(
            f"Unknown input {unknown[:64]!r}. Allowed: {TEXT}."
            if unknown
            else f"Missing input {TEXT!r}: {BYTES}, one text per row.",
            code="unsupported_parameter" if unknown else "missing_required_parameter",
            param=unknown[:64] or TEXT,
        )
    tensor = request.inputs[TEXT]
    if not isinstance(tensor.values, tuple):
        raise invalid(TEXT, f"it must be {BYTES}")
    try:
        found = tuple(text.decode() for text in tensor.values)
    except UnicodeDecodeError:
        raise invalid(TEXT, "it is not UTF-8") from None
    check_texts(TEXT, found)
    prompt = request.parameters.get(INPUT_TYPE, "")
    if not isinstance(prompt, str):
        raise invalid(INPUT_TYPE, "it must be a text")
    check_prompt(info, prompt)
    return EmbeddingRequest(found, prompt)


async def embed(model: Embedder, request: EmbeddingRequest) -> Tensor:
    """Returns the vectors of a request. Raises RequestError context_length_exceeded,
    OverloadedError, EngineError."""
    vectors = await vectors_of(model, request.texts, request.prompt, param=TEXT)
    rows = np.stack(vectors.rows).astype("<f4")
    return Tensor(EMBEDDING, "FP32", rows.shape, rows.reshape(-1))
