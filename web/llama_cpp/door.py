"""Serves llama.cpp's own paths for completions, embeddings and reranking."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Literal

import msgspec
import numpy as np
from aiohttp import web as aioweb
from msgspec import Meta, Struct

from core.errors import EarshotError, RequestError
from core.http.client_connection import ClientDisconnected, while_connected
from core.http.routes import JSON, Route
from engines.llm.openai.chunks import DONE
from pipeline.shared.settings import DEFAULT
from web.llama_cpp.completion import (
    CompletionTranslation,
    LlamaCompletionFields,
    completion_body,
    decode_completion,
)
from web.openai.chat.door import TEXT, ChatDoor
from web.openai.chat.models import LatencyMarks
from web.openai.json_body import decode_json
from web.openai.text.door import TEXT_ERRORS, TextDoor
from web.openai.text.fields import (
    EmbeddingImage,
    RerankFields,
    TokenId,
    check_texts,
    decode_rerank,
    inputs_of,
)
from web.openai.transcriptions.sse import SseResponse, error_event

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


LLAMA_CPP_TAG = "llama.cpp"
"Heading of the paths on the API's page."


class LlamaCppDoor:
    """Handles requests in the form of llama.cpp's server."""

    def __init__(self, texts: TextDoor, chat: ChatDoor) -> None:
        """`texts`, `chat`: their models and their limits of requests count here, too."""
        self._texts, self._chat = texts, chat

    async def embedding(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /embedding` and `POST /embeddings`. Raises RequestError, OverloadedError,
        EngineError."""
        fields, inputs = decode_llama_embedding(await request.read())
        return await while_connected(request, self._embed(fields, inputs))

    async def reranking(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /reranking` and its other names. Raises RequestError, OverloadedError,
        EngineError."""
        fields = decode_rerank(await request.read())
        return await while_connected(request, self._rank(fields))

    async def completion(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /completion`. Raises RequestError, OverloadedError, EngineError."""
        marks = LatencyMarks.start()
        fields = decode_completion(await request.read())
        model = self._chat.models.find(fields.model)
        if model.server is None:
            raise RequestError(
                f"The model {fields.model[:64]!r} answers conversations only: use"
                " /v1/chat/completions, or a model that runs in a model server.",
                code="unsupported_operation",
                param="model",
            )
        private = [fields.prompt] if isinstance(fields.prompt, str) else []
        async with self._chat.place(model):
            texts = self._chat.models.forward(model, TEXT, completion_body(fields), private, marks)
            return await while_connected(request, _send_completion(request, fields, texts))

    async def _embed(
        self, fields: LlamaEmbeddingFields, inputs: Sequence[str | tuple[int, ...]]
    ) -> aioweb.Response:
        rows = (await self._texts.vectors(fields.model, inputs)).rows
        if fields.is_normalized:
            rows = [row / np.maximum(np.linalg.norm(row), 1e-12) for row in rows]
        # One vector for each token would be possible in this form, so a pooled one is in a list.
        return _json([{"index": at, "embedding": [row.tolist()]} for at, row in enumerate(rows)])

    async def _rank(self, fields: RerankFields) -> aioweb.Response:
        ranking = await self._texts.ranking(fields)
        tokens = ranking.tokens
        return _json(
            {
                "model": ranking.model,
                "object": "list",
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
                "results": [
                    {"index": index, "relevance_score": ranking.scores[index]}
                    for index in ranking.order[: fields.top_n]
                ],
            }
        )


async def _send_completion(
    request: aioweb.Request, fields: LlamaCompletionFields, texts: AsyncGenerator[str, None]
) -> aioweb.StreamResponse:
    """Sends the answer of a model's server: whole, or each piece as an event."""
    answer, events = CompletionTranslation(fields.model), SseResponse(request)
    async with aclosing(texts):
        if not fields.stream:
            return _json(answer.end("".join([answer.push(text) async for text in texts])))
        try:
            async for text in texts:
                if text.strip() != DONE and (piece := answer.push(text)):
                    await events.send_text(_text(answer.piece(piece)))
            await events.send_text(_text(answer.end("")))
        except ClientDisconnected:
            raise
        except EarshotError as error:
            if not events.has_begun:
                raise
            await events.send(error_event(error))
    return await events.end(with_done_line=False)


def _text(event: Mapping[str, object]) -> str:
    return msgspec.json.encode(event).decode()


def llama_cpp_routes(door: LlamaCppDoor) -> tuple[Route, ...]:
    """Returns the routes. Their errors have OpenAI's form, as llama.cpp's have."""
    embedding = "Convert texts to vectors, for clients of llama.cpp's server."
    reranking = "Sort documents by how well they fit a query, for clients of llama.cpp's server."
    completion = "Continue a text, for clients of llama.cpp's server."
    return (
        *(
            Route(
                "POST",
                path,
                door.completion,
                completion,
                LLAMA_CPP_TAG,
                request=LlamaCompletionFields,
                error_codes=(*TEXT_ERRORS, "missing_scope", "unsupported_operation"),
                scope="talk",
            )
            for path in ("/completion", "/completions")
        ),
        *(
            Route(
                "POST",
                path,
                door.embedding,
                embedding,
                LLAMA_CPP_TAG,
                request=LlamaEmbeddingFields,
                error_codes=TEXT_ERRORS,
                scope="models",
            )
            for path in ("/embedding", "/embeddings")
        ),
        *(
            Route(
                "POST",
                path,
                door.reranking,
                reranking,
                LLAMA_CPP_TAG,
                request=RerankFields,
                error_codes=TEXT_ERRORS,
                scope="models",
            )
            for path in ("/reranking", "/rerank", "/v1/reranking")
        ),
    )


def _json(body: object) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(body), content_type=JSON)
