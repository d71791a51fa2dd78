"""Settings of the engine `llama_cpp`."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

NAME = "llama_cpp"

DEFAULT_CONTEXT_TOKENS = 8192
"""Largest context if none is configured. Models allow up to a million tokens, but the caches for
several answers at once would not fit into memory."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a llama-server that we start. For one that runs already, use the engine
    `openai`."""

    model: Annotated[str, Meta(min_length=1)]
    """A GGUF file, a folder that holds one model, or the name of a model in the models folder (the
    server looks it up). Nothing is downloaded."""
    program: str = ""
    """Path of llama-server. Empty: the one that `earshot engines install llama_cpp` built, else the
    one on the PATH."""
    installation: str = ""
    "Folder where `earshot engines install llama_cpp` put it; the server fills this in."
    context_tokens: Annotated[int, Meta(ge=256)] | None = None
    "Tokens of prompt and answer together; None: the model's maximum, but no more than 8192."
    parallel: Annotated[int, Meta(ge=1, le=64)] = 4
    "Answers that are written at the same time. Each takes memory for `context_tokens`."
    threads: Annotated[int, Meta(ge=0, le=512)] = 0
    "Threads on a processor; 0: llama.cpp decides."
    gpu_layers: Annotated[int, Meta(ge=0)] | Literal["auto", "all"] = "auto"
    "Layers of the model that a GPU computes; auto: as many as fit."
    vision_projector: str = ""
    """GGUF file (mmproj) that turns images into tokens. Empty: the `mmproj*.gguf` beside the model
    in its folder; without one the model takes no images."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    "Port on loopback; 0: a free one."
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes of what the model understands; empty: any."
    request: dict[str, Any] = {}
    """Options of the engine `openai`, with which llama-server is asked: temperature,
    max_output_tokens, thinking, extra_body, timeouts."""
    extra_args: tuple[str, ...] = ()
    "Further options of llama-server, one argument each."
    start_timeout_s: Annotated[float, Meta(gt=0, le=86400)] = 600.0
    "Longest start. Large weights take minutes from a slow disk."
