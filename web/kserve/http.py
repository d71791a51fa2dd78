"""KServe's protocol over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from typing import Any

import msgspec
from aiohttp import web as aioweb
from msgspec import Struct

from core.access.named_key import KeyScope
from core.http.client_connection import while_connected
from core.http.routes import JSON, Route
from web.images import read_body
from web.kserve.json_body import HEADER_LENGTH, InferFields, decode_infer, encode_infer
from web.kserve.service import KserveService
from web.kserve.settings import KserveSettings
from web.openai.json_body import decode_json

_TAG = "kserve"
_UNKNOWN = ("model_not_found",)
_LOAD = (*_UNKNOWN, "engine_busy", "engine_crashed", "engine_failed", "engine_missing")
_UNLOAD = (*_UNKNOWN, "model_busy", "model_is_default", "model_is_remote", "model_pinned")
_INFER = (
    *_LOAD,
    "client_gone",
    "context_length_exceeded",
    "draining",
    "empty_array",
    "empty_string",
    "engine_timeout",
    "engine_unreachable",
    "invalid_json",
    "invalid_value",
    "missing_required_parameter",
    "refused_by_model",
    "server_full",
    "string_above_max_length",
    "too_large",
    "too_many_requests",
    "unsupported_language",
    "unsupported_parameter",
)

Handler = Callable[[aioweb.Request], Awaitable[aioweb.Response]]


class IndexFields(Struct, frozen=True):
    """Body of a request for the list of models."""

    ready: bool = False
    "True: only models that are loaded."


class KserveHttpDoor:
    """Handles the requests."""

    def __init__(self, service: KserveService, settings: KserveSettings) -> None:
        self._service, self._settings = service, settings

    @property
    def max_body_bytes(self) -> int:
        """Largest request in bytes."""
        return self._settings.max_message_bytes

    async def live(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v2/health/live`."""
        return aioweb.Response()

    async def ready(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v2/health/ready`."""
        return _state(self._service.is_ready())

    async def server(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v2`."""
        return _json(self._service.server_metadata())

    async def metadata(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v2/models/{model}`."""
        return _json(self._service.metadata(*_model(request)))

    async def model_ready(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v2/models/{model}/ready`."""
        return _state(self._service.is_model_ready(*_model(request)))

    async def config(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v2/models/{model}/config`."""
        fields = self._service.config(*_model(request))
        for tensor in (*fields["input"], *fields["output"]):
            name = tensor["data_type"]
            tensor["data_type"] = f"TYPE_{'STRING' if name == 'BYTES' else name}"
        return _json(fields)

    async def statistics(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v2/models/stats` and `GET /v2/models/{model}/stats`."""
        return _json(self._service.statistics(*_model(request)))

    async def infer(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v2/models/{model}/infer`."""
        return await while_connected(request, self._infer(request))

    async def index(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v2/repository/index`."""
        body = await request.read()
        fields = decode_json(body, IndexFields) if body else IndexFields()
        return _json(self._service.index(only_ready=fields.ready))

    async def load(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v2/repository/models/{model}/load`."""
        await self._service.load(request.match_info["model"])
        return aioweb.Response()

    async def unload(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v2/repository/models/{model}/unload`."""
        await self._service.unload(request.match_info["model"])
        return aioweb.Response()

    async def _infer(self, request: aioweb.Request) -> aioweb.Response:
        arrived_ns = perf_counter_ns()
        with self._service.place():
            body = await read_body(request, self.max_body_bytes)
            decoded = await asyncio.to_thread(
                decode_infer, *_model(request), body, request.headers.get(HEADER_LENGTH)
            )
            response = await self._service.infer(decoded.request, request.remote or "", arrived_ns)
            answer, json_bytes = encode_infer(response, decoded)
        if json_bytes is None:
            return aioweb.Response(body=answer, content_type=JSON)
        headers = {HEADER_LENGTH: str(json_bytes)}
        return aioweb.Response(
            body=answer, content_type="application/octet-stream", headers=headers
        )


def kserve_routes(
    door: KserveHttpDoor, settings: KserveSettings, *, has_own_port: bool
) -> tuple[Route, ...]:
    """Returns the routes. `has_own_port`: they are those of the port whose clients may need no
    key."""
    admits_peer = settings.admits if has_own_port else None

    def route(
        path: str, handler: Handler, summary: str, *, codes: tuple[str, ...] = (), **options: Any
    ) -> Route:
        scope: KeyScope = "models"
        return Route(
            options.pop("method", "GET"),
            path,
            handler,
            f"{summary}, for clients of KServe.",
            _TAG,
            error_codes=codes,
            has_plain_errors=True,
            admits_peer=admits_peer,
            scope=scope,
            **options,
        )

    def of_model(path: str) -> list[Route]:
        infer = {
            "method": "POST",
            "request": InferFields,
            "max_body_bytes": door.max_body_bytes,
            "response_headers": {HEADER_LENGTH: "Number of bytes of the JSON, if others follow."},
        }
        return [
            route(path, door.metadata, "Show inputs and outputs of a model", codes=_UNKNOWN),
            route(f"{path}/ready", door.model_ready, "Show if a model is loaded", codes=_UNKNOWN),
            route(f"{path}/config", door.config, "Show how a model is set up", codes=_UNKNOWN),
            route(f"{path}/stats", door.statistics, "Show times of a model", codes=_UNKNOWN),
            route(f"{path}/infer", door.infer, "Compute tensors", codes=_INFER, **infer),
        ]

    post: dict[str, Any] = {"method": "POST"}
    model = "/v2/repository/models/{model}"
    index = {**post, "request": IndexFields}
    return (
        route("/v2", door.server, "Show name and version of this server"),
        route("/v2/health/live", door.live, "Show that the server runs"),
        route("/v2/health/ready", door.ready, "Show if the server can compute"),
        route("/v2/models/stats", door.statistics, "Show times of all models"),
        *of_model("/v2/models/{model}"),
        *of_model("/v2/models/{model}/versions/{version}"),
        route(
            "/v2/repository/index", door.index, "List all models", codes=("invalid_json",), **index
        ),
        route(f"{model}/load", door.load, "Load a model", codes=_LOAD, **post),
        route(f"{model}/unload", door.unload, "Unload a model", codes=_UNLOAD, **post),
    )


def _model(request: aioweb.Request) -> tuple[str, str]:
    """Returns name and version of the model in the path; empty if there is none."""
    return request.match_info.get("model", ""), request.match_info.get("version", "")


def _state(is_ready: bool) -> aioweb.Response:
    """Answers a question for readiness: clients read the status alone."""
    return aioweb.Response(status=200 if is_ready else 400)


def _json(fields: object) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(fields), content_type=JSON)
