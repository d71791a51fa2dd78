"""Embeddings as models of KServe's protocol: they take texts or files of images, and return
vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.errors import RequestError
from engines.base.text import MAX_IMAGE_BYTES, TextModelInfo
from serving.remote.models import RemoteModel
from serving.text.model import Embedder, ServedClip
from web.images import MAX_IMAGES
from web.kserve.tensors import BYTES, InferRequest, Tensor, invalid
from web.openai.text.door import check_prompt, clip_vectors_of, vectors_of
from web.openai.text.fields import MAX_INPUTS, check_texts
from web.openai.text.results import remote_vectors, unit_rows

TEXT, IMAGE = "TEXT", "IMAGE"
EMBEDDING = "EMBEDDING"
INPUT_TYPE = "input_type"

UNKNOWN = -1
"Dimension of a tensor that is known from its values only."

__all__ = ["MAX_INPUTS", "embed", "embedding_request", "info_of", "inputs", "outputs"]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """The texts or images of a request."""

    contents: tuple[str, ...] | tuple[bytes, ...]
    "Texts, or files of images."
    prompt: str = ""
    "Name of the model's prefix for these texts; empty: its default."


def info_of(model: Embedder | ServedClip | RemoteModel) -> TextModelInfo | None:
    """Returns the properties of a model; None if another server has it, which takes texts."""
    return None if isinstance(model, RemoteModel) else model.info


def inputs(info: TextModelInfo | None) -> Sequence[dict[str, Any]]:
    """Returns the inputs of a model. A request to one that takes images has one of them."""
    names = (TEXT, IMAGE) if info is not None and info.has_images else (TEXT,)
    return tuple({"name": name, "datatype": BYTES, "shape": [-1, 1]} for name in names)


def outputs(info: TextModelInfo | None) -> Sequence[dict[str, Any]]:
    """Returns the outputs of a model."""
    dimensions = UNKNOWN if info is None else info.dimensions
    return ({"name": EMBEDDING, "datatype": "FP32", "shape": [-1, dimensions]},)


def embedding_request(request: InferRequest, info: TextModelInfo | None) -> EmbeddingRequest:
    """Returns the texts or images of a request. Raises RequestError."""
    names = [entry["name"] for entry in inputs(info)]
    if unknown := next((name for name in request.inputs if name not in names), ""):
        raise RequestError(
            f"Unknown input {unknown[:64]!r}. Allowed: {', '.join(names)}.",
            code="unsupported_parameter",
            param=unknown[:64],
        )
    if len(request.inputs) != 1:
        raise RequestError(
            f"A request has one input of {BYTES}, one value per row: {' or '.join(names)}.",
            code="missing_required_parameter",
            param=TEXT,
        )
    ((name, tensor),) = request.inputs.items()
    if not isinstance(tensor.values, tuple):
        raise invalid(name, f"it must be {BYTES}")
    if name == IMAGE:
        if not 0 < len(tensor.values) <= MAX_IMAGES:
            raise invalid(IMAGE, f"{len(tensor.values)} images; allowed are 1 to {MAX_IMAGES}")
        if not all(0 < len(image) <= MAX_IMAGE_BYTES for image in tensor.values):
            raise invalid(IMAGE, f"a file of an image has 1 to {MAX_IMAGE_BYTES} bytes")
        return EmbeddingRequest(tensor.values)
    try:
        found = tuple(text.decode() for text in tensor.values)
    except UnicodeDecodeError:
        raise invalid(TEXT, "it is not UTF-8") from None
    check_texts(TEXT, found)
    prompt = request.parameters.get(INPUT_TYPE, "")
    if not isinstance(prompt, str):
        raise invalid(INPUT_TYPE, "it must be a text")
    if info is not None:
        check_prompt(info, prompt)
    return EmbeddingRequest(found, prompt)


async def embed(model: Embedder | ServedClip | RemoteModel, request: EmbeddingRequest) -> Tensor:
    """Returns the vectors of a request. Raises RequestError context_length_exceeded,
    invalid_image, refused_by_model, OverloadedError, EngineError."""
    param = TEXT if isinstance(request.contents[0], str) else IMAGE
    if isinstance(model, ServedClip):
        vectors = unit_rows(await clip_vectors_of(model, request.contents, param=param))
    else:
        texts = [text for text in request.contents if isinstance(text, str)]
        if isinstance(model, RemoteModel):
            vectors = await remote_vectors(model, texts, request.prompt)
        else:
            vectors = await vectors_of(model, texts, request.prompt, param=param)
    rows = np.stack(vectors.rows).astype("<f4")
    return Tensor(EMBEDDING, "FP32", rows.shape, rows.reshape(-1))
