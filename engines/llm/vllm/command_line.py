"""Builds the command line and the environment variables of a vLLM server."""

import os
from collections.abc import Mapping
from pathlib import Path

from core.errors import EngineMissing
from engines.llm import openai
from engines.llm.server_llm import HOST, CompletionServer, check_reserved_options
from engines.llm.vllm.environment import python_of
from engines.llm.vllm.settings import NAME, Settings
from engines.registry import read_settings
from engines.runtime.external_server.installation import ServerInstallation

RESERVED_ARGS = ("--api-key", "--host", "--port", "--uds", "--served-model-name", "--model")
"""Options of vLLM that only the engine sets. The key is never an argument, because every user of
the machine can read a command line."""

RESERVED_REQUEST_KEYS = ("base_url", "model", "api_key", "api_key_file", "languages", "tools")
"Settings of the engine `openai` that only this engine sets."


def model_argument(settings: Settings) -> str:
    """Returns the argument of `--model`: the absolute path of a folder, or a name on a hub.

    Raises EngineMissing for a path that does not exist.
    """
    if not settings.model.startswith(("/", "./", "../", "~")):
        local_folder = Path(settings.model)
        return str(local_folder.absolute()) if local_folder.is_dir() else settings.model
    folder = Path(settings.model).expanduser().absolute()
    if not folder.exists():
        raise EngineMissing("llm", NAME, f"model: there is no {folder}")
    return str(folder)


def served_name(settings: Settings) -> str:
    """Returns the model's name in requests: that of its folder, without the path."""
    return Path(settings.model).name or settings.model


def check_options(settings: Settings) -> None:
    """Raises ConfigError for options that only the engine sets, and for a wrong `request`."""
    check_reserved_options(
        NAME, settings.request, RESERVED_REQUEST_KEYS, settings.extra_args, RESERVED_ARGS
    )
    http_settings(settings, f"http://{HOST}", "")


def completion_server(settings: Settings, environment: ServerInstallation) -> CompletionServer:
    """Returns the description of the vLLM server for `ServerLlm`."""
    return CompletionServer(
        NAME,
        command=lambda port: command(settings, environment, port),
        variables=lambda key: variables(settings, environment, key),
        client_settings=lambda url, key: http_settings(settings, url, key),
        port=settings.port,
        start_timeout_s=settings.start_timeout_s,
        languages=settings.languages,
        context_tokens=settings.max_model_len,
        accepts_images=bool(settings.request.get("images")),
    )


def command(settings: Settings, environment: ServerInstallation, port: int) -> list[str]:
    """Returns the command line. It does not contain the key; `variables` does."""
    options = {
        "--model": model_argument(settings),
        "--served-model-name": served_name(settings),
        "--host": HOST,
        "--port": str(port),
        "--dtype": _dtype(settings, environment),
    }
    if settings.max_model_len:
        options["--max-model-len"] = str(settings.max_model_len)
    if environment.device == "cuda":
        options["--gpu-memory-utilization"] = str(settings.gpu_memory_utilization)
    if settings.tool_parser:
        options["--tool-call-parser"] = settings.tool_parser
    # Prefix caching is vLLM's default, but answers would be slow without it: every prompt begins
    # with the previous one.
    flags = ["--enable-prefix-caching", "--disable-uvicorn-access-log"]
    if environment.device == "cpu":
        flags.append("--enforce-eager")  # compiling takes minutes and a C++ compiler
    if settings.tool_parser:
        flags.append("--enable-auto-tool-choice")
    python = str(python_of(Path(settings.environment).expanduser().absolute()))
    words = [word for option in options.items() for word in option]
    entry = ("-m", "vllm.entrypoints.openai.api_server")
    return [python, *entry, *words, *flags, *settings.extra_args]


def variables(settings: Settings, environment: ServerInstallation, key: str) -> Mapping[str, str]:
    """Returns the environment variables that vLLM gets in addition to the server's own.

    They also turn off vLLM's usage reports, which it sends at each start by default.
    """
    bin_folder = python_of(Path(settings.environment).expanduser().absolute()).parent
    values = {
        "VLLM_API_KEY": key,
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # Kernels that are compiled at run time need the environment's own ninja.
        "PATH": os.pathsep.join([str(bin_folder), *os.get_exec_path()]),
    }
    if environment.device == "cpu":
        values["VLLM_CPU_KVCACHE_SPACE"] = str(settings.cpu_cache_gb)
    return values


def http_settings(settings: Settings, url: str, key: str) -> openai.Settings:
    """Returns the settings of the engine `openai`. Raises ConfigError for a wrong `request`."""
    given = {
        "base_url": f"{url}/v1",
        "model": served_name(settings),
        "api_key": key,
        "languages": settings.languages,
        "tools": bool(settings.tool_parser),
    }
    read = read_settings(openai.Settings, settings.request | given, where=f"llm.{NAME}.request")
    assert isinstance(read, openai.Settings)
    return read


def _dtype(settings: Settings, environment: ServerInstallation) -> str:
    """Returns the number type. `auto` is float32 on a processor.

    Most weights are bfloat16. vLLM ends with an error on processors without instructions for it.
    """
    if settings.dtype == "auto" and environment.device == "cpu":
        return "float32"
    return settings.dtype
