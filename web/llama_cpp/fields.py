"""Decodes the bodies of llama.cpp's own paths.

https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from core.errors import RequestError
from pipeline.shared.settings import DEFAULT
from web.openai.json_body import decode_json
from web.openai.text.fields import EmbeddingImage, TokenId, check_texts, inputs_of

TextInput = str | list[str | TokenId | list[TokenId]]

EUCLIDEAN, NONE = 2, -1
"Values of `embd_normalize`: vectors of length 1, or as the model makes them."


class LlamaEmbeddingFields(Struct, frozen=True, kw_only=True):
    """Body of `POST /embedding` and `POST /embeddings`."""

    content: Annotated[
        TextInput | None, Meta(description="A text, a list of texts, or token ids.")
    ] = None
    input: Annotated[TextInput | None, Meta(description="Another name of `content`.")] = None
    model: Annotated[str, Meta(description="A model of `GET /v1/models`.")] = DEFAULT
    embd_normalize: Annotated[
        Literal[2, -1],
        Meta(description="2: each vector gets the length 1. -1: as the model makes it."),
    ] = 2

    @property
    def is_normalized(self) -> bool:
        """True: each vector gets the length 1."""
        return self.embd_normalize == EUCLIDEAN


def decode_llama_embedding(
    body: bytes,
) -> tuple[LlamaEmbeddingFields, Sequence[str | tuple[int, ...]]]:
    """Decodes a request for embeddings, and returns it with its inputs. Raises RequestError as
    `decode_embeddings`."""
    fields = decode_json(body, LlamaEmbeddingFields)
    content = fields.input if fields.content is None else fields.content
    if content is None:
        raise RequestError(
            "Missing required parameter: 'content'.",
            code="missing_required_parameter",
            param="content",
        )
    inputs = [entry for entry in inputs_of(content) if not isinstance(entry, EmbeddingImage)]
    check_texts("content", inputs)
    return fields, inputs
