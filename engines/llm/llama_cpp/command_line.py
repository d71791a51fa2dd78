"""Builds the command line and the environment variables of llama-server."""

from collections.abc import Mapping
from pathlib import Path

from engines.llm import openai
from engines.llm.llama_cpp.files import GgufModel
from engines.llm.llama_cpp.settings import DEFAULT_CONTEXT_TOKENS, NAME, Settings
from engines.llm.server_llm import HOST, CompletionServer, check_reserved_options
from engines.registry import read_settings

RESERVED_ARGS = (
    *("--api-key", "--api-key-file", "--host", "--port", "--alias", "-a", "--model", "-m"),
    *("--ctx-size", "-c", "--parallel", "-np", "--mmproj", "-mm"),
)
"Options of llama-server that only the engine sets."

RESERVED_REQUEST_KEYS = ("base_url", "model", "api_key", "api_key_file", "languages", "images")
"Settings of the engine `openai` that only this engine sets."

TIMEOUTS = {"first_token_timeout_s": 60.0, "token_timeout_s": 20.0}
"Longer than those of `openai`: a processor reads a long prompt in half a minute."


def check_options(settings: Settings) -> None:
    """Raises ConfigError for options that only the engine sets, and for a wrong `request`."""
    check_reserved_options(
        NAME, settings.request, RESERVED_REQUEST_KEYS, settings.extra_args, RESERVED_ARGS
    )
    http_settings(settings, None, f"http://{HOST}", "")


def completion_server(settings: Settings, program: Path, model: GgufModel) -> CompletionServer:
    """Returns the description of the llama-server for `ServerLlm`."""
    return CompletionServer(
        NAME,
        command=lambda port: command(settings, program, model, port),
        variables=variables,
        client_settings=lambda url, key: http_settings(settings, model, url, key),
        port=settings.port,
        start_timeout_s=settings.start_timeout_s,
        languages=settings.languages,
        context_tokens=context_tokens(settings, model),
        max_concurrency=settings.parallel,
        accepts_images=model.projector is not None,
    )


def context_tokens(settings: Settings, model: GgufModel) -> int:
    """Returns the tokens of prompt and answer together, for each of the parallel answers."""
    model_limit = model.header.context_tokens or DEFAULT_CONTEXT_TOKENS
    return min(settings.context_tokens or DEFAULT_CONTEXT_TOKENS, model_limit)


def served_name(model: GgufModel) -> str:
    """Returns the model's name in requests: that of its file."""
    return model.file.stem


def command(settings: Settings, program: Path, model: GgufModel, port: int) -> list[str]:
    """Returns the command line. It does not contain the key; `variables` does."""
    options = {
        "--model": str(model.file),
        "--alias": served_name(model),
        "--host": HOST,
        "--port": str(port),
        "--parallel": str(settings.parallel),
        # llama-server divides this among the parallel answers.
        "--ctx-size": str(settings.parallel * context_tokens(settings, model)),
        "--gpu-layers": str(settings.gpu_layers),
    }
    if settings.threads:
        options["--threads"] = str(settings.threads)
    if model.projector is not None:
        options["--mmproj"] = str(model.projector)
    words = [word for option in options.items() for word in option]
    # Chat templates with tools need `--jinja`. llama-server's own web page would need its own key.
    return [str(program), *words, "--jinja", "--no-webui", "--offline", *settings.extra_args]


def variables(key: str) -> Mapping[str, str]:
    """Returns the environment variables that llama-server gets in addition to the server's own."""
    return {"LLAMA_API_KEY": key}


def http_settings(
    settings: Settings, model: GgufModel | None, url: str, key: str
) -> openai.Settings:
    """Returns the settings of the engine `openai`.

    model: None if the settings are only checked. Raises ConfigError for a wrong `request`.
    """
    given: dict[str, object] = {
        "base_url": f"{url}/v1",
        "api_key": key,
        "languages": settings.languages,
    }
    if model is not None:
        given |= {
            "model": served_name(model),
            "context_tokens": context_tokens(settings, model),
            "images": model.projector is not None,
        }
    where = f"llm.{NAME}.request"
    read = read_settings(openai.Settings, TIMEOUTS | settings.request | given, where=where)
    assert isinstance(read, openai.Settings)
    return read
