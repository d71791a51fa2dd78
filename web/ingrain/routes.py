"""Lists the routes of Ingrain's HTTP API."""

from collections.abc import Sequence

from core.http.routes import HttpMethod, Route, RouteHandler
from web.images import MAX_BODY_BYTES
from web.ingrain.door import IngrainDoor, IngrainPort
from web.ingrain.fields import IngrainEmbedFields, IngrainModelFields
from web.ingrain.settings import IngrainSettings

_TAG = "ingrain"
_LOAD = (
    "engine_busy",
    "engine_crashed",
    "engine_failed",
    "engine_missing",
    "invalid_json",
    "invalid_value",
    "missing_required_parameter",
    "model_not_found",
    "server_full",
    "unsupported_operation",
)
_REMOVE = (
    "invalid_json",
    "invalid_value",
    "missing_required_parameter",
    "model_busy",
    "model_in_use",
    "model_is_remote",
    "model_not_found",
    "model_pinned",
)
_EMBED = (
    "array_above_max_length",
    "client_gone",
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
    "model_not_loaded",
    "refused_by_model",
    "server_full",
    "string_above_max_length",
    "too_large",
    "too_many_requests",
    "unsupported_operation",
)

_Entry = tuple[HttpMethod, str, RouteHandler, str, type | None, tuple[str, ...]]


def ingrain_routes(
    door: IngrainDoor, settings: IngrainSettings, port: IngrainPort
) -> tuple[Route, ...]:
    """Returns the routes of one port. Their errors have the form of FastAPI, `{"detail": ...}`."""
    entries: list[_Entry] = [
        ("GET", "/health", door.health, "Say that the server is running.", None, ())
    ]
    if port != "models":
        entries += _inference(door)
    if port != "inference":
        entries += _models(door)
    return tuple(
        Route(
            method,
            path,
            handler,
            summary,
            _TAG,
            request=request,
            error_codes=codes,
            has_plain_errors=True,
            error_field="detail",
            admits_peer=settings.admits,
            query={"name": "Name of the model."} if path.startswith("/model_") else {},
            scope="models",
            max_body_bytes=MAX_BODY_BYTES if request is IngrainEmbedFields else None,
        )
        for method, path, handler, summary, request, codes in entries
    )


def _inference(door: IngrainDoor) -> Sequence[_Entry]:
    text, image, both = (
        f"Convert {what} to vectors. The model must be loaded."
        for what in ("texts", "images", "texts and images")
    )
    classes = "Refuse: no model of this server classifies."
    work = (
        ("/infer_text", door.embed_text, text),
        ("/embed_text", door.embed_text, text),
        ("/infer_image", door.embed_image, image),
        ("/embed_image", door.embed_image, image),
        ("/classify_image", door.classify_image, classes),
        ("/infer", door.embed, both),
        ("/embed", door.embed, both),
    )
    posts: list[_Entry] = [
        ("POST", path, handler, summary, IngrainEmbedFields, _EMBED)
        for path, handler, summary in work
    ]
    summary = "Show statistics of the loaded models, in the form of Triton's."
    return [*posts, ("GET", "/metrics", door.metrics, summary, None, ())]


def _models(door: IngrainDoor) -> Sequence[_Entry]:
    load = "Load a model, and answer when it is loaded."
    timm = "Refuse a model of timm."
    unload, delete = "Unload a model.", "Unload a model, and remove it from the disk."
    changes: tuple[tuple[HttpMethod, str, RouteHandler, str, tuple[str, ...]], ...] = (
        ("POST", "/load_model", door.load, load, _LOAD),
        ("POST", "/load_sentence_transformer_model", door.load, load, _LOAD),
        ("POST", "/load_clip_model", door.load, load, _LOAD),
        ("POST", "/load_timm_model", door.load_timm, timm, _LOAD),
        ("POST", "/unload_model", door.unload, unload, _REMOVE),
        ("POST", "/delete_model", door.delete, delete, _REMOVE),
        ("DELETE", "/delete_model", door.delete, delete, _REMOVE),
    )
    lists = (
        ("/loaded_models", door.loaded_models, "List the loaded models.", ()),
        ("/repository_models", door.repository_models, "List the models of the folder.", ()),
        (
            "/model_embedding_size",
            door.embedding_size,
            "Show the length of a model's vectors.",
            ("engine_failed", "engine_timeout", "engine_unreachable", "model_not_found"),
        ),
        (
            "/model_classification_labels",
            door.classification_labels,
            "Refuse: no model of this server classifies.",
            ("invalid_request", "model_not_found"),
        ),
    )
    return [
        *(
            (method, path, handler, summary, IngrainModelFields, codes)
            for method, path, handler, summary, codes in changes
        ),
        *(("GET", path, handler, summary, None, codes) for path, handler, summary, codes in lists),
    ]
