"""Serves Ingrain's HTTP API with the models for embeddings of this server: those of texts, and
those of texts and images."""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal

import msgspec
import numpy as np
from aiohttp import web as aioweb

from core.errors import Conflict, NotFound, RequestError
from core.http.client_connection import while_connected
from core.http.routes import JSON
from engines.registry import EngineKind
from serving.models.registry import ModelListing, ModelRegistry
from serving.remote.models import RemoteModel, RemoteModels
from serving.scheduling.statistics import CallStatistics, DurationSum
from serving.text.model import Clips, Embedder, Embedders, ServedClip, ServedTextModel
from web.images import RequestImages, places
from web.ingrain.fields import (
    HUB_PREFIX,
    IngrainEmbedFields,
    IngrainModelFields,
    Library,
    camel_case,
    decode_ingrain,
)
from web.ingrain.settings import IngrainSettings
from web.openai.limits import RequestLimit
from web.openai.text.door import clip_vectors_of, vectors_of
from web.openai.text.fields import check_texts
from web.openai.text.results import Floats, remote_vectors

Json = Mapping[str, object]


def model_statistics(name: str, found: CallStatistics) -> Json:
    """Returns the statistics of one model, with names in snake_case."""
    nothing = DurationSum()
    return {
        "name": name,
        "version": "1",
        "last_inference": str(found.last_ms),
        "inference_count": str(found.success.count),
        "execution_count": str(found.calls.count),
        "inference_stats": {
            "success": _duration(found.success),
            "fail": _duration(found.failure),
            "queue": _duration(found.queue),
            "compute_input": _duration(nothing),
            "compute_infer": _duration(found.compute),
            "compute_output": _duration(nothing),
            "cache_hit": _duration(nothing),
            "cache_miss": _duration(nothing),
        },
        "batch_stats": [
            {
                "batch_size": str(size),
                "compute_input": _duration(nothing),
                "compute_infer": _duration(calls),
                "compute_output": _duration(nothing),
            }
            for size, calls in sorted(found.by_batch_size.items())
        ],
    }


def _duration(found: DurationSum) -> Json:
    return {"count": str(found.count), "ns": str(found.ns)}


ModelAction = Callable[[str], Coroutine[Any, Any, None]]

TEXTS: Library = "sentence_transformers"
"Ingrain's library for models of texts (kind embed)."
IMAGES: Library = "open_clip"
"Ingrain's library for models of texts and images (kind clip)."

LIBRARIES: Mapping[EngineKind, Library] = {"embed": TEXTS, "clip": IMAGES}
"Library that Ingrain runs the models of a kind in."

BAD_IMAGE = "Invalid image. Please provide a valid image URL or a base64 encoded image."
"Beginning of Ingrain's error for an image."
BAD_IMAGE_CODES = ("image_too_large", "invalid_image")

SIZE_TEXT = "size"
"Text whose vector shows how long the vectors of another server's model are."

CLIENT = "ingrain-client/"
"Beginning of the header User-Agent of Ingrain's own client. Lists for it have the later form."

IngrainPort = Literal["all", "inference", "models"]
"""Requests that a port answers: all of them, as Ingrain's first server did, or those of one of its
two later servers."""

HEALTH: Mapping[IngrainPort, str] = {
    "all": "The server is running.",
    "inference": "The inference server is running.",
    "models": "The model server is running.",
}
"Message of `GET /health`. Clients compare it."


class IngrainDoor:
    """Handles the requests of one port."""

    def __init__(
        self,
        embedders: Embedders,
        clips: Clips,
        remote: RemoteModels,
        images: RequestImages,
        registry: ModelRegistry,
        settings: IngrainSettings,
        download: ModelAction,
        delete: ModelAction,
        limit: RequestLimit,
        port: IngrainPort,
    ) -> None:
        """`remote`: models of other servers; those for embeddings come before our own of the same
        name. `download`: fetches a model into the models folder. `delete`: removes a model from the
        disk. `limit`: limit of requests for embeddings. `images`: reads the images of
        requests."""
        self._embedders, self._clips, self._images = embedders, clips, images
        self._remote = remote
        self._registry, self._settings = registry, settings
        self._download, self._delete = download, delete
        self._limit, self._port = limit, port

    async def health(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /health`."""
        return _message(HEALTH[self._port])

    async def load(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /load_model`, `POST /load_sentence_transformer_model` and
        `POST /load_clip_model`. Raises NotFound, RequestError, EngineError, OverloadedError."""
        fields = decode_ingrain(await request.read(), IngrainModelFields)
        library = fields.library or (IMAGES if request.path.startswith("/load_clip") else None)
        if library == "timm":
            raise _no_timm()
        name = fields.lookup_name
        model = self._find(name)
        if model is None and self._settings.has_downloads:
            await while_connected(request, self._download(name))
            model = self._find(name)
        if model is None:
            raise self._unknown(name)
        its_library = TEXTS if isinstance(model, RemoteModel) else LIBRARIES[model.kind]
        if library not in (None, its_library):
            raise RequestError(
                f"Model {name[:64]} is one of {its_library}, not of {library}.",
                code="unsupported_operation",
                param="library",
            )
        title = fields.model
        if fields.pretrained:
            title += f" with checkpoint {fields.pretrained}"
        if isinstance(model, RemoteModel) or model.loaded is not None:
            return _message(f"Model {title} is already loaded.")
        with model.in_use():
            await model.load()
        return _message(f"Model {title} loaded successfully.")

    async def load_timm(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /load_timm_model`. Raises RequestError: this server has no such models."""
        decode_ingrain(await request.read(), IngrainModelFields)
        raise _no_timm()

    async def unload(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /unload_model`. Raises NotFound, Conflict."""
        fields = decode_ingrain(await request.read(), IngrainModelFields)
        model = self._find(fields.lookup_name)
        if model is None and not fields.is_first_generation:
            raise self._unknown(fields.lookup_name)
        if isinstance(model, RemoteModel):
            raise _elsewhere(model)
        if model is None or model.loaded is None:
            return _message(f"Model {fields.model} is not loaded.")
        await self._registry.unload(model)
        return _message(f"Model {fields.model} unloaded successfully.")

    async def delete(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /delete_model` and `DELETE /delete_model`. Raises NotFound, Conflict."""
        fields = decode_ingrain(await request.read(), IngrainModelFields)
        model = self._find(fields.lookup_name)
        if isinstance(model, RemoteModel):
            raise _elsewhere(model)
        if model is not None:
            await self._delete(model.offer.name)
        elif not fields.is_first_generation:
            raise self._unknown(fields.lookup_name)
        return _message(f"Model {fields.model} deleted successfully.")

    async def loaded_models(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /loaded_models`."""
        found = [
            (_shown_name(listing), library)
            for listing, library in self._listing()
            if listing.state == "loaded"
        ]
        found += [(name, TEXTS) for name in self._remote_names()]
        if self._is_later_generation(request):
            entries = [{"name": name, "library": library} for name, library in found]
            return _json({"models": entries})
        return _json({"models": [name for name, _ in found]})

    async def repository_models(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /repository_models`."""
        is_later = self._is_later_generation(request)
        models = [
            {
                "name": _shown_name(listing),
                **({"library": library} if is_later else {}),
                "state": "READY" if listing.state == "loaded" else "UNAVAILABLE",
            }
            for listing, library in self._listing()
            if listing.state != "unusable"
        ]
        models += [
            {"name": name, **({"library": TEXTS} if is_later else {}), "state": "READY"}
            for name in self._remote_names()
        ]
        return _json({"models": models})

    async def embedding_size(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /model_embedding_size`. Another server's model computes a text for that.
        Raises NotFound, RequestError, OverloadedError, EngineError."""
        name = request.query.get("name", "").removeprefix(HUB_PREFIX)
        model = self._find(name)
        if model is None:
            raise self._unknown(name)
        if isinstance(model, RemoteModel):
            (row,) = (await while_connected(request, remote_vectors(model, [SIZE_TEXT]))).rows
            return _json({"embeddingSize": len(row)})
        return _json({"embeddingSize": model.info.dimensions})

    async def classification_labels(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /model_classification_labels`. Raises NotFound, RequestError: no model of
        this server classifies."""
        name = request.query.get("name", "").removeprefix(HUB_PREFIX)
        if self._find(name) is None:
            raise self._unknown(name)
        raise _no_classes(name)

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
        """Handles `POST /infer_image` and `POST /embed_image`. Raises RequestError,
        OverloadedError, EngineError."""
        async with self._images.body(request) as body:
            fields, began_s = decode_ingrain(body, IngrainEmbedFields), perf_counter()
            if fields.images is None:
                raise RequestError(
                    "Missing required parameter: 'image'.",
                    code="missing_required_parameter",
                    param="image",
                )
            rows = await while_connected(request, self._image_vectors(fields, fields.images))
        name = "embedding" if fields.is_first_generation else "embeddings"
        return _json({name: rows, "processingTimeMs": _passed_ms(began_s)})

    async def classify_image(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /classify_image`. Raises RequestError: no model of this server
        classifies."""
        async with self._images.body(request) as body:
            fields = decode_ingrain(body, IngrainEmbedFields)
        self._loaded(fields)
        raise _no_classes(fields.model)

    async def embed(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /infer` and `POST /embed`. Raises RequestError, OverloadedError,
        EngineError."""
        async with self._images.body(request) as body:
            fields, began_s = decode_ingrain(body, IngrainEmbedFields), perf_counter()
            self._loaded(fields)
            names = ("text_embeddings", "image_embeddings")
            if not fields.is_first_generation:
                names = ("textEmbeddings", "imageEmbeddings")
            answer: dict[str, Any] = {}
            if fields.texts is not None:
                rows = await while_connected(request, self._vectors(fields, fields.texts))
                answer[names[0]] = rows
            if fields.images is not None:
                rows = await while_connected(request, self._image_vectors(fields, fields.images))
                answer[names[1]] = rows
        return _json({**answer, "processingTimeMs": _passed_ms(began_s)})

    async def metrics(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /metrics`: statistics of the loaded models."""
        is_later = self._is_later_generation(request)
        models = []
        for listing, library in self._listing():
            model = self._find(listing.offer.name)
            if isinstance(model, ServedTextModel) and model.loaded is not None:
                tower = "text_encoder" if library == TEXTS else "encoder"
                shown = _shown_name(listing)
                name = f"{shown}/{tower}" if is_later else shown.replace("/", "_")
                models.append(model_statistics(name, model.loaded.statistics))
        answer = {"model_stats": models}
        return _json(camel_case(answer) if is_later else answer)

    async def _vectors(self, fields: IngrainEmbedFields, texts: Sequence[str]) -> list[list[float]]:
        """Returns the vectors of the texts. A text that is too long is cut; another server does
        as it likes."""
        model = self._loaded(fields)
        if not texts:
            return []
        check_texts("text", texts)
        if isinstance(model, RemoteModel):
            vectors = await remote_vectors(model, texts)
            _check_length(fields, len(vectors.rows[0]))
            return [_shaped(row, fields).tolist() for row in vectors.rows]
        _check_length(fields, model.info.dimensions)
        async with self._limit.take():
            if isinstance(model, ServedClip):
                vectors = await clip_vectors_of(model, texts, is_cut=True, param="text")
            else:
                vectors = await vectors_of(model, texts, is_cut=True, param="text")
        return [_shaped(row, fields).tolist() for row in vectors.rows]

    async def _image_vectors(
        self, fields: IngrainEmbedFields, images: Sequence[str]
    ) -> list[list[float]]:
        """Returns the vectors of the images."""
        model = self._loaded(fields)
        if not isinstance(model, ServedClip):
            raise _no_images(fields.model)
        _check_length(fields, model.info.dimensions)
        async with self._limit.take():
            try:
                references = dict(zip(places("image", len(images)), images, strict=True))
                files = await self._images.load(references, fields.image_download_headers)
                vectors = await clip_vectors_of(model, files, param="image")
            except RequestError as error:
                if error.code not in BAD_IMAGE_CODES:
                    raise
                message = f"{BAD_IMAGE} {error}"
                raise RequestError(message, code=error.code, param=error.param) from None
        return [_shaped(row, fields).tolist() for row in vectors.rows]

    def _listing(self) -> Iterator[tuple[ModelListing, Library]]:
        """Yields every model that this door offers, with its library."""
        for models, library in ((self._embedders, TEXTS), (self._clips, IMAGES)):
            for listing in models.listing():
                yield listing, library

    def _remote_names(self) -> list[str]:
        return [model.name for model in self._remote if model.kind == "embed"]

    def _loaded(self, fields: IngrainEmbedFields) -> Embedder | ServedClip | RemoteModel:
        """Returns a model that a client has loaded. Raises RequestError: Ingrain loads no model by
        itself."""
        model = self._find(fields.lookup_name)
        if model is None or (not isinstance(model, RemoteModel) and model.loaded is None):
            raise RequestError(
                f"Model {fields.model[:64]} is not loaded. Load the model first using /load_model.",
                code="model_not_loaded",
                param="name",
            )
        return model

    def _find(self, name: str) -> Embedder | ServedClip | RemoteModel | None:
        """Returns the model with this name. sentence-transformers' own models are also known
        without the name of their organisation."""
        return (
            self._remote.get("embed", name)
            or self._embedders.get(name)
            or self._clips.get(name)
            or self._embedders.get(name.rpartition("/")[2])
        )

    def _unknown(self, name: str) -> NotFound:
        names = ", ".join((*self._embedders, *self._clips, *self._remote_names()))
        return NotFound(
            f"Model {name[:64]} not found. Models of this server:"
            f" {names or 'none: no model for embeddings is installed'}.",
            code="model_not_found",
            param="name",
        )

    def _is_later_generation(self, request: aioweb.Request) -> bool:
        is_client = request.headers.get("User-Agent", "").startswith(CLIENT)
        # Only the first server had one port for everything.
        return is_client or self._port != "all"


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


def _check_length(fields: IngrainEmbedFields, size: int) -> None:
    """Raises RequestError if the request asks for longer vectors than the model's, which have
    `size` numbers."""
    if fields.n_dims is not None and fields.n_dims > size:
        raise RequestError(
            f"Invalid value for 'n_dims': {fields.n_dims}. Allowed: 1 to {size}.",
            code="invalid_value",
            param="n_dims",
        )


def _elsewhere(model: RemoteModel) -> Conflict:
    return Conflict(f"Model {model.name} is loaded by another server.", code="model_is_remote")


def _no_timm() -> RequestError:
    return RequestError(
        f"Models of timm are not supported; this server has models of {TEXTS} and {IMAGES}.",
        code="unsupported_operation",
        param="library",
    )


def _no_classes(name: str) -> RequestError:
    return RequestError(
        f"Model {name[:64]} does not support classification.",
        code="unsupported_operation",
        param="name",
    )


def _no_images(name: str) -> RequestError:
    return RequestError(
        f"Model {name[:64]} does not support image inference.",
        code="unsupported_operation",
        param="image",
    )


def _message(text: str) -> aioweb.Response:
    return _json({"message": text})


def _json(body: Mapping[str, object]) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(body), content_type=JSON)
