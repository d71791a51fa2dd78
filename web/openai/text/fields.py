"""Decodes and checks the bodies of `POST /v1/embeddings` and `POST /v1/rerank`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct

from core.errors import RequestError
from web.openai.json_body import decode_json

MAX_INPUTS = 2048
"Largest number of inputs of one request, as in OpenAI's service."

MAX_TEXT_CHARS = 65_536
"""Largest number of characters of one text: more than fits into 8192 tokens, and still tokenized in
100 ms."""

MAX_ALL_CHARS = 4 * 1024 * 1024
"Largest number of characters of all texts of a request: one caller must not occupy the model."

IMAGE = "image"
"Text that stands for an image where only the number and the places of the inputs matter."

MAX_TOKEN_ID = 2**31 - 1

TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]

ModelName = Annotated[
    str,
    Meta(
        description=(
            "Name of a model from `GET /v1/models`. `default` and `text-embedding-...`: the first"
            " one."
        )
    ),
]


class EmbeddingPart(Struct, frozen=True):
    """A text or an image as an object, in the form of Jina."""

    text: str | None = None
    image: Annotated[
        str | None,
        Meta(
            description=(
                "A `data:` URL or base64 of a JPEG, PNG, WebP, GIF or BMP file, or the address of"
                " one on a host that the setting `models.image_hosts` allows."
            )
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class EmbeddingImage:
    """An image of a request."""

    reference: str
    "Base64, a `data:` URL, or an address."


EmbeddingInput = str | tuple[int, ...] | EmbeddingImage
"A text, token ids, or an image."


class EmbeddingFields(Struct, frozen=True, kw_only=True):
    """Body of a request for embeddings. `input_type` is an extension of Earshot."""

    model: ModelName
    input: Annotated[
        str | list[str | TokenId | list[TokenId] | EmbeddingPart],
        Meta(
            description=(
                "A text, a list of texts, token ids of the model's own tokenizer, or a list of"
                " such lists; at most 2048 inputs. Nothing is added to token ids. Objects with"
                " `text` or `image`, for models of the kind clip."
            )
        ),
    ]
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        Meta(description="`base64`: the vector as little-endian float32 numbers."),
    ] = None
    dimensions: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        Meta(
            description=(
                "Length of the vectors. Only models that were trained for it (Matryoshka) have"
                " others than their own."
            )
        ),
    ] = None
    user: Annotated[str | None, Meta(description="Accepted, but without effect.")] = None
    input_type: Annotated[
        str,
        Meta(
            description=(
                "Name of the model's prefix for these texts, such as `query` or `passage`. Without"
                " it: the model's default, which most often is none."
            )
        ),
    ] = ""

    def inputs(self) -> list[EmbeddingInput]:
        """Returns the inputs one by one. Raises RequestError."""
        return inputs_of(self.input)


def inputs_of(
    given: str | Sequence[str | int | Sequence[int] | EmbeddingPart],
) -> list[EmbeddingInput]:
    """Returns the values of `input` one by one. Raises RequestError."""
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(token, int) for token in given):
        return [tuple(token for token in given if isinstance(token, int))]
    inputs: list[EmbeddingInput] = []
    for index, item in enumerate(given):
        match item:
            case EmbeddingPart():
                inputs.append(_part(item, index))
            case list():
                inputs.append(tuple(item))
            case str():
                inputs.append(item)
    # Texts and images may be mixed; token ids stand alone.
    has_ids = [isinstance(entry, tuple) for entry in inputs]
    if len(inputs) != len(given) or (any(has_ids) and not all(has_ids)):
        raise RequestError(
            "Invalid value for 'input': texts, numbers and lists are mixed. Allowed: a text,"
            " a list of texts and images, a list of token ids, or a list of such lists.",
            code="invalid_value",
            param="input",
        )
    return inputs


class RerankDocument(Struct, frozen=True):
    """A document as an object."""

    text: str


class RerankFields(Struct, frozen=True, kw_only=True):
    """Body of a request for reranking, as Jina's and Cohere's clients send it."""

    model: Annotated[
        str, Meta(description="Name of a model from `GET /v1/models`. `default`: the first one.")
    ] = "default"
    query: Annotated[str, Meta(description="Text that the documents are compared with.")]
    documents: Annotated[
        list[str | RerankDocument], Meta(description="Texts to compare, at most 2048.")
    ]
    top_n: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_INPUTS)] | None,
        Meta(description="Number of results; without it all."),
    ] = None
    return_documents: Annotated[
        bool, Meta(description="Whether the results repeat the documents.")
    ] = True

    def texts(self) -> list[str]:
        """Returns the texts of the documents."""
        return [
            document if isinstance(document, str) else document.text for document in self.documents
        ]


def decode_embeddings(body: bytes) -> tuple[EmbeddingFields, list[EmbeddingInput]]:
    """Decodes a request for embeddings, and returns it with its inputs.

    Raises RequestError invalid_json, missing_required_parameter, invalid_value, empty_string,
    empty_array, array_above_max_length, string_above_max_length.
    """
    fields = decode_json(body, EmbeddingFields)
    inputs = fields.inputs()
    # An image counts as an input here; `web.images` checks the rest of it.
    check_texts(
        "input", [IMAGE if isinstance(entry, EmbeddingImage) else entry for entry in inputs]
    )
    return fields, inputs


def _part(part: EmbeddingPart, index: int) -> str | EmbeddingImage:
    if (part.text is None) == (part.image is None):
        raise RequestError(
            f"Invalid value for 'input[{index}]': an object must have either 'text' or 'image'.",
            code="invalid_value",
            param=f"input[{index}]",
        )
    return part.text if part.text is not None else EmbeddingImage(part.image or "")


def decode_rerank(body: bytes) -> RerankFields:
    """Decodes a request for reranking. Raises as `decode_embeddings`."""
    fields = decode_json(body, RerankFields)
    check_texts("query", [fields.query])
    check_texts("documents", fields.texts(), len(fields.query))
    return fields


def check_texts(param: str, texts: Sequence[str | Sequence[int]], further_chars: int = 0) -> None:
    """Checks number and lengths of the texts in the field `param`. `further_chars`: characters that
    are computed with each text. Raises RequestError."""
    if not texts:
        raise RequestError(
            f"Invalid '{param}': empty array. Expected an array with at least one element.",
            code="empty_array",
            param=param,
        )
    if len(texts) > MAX_INPUTS:
        raise RequestError(
            f"Invalid '{param}': array too long. Expected an array with at most {MAX_INPUTS}"
            f" elements, but got one with {len(texts)} elements.",
            code="array_above_max_length",
            param=param,
        )
    for index, text in enumerate(texts):
        where = f"{param}[{index}]" if len(texts) > 1 else param
        if not text:
            raise RequestError(f"Invalid '{where}': it is empty.", code="empty_string", param=where)
        if len(text) > MAX_TEXT_CHARS:
            raise RequestError(
                f"Invalid '{where}': too long. Expected at most {MAX_TEXT_CHARS} characters or"
                f" tokens, but got {len(text)}.",
                code="string_above_max_length",
                param=where,
            )
    total = sum(len(text) + further_chars for text in texts)
    if total > MAX_ALL_CHARS:
        raise RequestError(
            f"Invalid '{param}': {total} characters in all; at most {MAX_ALL_CHARS} are allowed.",
            code="string_above_max_length",
            param=param,
        )
