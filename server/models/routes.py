"""HTTP routes that load, unload, pin, download and remove models (extension of OpenAI's
`/v1/models`)."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import msgspec
from aiohttp import web as aioweb
from msgspec import Meta, Struct

from core.errors import Conflict, EngineMissing, NotFound
from core.http.routes import JSON, Route
from server.models.errors import ModelsError
from server.models.inventory import ModelFolder, find_installed, installed, remove
from server.models.pulls import MAX_NAME_CHARS, ModelPull, ModelPulls
from server.models.wheel import wheel_of
from serving.models.catalogue import CatalogueEntry, CatalogueKind, entries
from serving.models.model import AnyModel
from serving.models.registry import ModelRegistry
from web.openai.json_body import decode_json, read_json
from web.openai.models import ModelCard, ModelCardSource, model
from web.openai.transcriptions.sse import SseResponse

_TAG = "models"
_UNKNOWN = ("model_not_found",)
_KEPT = ("model_busy", "model_is_default", "model_pinned")
_LOAD = ("engine_busy", "engine_crashed", "engine_failed", "engine_missing")


class PullRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A model to download."""

    model: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    """Name of the catalogue, a voice (`piper:en_US-lessac-medium`, `hibari:emma`, `kokoro`), or
    `organisation/repository` of the hub."""
    stream: bool = True
    "False: answer at once. `GET /v1/models/pull` then reports the progress."


class AvailableModel(Struct, frozen=True):
    """One model of the catalogue."""

    name: str
    kind: CatalogueKind
    size_bytes: int
    "Size of the download, rounded."
    languages: str
    "Languages that it knows, as text."
    is_multilingual: bool
    suits: str
    "Purpose and hardware that it is suitable for, as text."
    is_installed: bool
    is_on_package_index: bool
    "True: it can also be fetched without a hub."


class Downloads(Struct, frozen=True):
    """Models that can be downloaded, the downloads, and the free space for them."""

    available: tuple[AvailableModel, ...]
    pulls: tuple[ModelPull, ...]
    free_bytes: int
    "Free space of the disk of the models folder."


class FolderRemoval:
    """Removes models from the models folder while the server runs."""

    def __init__(
        self, registry: ModelRegistry, models_dir: Path, kind_using: Callable[[Path], str]
    ) -> None:
        """`kind_using`: returns the kind of the engine that was chosen at start and uses this
        folder; empty if none does."""
        self._registry, self._models_dir, self._kind_using = registry, models_dir, kind_using

    async def remove(self, name: str) -> None:
        """Unloads a model and removes it from the disk. Raises NotFound model_not_found, Conflict
        if it is in use."""
        try:
            folder = await asyncio.to_thread(find_installed, self._models_dir, name)
        except ModelsError as error:
            raise NotFound(str(error), code="model_not_found", param="model") from None
        if kind := self._kind_using(folder.path):
            message = f"{folder.path.name} is what this server uses ({kind}); choose another first"
            raise Conflict(message, code="model_in_use")
        served = self._registry.find(name)
        if served is not None:
            await self._registry.unload(served)
        await asyncio.to_thread(remove, folder)
        self._registry.expire()


class ModelsDoor:
    """Handlers of the models' routes."""

    def __init__(
        self,
        registry: ModelRegistry,
        pulls: ModelPulls,
        models_dir: Path,
        cards: ModelCardSource,
        removal: FolderRemoval,
    ) -> None:
        self._registry, self._pulls, self._models_dir = registry, pulls, models_dir
        self._cards, self._removal = cards, removal

    async def load(self, request: aioweb.Request) -> aioweb.Response:
        """Loads a model and answers when it is loaded. Callers that load the same model share the
        load."""
        found = self._model(request)
        with found.in_use():
            await found.load()
        return self._card(found)

    async def unload(self, request: aioweb.Request) -> aioweb.Response:
        """Unloads a model and answers when its memory is free."""
        found = self._model(request)
        await self._registry.unload(found)
        return self._card(found)

    async def pin(self, request: aioweb.Request) -> aioweb.Response:
        """Keeps a model in memory from its next load on."""
        found = self._model(request)
        self._registry.pin(found)
        return self._card(found)

    async def unpin(self, request: aioweb.Request) -> aioweb.Response:
        """Ends `pin`."""
        found = self._model(request)
        self._registry.unpin(found)
        return self._card(found)

    async def remove(self, request: aioweb.Request) -> aioweb.Response:
        """Removes a model from the disk. It is unloaded before, if it is loaded."""
        await self._removal.remove(request.match_info["model"])
        return aioweb.Response(status=204)

    async def download(self, name: str) -> None:
        """Downloads a model, and waits for the end. The download goes on if the caller does not.

        Raises NotFound, RequestError, OverloadedError, and EngineMissing if the download fails.
        """
        pull = self._pulls.start(name)
        async with aclosing(self._pulls.events(name)) as states:
            async for state in states:
                pull = state
        if pull.state != "done":
            raise EngineMissing("model", name[:64], pull.message or f"its download {pull.state}")

    async def downloads(self, _: aioweb.Request) -> aioweb.Response:
        """Lists the catalogue, the downloads and the free space."""
        folders = await asyncio.to_thread(installed, self._models_dir)
        return _json(
            Downloads(
                tuple(_available(entry, folders) for entry in entries()),
                self._pulls.pulls,
                await asyncio.to_thread(_free_bytes, self._models_dir),
            )
        )

    async def pull(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Starts a download, or joins the one that runs. It goes on if the client disconnects."""
        pull_request = decode_json(await read_json(request), PullRequest)
        pull = self._pulls.start(pull_request.model)
        if not pull_request.stream:
            return _json(pull)
        events = SseResponse(request)
        async with aclosing(self._pulls.events(pull_request.model)) as states:
            async for state in states:
                await events.send(state)
        return await events.end()

    async def cancel(self, request: aioweb.Request) -> aioweb.Response:
        """Cancels a download."""
        await self._pulls.cancel(request.match_info["model"])
        return aioweb.Response(status=204)

    def _model(self, request: aioweb.Request) -> AnyModel:
        name = request.match_info["model"]
        found = self._registry.find(name)
        if found is None:
            known = ", ".join(card.id for card in self._cards.cards())
            raise NotFound(
                f"No model {name[:64]!r} can be loaded or unloaded. Known models: {known}.",
                code="model_not_found",
                param="model",
            )
        return found

    def _card(self, found: AnyModel) -> aioweb.Response:
        return model(self._cards, found.offer.name)


def model_routes(door: ModelsDoor) -> tuple[Route, ...]:
    """Returns the routes of loading, downloading and removing."""
    changes = (
        ("load", door.load, "Load a model, and answer when it is loaded.", _LOAD),
        ("unload", door.unload, "Unload a model, and answer when its memory is free.", _KEPT),
        ("pin", door.pin, "Keep a model in memory from its next load on.", ()),
        ("unpin", door.unpin, "Allow again to unload a model.", ("model_is_default",)),
    )
    return (
        *(
            Route(
                "POST",
                f"/v1/models/{{model}}/{name}",
                handler,
                summary,
                _TAG,
                responses={200: ModelCard},
                error_codes=(*_UNKNOWN, *codes),
                scope="models",
            )
            for name, handler, summary, codes in changes
        ),
        Route(
            "DELETE",
            "/v1/models/{model}",
            door.remove,
            "Remove a model from the disk. It is unloaded before.",
            _TAG,
            responses={204: None},
            error_codes=(*_UNKNOWN, *_KEPT, "model_in_use"),
            scope="models",
        ),
        Route(
            "GET",
            "/v1/models/pull",
            door.downloads,
            "List the models that can be downloaded, and the downloads that run or ended lately.",
            _TAG,
            responses={200: Downloads},
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/models/pull",
            door.pull,
            "Download a model. Its progress is streamed as server-sent events, each a ModelPull.",
            _TAG,
            request=PullRequest,
            responses={200: ModelPull},
            error_codes=(
                "invalid_json",
                "invalid_value",
                "missing_required_parameter",
                "model_unknown",
                "too_many_downloads",
                "unsupported_media_type",
            ),
            scope="models",
        ),
        Route(
            "DELETE",
            "/v1/models/pull/{model}",
            door.cancel,
            "Cancel a download. Another one continues where it stopped.",
            _TAG,
            responses={204: None},
            error_codes=("download_not_found",),
            scope="models",
        ),
    )


def _available(entry: CatalogueEntry, folders: tuple[ModelFolder, ...]) -> AvailableModel:
    folder_kind = "model" if entry.kind == "asr" else entry.kind
    return AvailableModel(
        entry.name,
        entry.kind,
        entry.size_mb * 1_000_000,
        entry.languages if entry.is_multilingual else "English",
        entry.is_multilingual,
        entry.suits,
        any(folder.name == entry.name and folder.kind == folder_kind for folder in folders),
        wheel_of(entry) is not None,
    )


def _free_bytes(folder: Path) -> int:
    """Returns the free space of the disk on which a folder is, or would be."""
    while not folder.is_dir() and folder.parent != folder:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _json(body: Struct) -> aioweb.Response:
    return aioweb.Response(
        body=msgspec.json.encode(body), content_type=JSON, headers={"Cache-Control": "no-store"}
    )
