"""Lists the routes of Ollama's REST API."""

from core.http.routes import Route
from web.ollama.door import OllamaDoor
from web.ollama.fields import OllamaChatFields, OllamaGenerateFields, OllamaShowFields

_TAG = "ollama"
_ERRORS = (
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


def ollama_routes(door: OllamaDoor) -> tuple[Route, ...]:
    """Returns the routes. Their errors have Ollama's form."""
    chats = (
        Route(
            "POST",
            "/api/chat",
            door.chat,
            "Answer a conversation, for clients of Ollama.",
            _TAG,
            request=OllamaChatFields,
            error_codes=_ERRORS,
            has_plain_errors=True,
            scope="talk",
        ),
        Route(
            "POST",
            "/api/generate",
            door.generate,
            "Answer one question, for clients of Ollama.",
            _TAG,
            request=OllamaGenerateFields,
            error_codes=_ERRORS,
            has_plain_errors=True,
            scope="talk",
        ),
        Route(
            "POST",
            "/api/show",
            door.show,
            "Show what a model can do, for clients of Ollama.",
            _TAG,
            request=OllamaShowFields,
            error_codes=("invalid_json", "invalid_value", "model_not_found"),
            has_plain_errors=True,
            scope="talk",
        ),
    )
    lists = (
        ("/api/tags", door.tags, "List the models that chat clients may name."),
        ("/api/ps", door.running, "List the models that are ready."),
        ("/api/version", door.version, "Show the version of this server."),
    )
    return (
        *chats,
        *(
            Route(
                "GET",
                path,
                handler,
                f"{summary[:-1]}, for clients of Ollama.",
                _TAG,
                has_plain_errors=True,
                scope="talk",
            )
            for path, handler, summary in lists
        ),
    )
