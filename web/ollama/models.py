"""Serves the part of Ollama's REST API that concerns models: lists, embeddings, downloads."""

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import msgspec
import numpy as np
from aiohttp import web as aioweb

from core.errors import NotFound, RequestError
from core.http.client_connection import ClientDisconnected, while_connected
from core.http.routes import JSON
from core.http.streaming import send
from serving.models.registry import ModelListing
from serving.remote.models import RemoteModels
from serving.text.model import Embedders, Rerankers, ServedTextModel
from web.ollama.fields import (
    LATEST,
    OllamaEmbeddingsFields,
    OllamaEmbedFields,
    OllamaModelFields,
    OllamaPullFields,
    model_name,
)
from web.openai.json_body import decode_json
from web.openai.text.door import TextDoor
from web.openai.text.fields import check_texts

NDJSON = "application/x-ndjson"
"Content type of lines of JSON."

FAMILY = "earshot"
"Name of the model family in all answers, and prefix of its properties."

NEVER = "2999-12-31T00:00:00Z"
"Time at which a model is unloaded: it stays until another one needs its memory."

DIGEST_LETTERS = 12
"Letters of a digest that a line of progress shows, as Ollama's do."

Line = dict[str, object]


class PullProgress(Protocol):
    """State of one download."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def state(self) -> str:
        """running, done, failed or cancelled."""
        ...

    @property
    def done_bytes(self) -> int:
        """Bytes that have come."""
        ...

    @property
    def total_bytes(self) -> int:
        """Size of the download; 0: unknown."""
        ...

    @property
    def message(self) -> str:
        """Reason why it failed."""
        ...


class ModelDownloads(Protocol):
    """Downloads of models into the models folder."""

    @property
    def pulls(self) -> Sequence[PullProgress]:
        """The downloads that run, and the last ones that ended."""
        ...

    def start(self, model: str) -> PullProgress:
        """Starts a download, or joins the one that runs. Raises NotFound, RequestError,
        OverloadedError."""
        ...

    def events(self, model: str) -> AsyncGenerator[PullProgress, None]:
        """Yields the state now and at each change, until the download has ended."""
        ...

    async def cancel(self, model: str) -> None:
        """Cancels a download. Raises NotFound if none of that name runs."""
        ...


class ModelRemoval(Protocol):
    """Removes models from the models folder."""

    async def remove(self, name: str) -> None:
        """Unloads a model and removes it from the disk. Raises NotFound, Conflict."""
        ...


@dataclass(frozen=True, slots=True)
class OllamaModels:
    """Parts of the server through which the door reaches models."""

    chat_names: Callable[[], Sequence[str]]
    "Returns the models that chat requests may name."
    embedders: Embedders
    rerankers: Rerankers
    remote: RemoteModels
    texts: TextDoor
    downloads: ModelDownloads
    removal: ModelRemoval


class OllamaModelsDoor:
    """Handles Ollama's requests about models."""

    def __init__(self, models: OllamaModels) -> None:
        self._models = models

    async def tags(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/tags`."""
        chat_cards = [_card(name) for name in self._models.chat_names()]
        remote_cards = [_card(name) for name in self._remote_names()]
        text_cards = map(_text_card, self._listing())
        return json_response({"models": [*chat_cards, *remote_cards, *text_cards]})

    async def running(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/ps`: models for chats and of other servers are always ready, others if
        they are loaded."""
        ready_cards = [
            {**_card(name), "expires_at": NEVER, "size_vram": 0}
            for name in (*self._models.chat_names(), *self._remote_names())
        ]
        text_cards = [
            {
                **_text_card(listing),
                "size": round(listing.memory_mb * 2**20),
                "expires_at": NEVER,
                "size_vram": 0,
            }
            for listing in self._listing()
            if listing.state == "loaded"
        ]
        return json_response({"models": [*ready_cards, *text_cards]})

    async def show(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/show`. Raises NotFound model_not_found."""
        name = decode_json(await request.read(), OllamaModelFields).chosen()
        if name in self._models.chat_names():
            return json_response(_shown(_card(name), {}, ["completion", "tools"]))
        if name in self._remote_names():
            is_embedder = self._models.remote.get("embed", name) is not None
            return json_response(_shown(_card(name), {}, ["embedding"] if is_embedder else []))
        for models, capabilities in (
            (self._models.embedders, ["embedding"]),
            (self._models.rerankers, []),
        ):
            found: ServedTextModel[Any, Any] | None = models.get(name)
            if found is not None:
                info = found.info
                properties = {
                    "general.architecture": FAMILY,
                    f"{FAMILY}.context_length": info.max_tokens,
                    f"{FAMILY}.embedding_length": info.dimensions,
                }
                return json_response(_shown(_card(found.offer.name), properties, capabilities))
        raise NotFound(f"model {name[:64]!r} not found", code="model_not_found", param="model")

    async def embed(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/embed`. The vectors have the length 1. Raises as `/v1/embeddings`."""
        began_s = perf_counter()
        fields = decode_json(await request.read(), OllamaEmbedFields)
        name = model_name(fields.model)
        texts = fields.texts()
        answer: Line = {"model": fields.model, "embeddings": []}
        tokens = 0
        if texts:
            vectors = await while_connected(
                request,
                self._models.texts.vectors(
                    name,
                    texts,
                    dimensions=fields.dimensions,
                    is_cut=fields.truncate is not False,
                ),
            )
            tokens = vectors.tokens
            answer["embeddings"] = [
                (row / max(float(np.linalg.norm(row)), 1e-12)).tolist() for row in vectors.rows
            ]
        elif name not in self._remote_names() and self._models.embedders.get(name) is None:
            raise NotFound(f"model {name[:64]!r} not found", code="model_not_found", param="model")
        return json_response(
            {
                **answer,
                "total_duration": int(1e9 * (perf_counter() - began_s)),
                "load_duration": 0,
                "prompt_eval_count": tokens,
            }
        )

    async def embeddings(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/embeddings`, the older form. Raises as `/v1/embeddings`."""
        fields = decode_json(await request.read(), OllamaEmbeddingsFields)
        name = model_name(fields.model)
        check_texts("prompt", [fields.prompt])
        vectors = await while_connected(
            request, self._models.texts.vectors(name, [fields.prompt], is_cut=True)
        )
        return json_response({"embedding": vectors.rows[0].tolist()})

    async def pull(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /api/pull`. A client that leaves cancels the download that it started.

        Raises NotFound, RequestError, OverloadedError as `POST /v1/models/pull`; RequestError
        download_failed.
        """
        fields = decode_json(await request.read(), OllamaPullFields)
        name = fields.chosen()
        downloads = self._models.downloads
        was_running = any(
            pull.model == name and pull.state == "running" for pull in downloads.pulls
        )
        downloads.start(name)
        work = self._wait(name) if fields.stream is False else self._follow(request, name)
        try:
            return await while_connected(request, work)
        except ExceptionGroup as group:
            if not was_running and group.subgroup(ClientDisconnected):
                with suppress(NotFound):  # it has just ended
                    await downloads.cancel(name)
            raise

    async def delete(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `DELETE /api/delete`. Raises NotFound, Conflict."""
        await self._models.removal.remove(
            decode_json(await request.read(), OllamaModelFields).chosen()
        )
        return aioweb.Response()

    def _remote_names(self) -> list[str]:
        """Returns the models of other servers for embeddings and reranking."""
        return [model.name for model in self._models.remote if model.kind in ("embed", "rerank")]

    def _listing(self) -> Iterator[ModelListing]:
        for models in (self._models.embedders, self._models.rerankers):
            yield from (listing for listing in models.listing() if not listing.problem)

    async def _wait(self, name: str) -> aioweb.StreamResponse:
        """Waits for the end of a download."""
        async with aclosing(self._models.downloads.events(name)) as states:
            async for state in states:
                if state.state in ("failed", "cancelled"):
                    raise RequestError(state.message or state.state, code="download_failed")
        return json_response({"status": "success"})

    async def _follow(self, request: aioweb.Request, name: str) -> aioweb.StreamResponse:
        """Sends the progress of a download, one line for each change."""
        response = aioweb.StreamResponse(headers={"Content-Type": NDJSON})
        await response.prepare(request)
        await send(response, _line({"status": "pulling manifest"}))
        async with aclosing(self._models.downloads.events(name)) as states:
            async for state in states:
                for line in progress_lines(state):
                    await send(response, _line(line))
        await response.write_eof()
        return response


def progress_lines(pull: PullProgress) -> Iterator[Line]:
    """Yields the lines of a download's state; none if there is nothing to say yet. Clients show one
    bar for each digest. The bar of a quick download comes with its end."""
    if pull.total_bytes and pull.state in ("running", "done"):
        digest = _digest(pull.model)
        yield {
            "status": f"pulling {digest[:DIGEST_LETTERS]}",
            "digest": f"sha256:{digest}",
            "total": pull.total_bytes,
            "completed": pull.done_bytes,
        }
    if pull.state == "done":
        yield {"status": "success"}
    elif pull.state != "running":
        yield {"error": pull.message or f"the download was {pull.state}"}


def _digest(name: str) -> str:
    """Returns an identifier in the form that Ollama's clients expect. It is made from the model's
    name, because the content of a download is checked file by file."""
    return hashlib.sha256(name.encode()).hexdigest()


def _card(name: str, size_bytes: int = 0) -> Line:
    return {
        "name": f"{name}{LATEST}",
        "model": f"{name}{LATEST}",
        "modified_at": "1970-01-01T00:00:00Z",
        "size": size_bytes,
        "digest": _digest(name),
        "details": {
            "format": "",
            "family": FAMILY,
            "families": [FAMILY],
            "parameter_size": "",
            "quantization_level": "",
        },
    }


def _text_card(listing: ModelListing) -> Line:
    return _card(listing.offer.name, round(listing.offer.size_mb * 2**20))


def _shown(card: Line, properties: Mapping[str, object], capabilities: Sequence[str]) -> Line:
    return {
        "details": card["details"],
        "model_info": properties,
        "capabilities": capabilities,
        "modified_at": card["modified_at"],
    }


def _line(line: Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def json_response(body: Line) -> aioweb.Response:
    """Returns an answer of one JSON object."""
    return aioweb.Response(body=msgspec.json.encode(body), content_type=JSON)
