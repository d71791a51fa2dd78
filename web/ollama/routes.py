"""Lists the routes of Ollama's REST API."""

from functools import partial

from core.access.named_key import KeyScope
from core.http.routes import HttpMethod, Route, RouteHandler
from web.ollama.door import OllamaDoor
from web.ollama.fields import (
    OllamaChatFields,
    OllamaEmbeddingsFields,
    OllamaEmbedFields,
    OllamaGenerateFields,
    OllamaModelFields,
    OllamaPullFields,
)
from web.ollama.models import OllamaModelsDoor

_TAG = "ollama"
_ERRORS = (
    "answer_format_broken",
    "client_gone",
    "context_length_exceeded",
    "draining",
    "engine_failed",
    "engine_timeout",
    "invalid_image",
    "invalid_json",
    "invalid_value",
    "missing_required_parameter",
    "missing_scope",
    "model_not_found",
    "refused_by_model",
    "too_many_requests",
    "unsupported_parameter",
)

_BODY_ERRORS = ("invalid_json", "invalid_value", "missing_required_parameter")
_TEXT_ERRORS = (
    *_BODY_ERRORS,
    "array_above_max_length",
    "client_gone",
    "context_length_exceeded",
    "empty_string",
    "engine_crashed",
    "engine_failed",
    "engine_timeout",
    "model_not_found",
    "server_full",
    "string_above_max_length",
)


def ollama_routes(door: OllamaDoor, models: OllamaModelsDoor) -> tuple[Route, ...]:
    """Returns the routes. Their errors have Ollama's form."""
    read = partial(_route, "GET", scope="talk")
    talk = partial(_route, "POST", scope="talk")
    change = partial(_route, "POST", scope="models")
    return (
        talk("/api/chat", door.chat, "Answer a conversation", OllamaChatFields, _ERRORS),
        talk("/api/generate", door.generate, "Answer one question", OllamaGenerateFields, _ERRORS),
        talk(
            "/api/show",
            models.show,
            "Show what a model can do",
            OllamaModelFields,
            (*_BODY_ERRORS, "model_not_found"),
        ),
        read("/api/tags", models.tags, "List the models for chats, embeddings and reranking"),
        read("/api/ps", models.running, "List the models that are ready"),
        read("/api/version", door.version, "Show the version of this server"),
        change(
            "/api/embed",
            models.embed,
            "Convert texts to vectors of length 1",
            OllamaEmbedFields,
            _TEXT_ERRORS,
        ),
        change(
            "/api/embeddings",
            models.embeddings,
            "Convert one text to a vector",
            OllamaEmbeddingsFields,
            _TEXT_ERRORS,
        ),
        change(
            "/api/pull",
            models.pull,
            "Download a model and stream the progress, one JSON object per line",
            OllamaPullFields,
            (
                *_BODY_ERRORS,
                "client_gone",
                "download_failed",
                "model_unknown",
                "too_many_downloads",
            ),
        ),
        _route(
            "DELETE",
            "/api/delete",
            models.delete,
            "Remove a model from the disk",
            OllamaModelFields,
            (*_BODY_ERRORS, "model_busy", "model_in_use", "model_not_found", "model_pinned"),
            scope="models",
        ),
    )


def _route(
    method: HttpMethod,
    path: str,
    handler: RouteHandler,
    summary: str,
    request: type | None = None,
    error_codes: tuple[str, ...] = (),
    *,
    scope: KeyScope,
) -> Route:
    return Route(
        method,
        path,
        handler,
        f"{summary}, for clients of Ollama.",
        _TAG,
        request=request,
        error_codes=error_codes,
        has_plain_errors=True,
        scope=scope,
    )
