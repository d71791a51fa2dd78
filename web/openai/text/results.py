"""Vectors and rankings in the form that every door uses. Also reads them from the answers of other
servers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from core.errors import EngineError
from serving.remote.models import RemoteModel
from web.openai.text.fields import RerankFields

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TextVectors:
    """Vectors of all inputs of a request."""

    model: str
    "Name of the model that computed them."
    rows: list[Floats]
    tokens: int
    "Number of tokens of all inputs, with special tokens; 0: another server did not report it."


@dataclass(frozen=True, slots=True)
class TextRanking:
    """Scores of all documents of a request."""

    model: str
    "Name of the model that computed them."
    scores: list[float]
    order: list[int]
    "Positions of the documents, the best one first."
    tokens: int
    "Number of tokens, as in `TextVectors`."


class _AnswerUsage(Struct):
    prompt_tokens: int = 0
    total_tokens: int = 0


class _Vector(Struct):
    embedding: list[float]
    index: int | None = None


class _Vectors(Struct):
    """The part of an answer to a request for embeddings that is read."""

    data: list[_Vector]
    usage: _AnswerUsage | None = None


class _Score(Struct):
    index: int
    relevance_score: float


class _Scores(Struct):
    """The part of an answer to a request for reranking that is read."""

    results: list[_Score]
    usage: _AnswerUsage | None = None


def unit_rows(vectors: TextVectors) -> TextVectors:
    """Returns the vectors, scaled to the length 1."""
    rows = [row / np.maximum(np.linalg.norm(row), 1e-12) for row in vectors.rows]
    return replace(vectors, rows=rows)


def ranked(model: str, scores: list[float], tokens: int) -> TextRanking:
    """Returns the ranking of documents by their scores."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return TextRanking(model, scores, order, tokens)


async def remote_vectors(
    model: RemoteModel,
    inputs: Sequence[str | tuple[int, ...]],
    prompt: str = "",
    *,
    dimensions: int | None = None,
) -> TextVectors:
    """Returns vectors of another server, for doors whose answers have a form of their own. That
    server decides what is too long. Raises as `RemoteModel.forward`."""
    body = {"input": list(inputs)}
    options = {"input_type": prompt or None, "dimensions": dimensions}
    named = {name: value for name, value in options.items() if value is not None}
    texts = [entry for entry in inputs if isinstance(entry, str)]
    answer = await model.forward("/embeddings", {**body, **named}, texts)
    return read_vectors(model.name, answer, len(inputs))


async def remote_ranking(model: RemoteModel, fields: RerankFields) -> TextRanking:
    """Returns a ranking of another server, as `remote_vectors`."""
    texts = fields.texts()
    body = {"query": fields.query, "documents": texts, "return_documents": False}
    answer = await model.forward("/rerank", body, [fields.query, *texts])
    return read_ranking(model.name, answer, len(texts))


def read_vectors(model: str, answer: str, count: int) -> TextVectors:
    """Reads an answer to a request for embeddings. `count`: number of its inputs. Raises
    EngineError."""
    try:
        found = msgspec.json.decode(answer.encode(), type=_Vectors)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _no_answer("embed", model, "embeddings") from None
    by_index = {at if one.index is None else one.index: one for at, one in enumerate(found.data)}
    if len(found.data) != count or set(by_index) != set(range(count)):
        raise _no_answer("embed", model, f"{count} embeddings")
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused below
        rows = [np.asarray(by_index[index].embedding, np.float32) for index in range(count)]
    sizes = {len(row) for row in rows}
    if len(sizes) != 1 or 0 in sizes or not all(np.isfinite(row).all() for row in rows):
        raise _no_answer("embed", model, f"{count} embeddings of one length")
    return TextVectors(model, rows, _tokens(found.usage))


def read_ranking(model: str, answer: str, count: int) -> TextRanking:
    """Reads an answer to a request for reranking. `count`: number of its documents. Raises
    EngineError."""
    try:
        found = msgspec.json.decode(answer.encode(), type=_Scores)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _no_answer("rerank", model, "scores") from None
    by_index = {one.index: one.relevance_score for one in found.results}
    if len(found.results) != count or set(by_index) != set(range(count)):
        raise _no_answer("rerank", model, f"{count} scores")
    return ranked(model, [by_index[index] for index in range(count)], _tokens(found.usage))


def _tokens(usage: _AnswerUsage | None) -> int:
    return 0 if usage is None else usage.prompt_tokens or usage.total_tokens


def _no_answer(kind: str, model: str, wanted: str) -> EngineError:
    return EngineError(kind, model, f"its server sent an answer without {wanted}")
