"""Serves Ingrain's HTTP API with the embedding models of this server."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal

import msgspec
import numpy as np
from aiohttp import web as aioweb

from core.errors import NotFound, RequestError
from core.http.client_connection import while_connected
from core.http.routes import JSON
from serving.registry import ModelListing, ModelRegistry
from serving.text.model import Embedder, Embedders
from web.ingrain.fields import (
    IngrainEmbedFields,
    IngrainModelFields,
    camel_case,
    decode_ingrain,
)
from web.ingrain.settings import IngrainSettings
from web.ingrain.statistics import model_statistics
from web.openai.limits import RequestLimit
from web.openai.text.door import Floats, vectors_of
from web.openai.text.fields import check_texts

ModelAction = Callable[[str], Coroutine[Any, Any, None]]

LIBRARY = "sentence_transformers"
"The library whose models this server runs."

CLIENT = "ingrain-client/"
"Begin of the header User-Agent of Ingrain's own client, whose lists have another form than before."

IngrainPort = Literal["all", "inference", "models"]
"""Requests that a port answers: all of them, as Ingrain's first server did, or those of one of its
two later servers."""

HEALTH: Mapping[IngrainPort, str] = {
    "all": "The server is running.",
    "inference": "The inference server is running.",
    "models": "The model server is running.",
}
"Message of `GET /health`, which is compared by clients."


class IngrainDoor:
    """Handles the requests of one port."""

    def __init__(
        self,
        embedders: Embedders,
        registry: ModelRegistry,
        settings: IngrainSettings,
        download: ModelAction,
        delete: ModelAction,
        limit: RequestLimit,
        port: IngrainPort,
    ) -> None:
        """`download`: fetches a model into the models folder. `delete`: removes a model from the
        disk. `limit`: limit of requests for embeddings."""
        self._embedders, self._registry, self._settings = embedders, registry, settings
        self._download, self._delete = download, delete
        self._limit, self._port = limit, port

    async def health(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /health`."""
        return _message(HEALTH[self._port])

    async def load(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /load_model` and `POST /load_sentence_transformer_model`. Raises NotFound,
        RequestError, EngineError, OverloadedError."""
        fields = decode_ingrain(await request.read(), IngrainModelFields)
        if fields.library not in (None, LIBRARY) or fields.pretrained:
            raise _unsupported_library(fields.library or "open_clip")
        model = self._find(fields.model)
        if model is None and self._settings.has_downloads:
            await while_connected(request, self._download(fields.model))
            model = self._find(fields.model)
        if model is None:
            raise _unknown(fields.model, self._embedders)
        if model.loaded is not None:
            return _message(f"Model {fields.model} is already loaded.")
        with model.in_use():
            await model.load()
        return _message(f"Model {fields.model} loaded successfully.")

    async def load_other(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /load_clip_model` and `POST /load_timm_model`. Raises RequestError: this
        server has no such models."""
        fields = decode_ingrain(await request.read(), IngrainModelFields)
        raise _unsupported_library(
            fields.library or ("timm" if "timm" in request.path else "open_clip")
        )

    async def unload(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /unload_model`. Raises NotFound, Conflict."""
        fields = decode_ingrain(await request.read(), IngrainModelFields)
        model = self._find(fields.model)
        if model is None and not fields.is_first_generation:
            raise _unknown(fields.model, self._embedders)
        if model is None or model.loaded is None:
            return _message(f"Model {fields.model} is not loaded.")
        await self._registry.unload(model)
        return _message(f"Model {fields.model} unloaded successfully.")

    async def delete(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /delete_model` and `DELETE /delete_model`. Raises NotFound, Conflict."""
        fields = decode_ingrain(await request.read(), IngrainModelFields)
        model = self._find(fields.model)
        if model is not None:
            await self._delete(model.offer.name)
        elif not fields.is_first_generation:
            raise _unknown(fields.model, self._embedders)
        return _message(f"Model {fields.model} deleted successfully.")

    async def loaded_models(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /loaded_models`."""
        names = [
            _shown_name(listing)
            for listing in self._embedders.listing()
            if listing.state == "loaded"
        ]
        if self._is_later_generation(request):
            return _json({"models": [{"name": name, "library": LIBRARY} for name in names]})
        return _json({"models": names})

    async def repository_models(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /repository_models`."""
        library = {"library": LIBRARY} if self._is_later_generation(request) else {}
        models = [
            {
                "name": _shown_name(listing),
                **library,
                "state": "READY" if listing.state == "loaded" else "UNAVAILABLE",
            }
            for listing in self._embedders.listing()
            if listing.state != "unusable"
        ]
        return _json({"models": models})

    async def embedding_size(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /model_embedding_size`. Raises NotFound, RequestError."""
        name = request.query.get("name", "")
        model = self._find(name)
        if model is None:
            raise _unknown(name, self._embedders)
        return _json({"embeddingSize": model.info.dimensions})

    async def classification_labels(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /model_classification_labels`. Raises NotFound, RequestError: no model of
        this server classifies."""
        name = request.query.get("name", "")
        if self._find(name) is None:
            raise _unknown(name, self._embedders)
        raise RequestError(f"Model {name[:64]} does not support classification.")

    async def embed_text(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /infer_text` and `POST /embed_text`. Raises RequestError, OverloadedError,
        EngineError."""
        fields, began_s = decode_ingrain(await request.read(), IngrainEmbedFields), perf_counter()
        if fields.texts is None:
            raise RequestError(
                "Missing required parameter: 'text'.",
                code="missing_required_parameter",
                param="text",
            )
        rows = await while_connected(request, self._vectors(fields, fields.texts))
        name = "embedding" if fields.is_first_generation else "embeddings"
        return _json({name: rows, "processingTimeMs": _passed_ms(began_s)})

    async def embed_image(self, request: aioweb.Request) -> aioweb.Response:
        """Handles the paths for images. Raises RequestError: no model of this server takes
        images."""
        fields = decode_ingrain(await request.read(), IngrainEmbedFields)
        self._loaded(fields.model)
        raise _no_images(fields.model)

    async def embed(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /infer` and `POST /embed`. Raises RequestError, OverloadedError,
        EngineError."""
        fields, began_s = decode_ingrain(await request.read(), IngrainEmbedFields), perf_counter()
        self._loaded(fields.model)
        if fields.image is not None:
            raise _no_images(fields.model)
        answer: dict[str, Any] = {}
        if fields.texts is not None:
            name = "text_embeddings" if fields.is_first_generation else "textEmbeddings"
            answer[name] = await while_connected(request, self._vectors(fields, fields.texts))
        return _json({**answer, "processingTimeMs": _passed_ms(began_s)})

    async def metrics(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /metrics`: statistics of the loaded models."""
        is_later = self._is_later_generation(request)
        models = []
        for listing in self._embedders.listing():
            model = self._embedders.get(listing.offer.name)
            if model is not None and model.loaded is not None:
                shown = _shown_name(listing)
                name = f"{shown}/text_encoder" if is_later else shown.replace("/", "_")
                models.append(model_statistics(name, model.loaded.statistics))
        answer = {"model_stats": models}
        return _json(camel_case(answer) if is_later else answer)

    async def _vectors(self, fields: IngrainEmbedFields, texts: Sequence[str]) -> list[list[float]]:
        """Returns the vectors of the texts. A text that is too long is cut."""
        model = self._loaded(fields.model)
        if not texts:
            return []
        check_texts("text", texts)
        size = model.info.dimensions
        if fields.n_dims is not None and fields.n_dims > size:
            raise RequestError(
                f"Invalid value for 'n_dims': {fields.n_dims}. Allowed: 1 to {size}.",
                code="invalid_value",
                param="n_dims",
            )
        async with self._limit.take():
            vectors = await vectors_of(model, texts, is_cut=True)
        return [_shaped(row, fields).tolist() for row in vectors.rows]

    def _loaded(self, name: str) -> Embedder:
        """Returns a model that a client has loaded. Raises RequestError: Ingrain loads no model by
        itself."""
        model = self._find(name)
        if model is None or model.loaded is None:
            raise RequestError(
                f"Model {name[:64]} is not loaded. Load the model first using /load_model.",
                code="model_not_loaded",
                param="name",
            )
        return model

    def _find(self, name: str) -> Embedder | None:
        """Returns the model with this name. sentence-transformers' own models are also known
        without the name of their organisation."""
        return self._embedders.get(name) or self._embedders.get(name.rpartition("/")[2])

    def _is_later_generation(self, request: aioweb.Request) -> bool:
        is_client = request.headers.get("User-Agent", "").startswith(CLIENT)
        return is_client or self._port == "models"


def _shown_name(listing: ModelListing) -> str:
    """Returns the name of a model on its hub, if its folder's name tells it."""
    aliases = listing.offer.aliases
    return aliases[0] if aliases and "/" in aliases[0] else listing.offer.name


def _shaped(row: Floats, fields: IngrainEmbedFields) -> Floats:
    """Returns a vector as long as the request asks for, and normalised if it asks for that."""
    row = row[: fields.n_dims]
    if fields.normalize:
        row = row / np.maximum(np.linalg.norm(row), 1e-12)
    return row


def _passed_ms(began_s: float) -> float:
    return 1000 * (perf_counter() - began_s)


def _unknown(name: str, embedders: Embedders) -> NotFound:
    names = ", ".join(embedders) or "none: no model for embeddings is installed"
    return NotFound(
        f"Model {name[:64]} not found. Models of this server: {names}.",
        code="model_not_found",
        param="name",
    )


def _unsupported_library(library: str) -> RequestError:
    return RequestError(
        f"Models of {library} are not supported; this server has models of {LIBRARY}.",
        code="unsupported_operation",
        param="library",
    )


def _no_images(name: str) -> RequestError:
    return RequestError(
        f"Model {name[:64]} does not support image inference.",
        code="unsupported_operation",
        param="image",
    )


def _message(text: str) -> aioweb.Response:
    return _json({"message": text})


def _json(body: Mapping[str, Any]) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(body), content_type=JSON)
