"""Settings of the engine `openai`: how its server is reached and asked."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import asdict

from core.errors import ConfigError

AUTO = "auto"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `openai`."""

    base_url: Annotated[str, Meta(min_length=1)]
    "Address of the API including its version: `http://127.0.0.1:8000/v1`."
    model: Annotated[str, Meta(min_length=1)] = AUTO
    "Name of the model; auto: the first that the server lists."
    api_key: str = ""
    api_key_file: str = ""
    "File with the key, read at start; replaces `api_key`."
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    "Sampling temperature; None: the server's default."
    max_output_tokens: Annotated[int, Meta(ge=1)] = 512
    """Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a
    quarter of the context is used: servers refuse a prompt that leaves no room for the answer."""
    context_tokens: Annotated[int, Meta(ge=256)] | None = None
    "Size of the context; None: as the server says (vLLM, llama.cpp, Ollama), else 8192."
    tools: bool = True
    "False: for models that cannot call tools."
    images: bool = False
    "True: for models that take images, which no server announces."
    thinking: bool = False
    "True: the model may think before it answers, which takes seconds if it can."
    starts_thinking: bool = False
    "True: the chat template itself opens the thought; text before `</think>` is not spoken."
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes of the languages that the model understands; (): any."
    connect_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    first_token_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow."
    token_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    "Longest wait between two tokens."
    extra_body: dict[str, Any] = {}
    "Further fields of the request; null removes one of ours."

    def __repr__(self) -> str:
        """Returns the settings without the key and `extra_body`, for logs and tracebacks."""
        hidden = {"api_key", "extra_body"}
        shown = (f"{k}={'***' if k in hidden and v else v!r}" for k, v in asdict(self).items())
        return f"Settings({', '.join(shown)})"


def checked_url(settings: Settings) -> str:
    """Returns the base URL without a slash at its end. Raises ConfigError for a bad URL."""
    url = settings.base_url.rstrip("/")
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    else:
        if parts.username or parts.password:
            raise ConfigError("llm base_url: a key goes into api_key or api_key_file")
    if not is_good:
        raise ConfigError(f"llm base_url: {url!r} is not an http:// or https:// address")
    return url


def key_of(settings: Settings) -> str:
    """Returns the API key; empty for none. Raises ConfigError if it cannot be read or sent."""
    if settings.api_key and settings.api_key_file:
        raise ConfigError("llm api_key and api_key_file are both set: set only one of them")
    key = settings.api_key
    if settings.api_key_file:
        path = Path(settings.api_key_file).expanduser()
        try:
            key = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"llm api_key_file {path}: {type(exc).__name__}") from None
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("llm api_key: only printable ASCII can be sent")
    return key
