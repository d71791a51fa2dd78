"""Values and Protocols of models that turn text into vectors (embed) or scores (rerank), or texts
and images into vectors that can be compared (clip)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TextModelInfo:
    """Properties of a model for embeddings, also of images, or for reranking."""

    name: str
    "Name of the engine."
    model: str
    "Name of the model that the engine has loaded."
    max_batch: int
    "Largest number of items in one call."
    max_tokens: int
    "Largest number of tokens of one text, or of one pair of query and document."
    vocabulary_size: int
    "Number of tokens that the model knows; their ids are 0 to this number - 1."
    dimensions: int
    "Length of a vector; 1 for reranking."
    shorter_dimensions: tuple[int, ...] = ()
    """Lengths to which a vector may be cut (Matryoshka embeddings). Not used if `is_matryoshka` is
    true."""
    is_matryoshka: bool = False
    "True: a vector may be cut to any length."
    is_normalized: bool = True
    "True: vectors have the Euclidean length 1. Without meaning for reranking."
    prompts: tuple[str, ...] = ()
    "Names of the prefixes that the model knows, such as query and passage."
    has_images: bool = False
    "True: the model makes vectors of images, too."
    is_incremental: bool = False
    "Always False: no state is kept between items. The scheduler reads it from every model."


@dataclass(frozen=True, slots=True)
class EmbedItem:
    """Texts of one request that are computed together."""

    inputs: tuple[str | tuple[int, ...], ...]
    """Texts, or token ids of the model's own tokenizer. Ids are used as they are, without prefix
    and without added special tokens."""
    prompt: str = ""
    "Name of the model's prefix; empty: the model's default one."
    is_cut: bool = False
    "True: a text with too many tokens is cut to `max_tokens`. Token ids are never cut."


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """Vectors of one item."""

    tokens: tuple[int, ...]
    "Number of tokens of each input, with special tokens."
    vectors: bytes
    """Little-endian float32, one row of `TextModelInfo.dimensions` numbers for each input. Empty if
    an input has no tokens or more than `max_tokens`: then nothing was computed."""


class EmbedModel(Protocol):
    """Text to vectors, in batches. Its calls block, so it runs in a worker process."""

    info: TextModelInfo
    "Properties of the loaded model."

    def embed(self, items: Sequence[EmbedItem]) -> list[EmbedResult]:
        """Computes the items, at most `info.max_batch`, and returns one result for each, in their
        order."""
        ...

    def close(self) -> None:
        """Frees the model. No other method may be called after it."""
        ...


@dataclass(frozen=True, slots=True)
class RerankItem:
    """A query, and documents that are compared with it."""

    query: str
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RerankResult:
    """Scores of one item."""

    tokens: tuple[int, ...]
    "Number of tokens of each pair, with special tokens."
    scores: tuple[float, ...]
    """Score of each document; a higher one means that it fits the query better. Empty if a pair has
    more than `max_tokens` tokens: then nothing was computed."""


class RerankModel(Protocol):
    """Compares documents with a query, in batches. Its calls block, so it runs in a worker
    process."""

    info: TextModelInfo
    "Properties of the loaded model."

    def rerank(self, items: Sequence[RerankItem]) -> list[RerankResult]:
        """Computes the items, at most `info.max_batch`, and returns one result for each, in their
        order."""
        ...

    def close(self) -> None:
        """Frees the model. No other method may be called after it."""
        ...


MAX_IMAGE_BYTES = 7 * 1024 * 1024
"""Largest file of an image. Phone photos have 2 to 6 MB; eight of the largest fit into one message
to a worker."""


@dataclass(frozen=True, slots=True)
class ClipItem:
    """Texts, or one image, of a request."""

    texts: tuple[str, ...] = ()
    image: bytes = b""
    "File of an image, at most MAX_IMAGE_BYTES; empty: the item has texts."
    is_cut: bool = False
    "True: a text with too many tokens is cut to `max_tokens`."


@dataclass(frozen=True, slots=True)
class ClipResult:
    """Vectors of one item."""

    tokens: tuple[int, ...] = ()
    "Number of tokens of each text, with special tokens; empty for an image."
    vectors: bytes = b""
    """Little-endian float32, one row of `TextModelInfo.dimensions` numbers for each text, or one
    for the image. They are not normalised. Empty if a text has more than `max_tokens` tokens, or
    if there is a problem with the image: then nothing was computed."""
    problem: str = ""
    "Reason why the image cannot be used, such as `it is damaged`; empty: it was used."


class ClipModel(Protocol):
    """Texts and images to vectors that can be compared, in batches. Its calls block, so it runs in
    a worker process."""

    info: TextModelInfo
    "Properties of the loaded model."

    def embed(self, items: Sequence[ClipItem]) -> list[ClipResult]:
        """Computes the items, at most `info.max_batch`, and returns one result for each, in their
        order."""
        ...

    def close(self) -> None:
        """Frees the model. No other method may be called after it."""
        ...
