"""Serves embeddings of OpenAI's REST API, also of images, and reranking in the form of Jina and
Cohere."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from aiohttp import web as aioweb
from msgspec import Struct

from core.errors import NotFound, RequestError
from core.http.client_connection import while_connected
from core.http.routes import JSON, Route
from engines.base.text import ClipItem, EmbedItem, RerankItem, TextModelInfo
from pipeline.shared.settings import DEFAULT
from serving.models.registry import ModelsOfKind
from serving.remote.models import RemoteModel, RemoteModels, RemotePath
from serving.remote.settings import RemoteKind
from serving.text.model import (
    Clips,
    Embedder,
    Embedders,
    Rerankers,
    ServedClip,
    ServedTextModel,
    TextPriority,
)
from web.images import MAX_BODY_BYTES, RequestImages, invalid_image, places
from web.openai.json_body import check_json, read_json
from web.openai.limits import RequestLimits
from web.openai.text.fields import (
    EmbeddingFields,
    EmbeddingImage,
    EmbeddingInput,
    RerankDocument,
    RerankFields,
    decode_embeddings,
    decode_rerank,
)
from web.openai.text.results import (
    Floats,
    TextRanking,
    TextVectors,
    ranked,
    remote_ranking,
    remote_vectors,
    unit_rows,
)

CHUNK_INPUTS = 16
"""Number of inputs that are computed together. Between two calls for a large request, others get
their turn."""

OPENAI_MODEL_PREFIX = "text-embedding-"
"Prefix of the names of OpenAI's models for embeddings."


class TextUsage(Struct, frozen=True):
    """Tokens of the request, with special tokens."""

    prompt_tokens: int
    total_tokens: int


class Embedding(Struct, frozen=True):
    """The vector of one input."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    "Numbers, or base64 of little-endian float32 numbers."


class EmbeddingList(Struct, frozen=True):
    """Answer to a request for embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: TextUsage


class RerankScore(Struct, frozen=True, omit_defaults=True):
    """The score of one document."""

    index: int
    "Position of the document in the request."
    relevance_score: float
    "A higher score means that the document fits the query better."
    document: RerankDocument | None = None


class RerankScores(Struct, frozen=True):
    """Answer to a request for reranking, the best document first."""

    model: str
    results: list[RerankScore]
    usage: TextUsage


InputT = TypeVar("InputT", str, str | tuple[int, ...])
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class TextDoor:
    """Handles the requests of `/v1/embeddings` and `/v1/rerank`."""

    def __init__(
        self,
        embedders: Embedders,
        rerankers: Rerankers,
        clips: Clips,
        remote: RemoteModels,
        images: RequestImages,
        limits: RequestLimits,
    ) -> None:
        """`remote`: models of other servers, which come before our own of the same name. `images`:
        reads the images of requests."""
        self._embedders, self._rerankers, self._clips = embedders, rerankers, clips
        self._remote, self._images, self._limits = remote, images, limits

    async def embeddings(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v1/embeddings`. Raises RequestError, OverloadedError, EngineError."""
        check_json(request)
        async with self._images.body(request) as sent:
            fields, inputs = decode_embeddings(sent)
            if remote := self._remote_model("embed", fields.model, self._embedders):
                texts = [entry for entry in inputs if isinstance(entry, str)]
                forwarded = _forwarded(remote, "/embeddings", sent, texts)
                return await while_connected(request, forwarded)
            return await while_connected(request, self._embed(fields, inputs))

    async def rerank(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v1/rerank` and `/v2/rerank`. Raises RequestError, OverloadedError,
        EngineError."""
        sent = await read_json(request)
        fields = decode_rerank(sent)
        if remote := self._remote_model("rerank", fields.model, self._rerankers):
            texts = [fields.query, *fields.texts()]
            return await while_connected(request, _forwarded(remote, "/rerank", sent, texts))
        return await while_connected(request, self._rank(fields))

    def _remote_model(self, kind: RemoteKind, name: str, own: Iterable[str]) -> RemoteModel | None:
        """Returns the model of another server that a request means; None if it means one of ours.
        `own`: names of our models."""
        model = self._remote.get(kind, name)
        if model is None and _is_any(name) and not tuple(own):
            model = self._remote.first(kind)
        return model

    async def _embed(
        self, fields: EmbeddingFields, inputs: Sequence[EmbeddingInput]
    ) -> aioweb.Response:
        is_text_model = self._embedders.get(fields.model) is not None
        clip = None if is_text_model else self._clips.get(fields.model)
        if clip is not None:
            vectors = await self._clip_vectors(clip, fields, inputs)
        else:
            vectors = await self.vectors(
                fields.model,
                _without_images(fields.model, inputs),
                dimensions=fields.dimensions,
                prompt=fields.input_type,
            )
        as_text = fields.encoding_format == "base64"
        data = [
            Embedding(
                "embedding",
                index,
                b64encode(row.astype("<f4").tobytes()).decode() if as_text else row.tolist(),
            )
            for index, row in enumerate(vectors.rows)
        ]
        usage = TextUsage(vectors.tokens, vectors.tokens)
        return _json(EmbeddingList("list", data, vectors.model, usage))

    async def vectors(
        self,
        name: str,
        inputs: Sequence[str | tuple[int, ...]],
        *,
        dimensions: int | None = None,
        prompt: str = "",
        is_cut: bool = False,
    ) -> TextVectors:
        """Returns the vectors of checked inputs. `name`: model as the request names it.
        `dimensions`, `prompt`: as in `EmbeddingFields`. `is_cut`: True: texts that are too long are
        cut, by a model of this server. Raises RequestError, OverloadedError, EngineError."""
        if remote := self._remote_model("embed", name, self._embedders):
            return await remote_vectors(remote, inputs, prompt, dimensions=dimensions)
        model = _requested(self._embedders, name, "embeddings", self._clips)
        info = model.info
        length = _dimensions(info, dimensions)
        check_prompt(info, prompt)
        _check_token_ids(info, inputs)
        async with self._limits.embeddings.take():
            return await vectors_of(model, inputs, prompt, dimensions=length, is_cut=is_cut)

    async def _clip_vectors(
        self, model: ServedClip, fields: EmbeddingFields, inputs: Sequence[EmbeddingInput]
    ) -> TextVectors:
        """Returns vectors of length 1 of texts and images."""
        _dimensions(model.info, fields.dimensions)
        check_prompt(model.info, fields.input_type)
        if any(isinstance(entry, tuple) for entry in inputs):
            raise RequestError(
                f"Invalid value for 'input': {model.info.model} takes texts and images, but no"
                " token ids.",
                code="invalid_value",
                param="input",
            )
        references = {
            place: entry.reference
            for place, entry in zip(places("input", len(inputs)), inputs, strict=True)
            if isinstance(entry, EmbeddingImage)
        }
        async with self._limits.embeddings.take():
            files = iter(await self._images.load(references))
            contents = [entry if isinstance(entry, str) else next(files) for entry in inputs]
            return unit_rows(await clip_vectors_of(model, contents))

    async def _rank(self, fields: RerankFields) -> aioweb.Response:
        texts = fields.texts()
        ranking = await self.ranking(fields)
        results = [
            RerankScore(
                index,
                ranking.scores[index],
                RerankDocument(texts[index]) if fields.return_documents else None,
            )
            for index in ranking.order[: fields.top_n]
        ]
        usage = TextUsage(ranking.tokens, ranking.tokens)
        return _json(RerankScores(ranking.model, results, usage))

    async def ranking(self, fields: RerankFields) -> TextRanking:
        """Returns the scores of the documents of a checked request. Raises RequestError
        context_length_exceeded, refused_by_model, OverloadedError, EngineError."""
        if remote := self._remote_model("rerank", fields.model, self._rerankers):
            return await remote_ranking(remote, fields)
        model = _requested(self._rerankers, fields.model, "reranking")
        texts = fields.texts()
        async with self._limits.rerank.take():
            longest_first = _longest_first(texts)
            chunks = _chunks([texts[index] for index in longest_first])
            priority = _priority(model, len(chunks))
            sorted_scores: list[float] = []
            tokens = 0
            for chunk in chunks:
                result = await model.compute(RerankItem(fields.query, chunk), priority)
                if not result.scores:
                    rest = longest_first[len(sorted_scores) :]
                    raise _too_long(model.info, "documents", rest, result.tokens, len(texts))
                tokens += sum(result.tokens)
                sorted_scores += result.scores
        scores = _in_given_order(sorted_scores, longest_first)
        return ranked(model.offer.name, scores, tokens)


TEXT_ERRORS = (
    "array_above_max_length",
    "client_gone",
    "context_length_exceeded",
    "draining",
    "empty_array",
    "empty_string",
    "engine_crashed",
    "engine_failed",
    "engine_timeout",
    "engine_unreachable",
    "image_too_large",
    "invalid_image",
    "invalid_json",
    "invalid_value",
    "missing_required_parameter",
    "model_not_found",
    "refused_by_model",
    "server_full",
    "string_above_max_length",
    "too_large",
    "too_many_requests",
    "unsupported_media_type",
)
"Codes of the errors of embeddings and reranking."


def text_routes(door: TextDoor) -> tuple[Route, ...]:
    """Returns the routes of embeddings and reranking."""
    return (
        Route(
            "POST",
            "/v1/embeddings",
            door.embeddings,
            "Convert texts and images to vectors. The first request loads the model.",
            "openai",
            request=EmbeddingFields,
            responses={200: EmbeddingList},
            error_codes=TEXT_ERRORS,
            scope="models",
            max_body_bytes=MAX_BODY_BYTES,
        ),
        *(
            Route(
                "POST",
                path,
                door.rerank,
                "Sort documents by how well they fit a query. The first request loads the model.",
                "openai",
                request=RerankFields,
                responses={200: RerankScores},
                error_codes=TEXT_ERRORS,
                scope="models",
            )
            for path in ("/v1/rerank", "/v2/rerank")  # Cohere's newer client has the second
        ),
    )


async def vectors_of(
    model: Embedder,
    inputs: Sequence[str | tuple[int, ...]],
    prompt: str = "",
    *,
    dimensions: int | None = None,
    is_cut: bool = False,
    param: str = "input",
) -> TextVectors:
    """Computes the vectors of all inputs of a request. `prompt`: name of the model's prefix.
    `dimensions`: length of the vectors; None: as the model has it. `is_cut`: a text that is too
    long is cut. `param`: name of the inputs in errors. Raises RequestError context_length_exceeded,
    OverloadedError, EngineError."""
    info = model.info
    longest_first = _longest_first(inputs)
    chunks = _chunks([inputs[index] for index in longest_first])
    priority = _priority(model, len(chunks))
    rows: list[Floats] = []
    tokens = 0
    for chunk in chunks:
        result = await model.compute(EmbedItem(chunk, prompt, is_cut), priority)
        if not result.vectors:
            rest = longest_first[len(rows) :]
            raise _too_long(info, param, rest, result.tokens, len(inputs))
        tokens += sum(result.tokens)
        rows += _shortened(result.vectors, info, dimensions or info.dimensions)
    return TextVectors(model.offer.name, _in_given_order(rows, longest_first), tokens)


async def clip_vectors_of(
    model: ServedClip,
    inputs: Sequence[str | bytes],
    *,
    is_cut: bool = False,
    param: str = "input",
) -> TextVectors:
    """Computes the vectors of texts and images as the model makes them, which is not normalised.
    `inputs`: texts, and files of images. `is_cut`, `param`: see `vectors_of`. Raises RequestError
    context_length_exceeded, invalid_image, OverloadedError, EngineError."""
    info = model.info
    items = _clip_items(inputs, is_cut=is_cut)
    priority = _priority(model, len(items))
    rows: list[Floats] = []
    tokens = 0
    for item in items:
        result = await model.compute(item, priority)
        if result.problem:
            raise invalid_image(places(param, len(inputs))[len(rows)], result.problem)
        if not result.vectors:
            indices = range(len(rows), len(inputs))
            raise _too_long(info, param, indices, result.tokens, len(inputs))
        tokens += sum(result.tokens)
        rows += _shortened(result.vectors, info, info.dimensions)
    return TextVectors(model.offer.name, rows, tokens)


def _clip_items(inputs: Sequence[str | bytes], *, is_cut: bool) -> list[ClipItem]:
    """Returns one item for each image, and for texts that follow each other."""
    items: list[ClipItem] = []
    for is_text, group in groupby(inputs, lambda entry: isinstance(entry, str)):
        if is_text:
            texts = [entry for entry in group if isinstance(entry, str)]
            items += [ClipItem(chunk, is_cut=is_cut) for chunk in _chunks(texts)]
        else:
            items += [ClipItem(image=entry) for entry in group if isinstance(entry, bytes)]
    return items


def _without_images(model: str, inputs: Sequence[EmbeddingInput]) -> list[str | tuple[int, ...]]:
    """Returns the inputs. Raises RequestError if one of them is an image."""
    for place, entry in zip(places("input", len(inputs)), inputs, strict=True):
        if isinstance(entry, EmbeddingImage):
            raise invalid_image(place, f"the model {model[:64]!r} takes no images")
    return [entry for entry in inputs if not isinstance(entry, EmbeddingImage)]


def _requested(
    models: ModelsOfKind[ServedTextModel[ItemT, ResultT]],
    name: str,
    work: str,
    others: Iterable[str] = (),
) -> ServedTextModel[ItemT, ResultT]:
    """Returns the model that a request names. `others`: further names that the request could have.
    Raises NotFound model_not_found."""
    model = models.get(name)
    if model is None and _is_any(name):
        first = next(iter(models), None)
        model = None if first is None else models.get(first)
    if model is None:
        names = ", ".join((*models, *others))
        allowed = f"Allowed: {names}." if names else f"No model for {work} is installed."
        raise NotFound(
            f"Unknown model {name[:64]!r}. {allowed}",
            code="model_not_found",
            param="model",
        )
    return model


def _is_any(name: str) -> bool:
    """Returns True for a name that stands for the first model."""
    return name == DEFAULT or name.startswith(OPENAI_MODEL_PREFIX)


async def _forwarded(
    remote: RemoteModel, path: RemotePath, sent: bytes, private_texts: Sequence[str]
) -> aioweb.Response:
    body = msgspec.json.decode(sent, type=dict[str, Any])
    answer = await remote.forward(path, body, private_texts)
    return aioweb.Response(body=answer.encode(), content_type=JSON)


def _longest_first(inputs: Sequence[str | tuple[int, ...]]) -> list[int]:
    """Returns the indices of the inputs, the longest first. In this order the inputs of a chunk
    need little padding, and an input that is too long fails before the others are computed."""
    return sorted(range(len(inputs)), key=lambda index: -len(inputs[index]))


def _in_given_order(results: Sequence[ResultT], indices: Sequence[int]) -> list[ResultT]:
    """Sorts the results as the request has their inputs. `indices`: index of each input in the
    request."""
    by_index = dict(zip(indices, results, strict=True))
    return [by_index[index] for index in range(len(results))]


def _chunks(inputs: Sequence[InputT]) -> list[tuple[InputT, ...]]:
    starts = range(0, len(inputs), CHUNK_INPUTS)
    return [tuple(inputs[start : start + CHUNK_INPUTS]) for start in starts]


def _priority(model: ServedTextModel[Any, Any], chunks: int) -> TextPriority:
    """Returns the priority of a request. Raises OverloadedError if a large one would be refused
    half-way."""
    if chunks == 1:
        return TextPriority.SINGLE
    model.admit(TextPriority.BULK)
    return TextPriority.BULK


def _dimensions(info: TextModelInfo, wanted: int | None) -> int:
    """Returns the length of the vectors. Raises RequestError."""
    if wanted is None or wanted == info.dimensions:
        return info.dimensions
    if wanted in info.shorter_dimensions:
        return wanted
    if info.is_matryoshka and not info.shorter_dimensions and wanted < info.dimensions:
        return wanted
    if info.is_matryoshka and not info.shorter_dimensions:
        allowed = f"1 to {info.dimensions}"
    else:
        allowed = ", ".join(map(str, (*info.shorter_dimensions, info.dimensions)))
    raise RequestError(
        f"Invalid value for 'dimensions': {wanted}. Allowed for {info.model}: {allowed}.",
        code="invalid_value",
        param="dimensions",
    )


def check_prompt(info: TextModelInfo, name: str) -> None:
    """Raises RequestError if the model has no prefix of that name."""
    if name and name not in info.prompts:
        allowed = ", ".join(info.prompts) or "none, because the model has no prefixes"
        raise RequestError(
            f"Invalid value for 'input_type': {name[:64]!r}. Allowed for {info.model}: {allowed}.",
            code="invalid_value",
            param="input_type",
        )


def _check_token_ids(info: TextModelInfo, inputs: Sequence[str | tuple[int, ...]]) -> None:
    for ids in inputs:
        if not isinstance(ids, str) and (highest := max(ids)) >= info.vocabulary_size:
            raise RequestError(
                f"Invalid value for 'input': the token id {highest} does not exist; {info.model}"
                f" has the ids 0 to {info.vocabulary_size - 1}. They are those of its own"
                " tokenizer.",
                code="invalid_value",
                param="input",
            )


def _too_long(
    info: TextModelInfo, param: str, indices: Sequence[int], tokens: Sequence[int], count: int
) -> RequestError:
    """Returns the error for an input that does not fit into the context. `indices`: indices in the
    request of the inputs of `tokens`; more may follow. `count`: number of all inputs."""
    length, index = max(zip(tokens, indices, strict=False))
    where = f"{param}[{index}]" if count > 1 else param
    return RequestError(
        f"Invalid '{where}': it has {length} tokens; {info.model} takes at most {info.max_tokens}.",
        code="context_length_exceeded",
        param=where,
    )


def _shortened(data: bytes, info: TextModelInfo, dimensions: int) -> list[Floats]:
    """Returns the rows of a result, cut to `dimensions` numbers. A cut vector gets the length 1
    again if the model's own have it."""
    rows: Floats = np.frombuffer(data, "<f4").reshape(-1, info.dimensions)
    if dimensions < info.dimensions:
        rows = rows[:, :dimensions]
        if info.is_normalized:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return list(rows)


def _json(body: Struct) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(body), content_type=JSON)
