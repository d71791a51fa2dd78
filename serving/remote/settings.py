"""Settings of a model on another server. They are apart from what uses them, so that the
configuration is read without an HTTP client."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

RemoteKind = Literal["llm", "asr", "tts", "embed", "rerank"]
"Kind of a model that another server may have."


class RemoteModelSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model that another server has."""

    kind: RemoteKind
    base_url: Annotated[str, Meta(min_length=1)]
    "Address of the API including its version: `http://127.0.0.1:8000/v1`."
    model: str = ""
    "Name of the model there; empty: as it is called here."
    api_key_file: str = ""
    "File with the key, read at start; empty: no key."
    images: bool = False
    "True: the language model takes images. No server announces that."
    max_requests: Annotated[int, Meta(ge=1, le=10_000)] = 8
    "Most requests at once; further ones get status 429. A spoken turn may come on top of them."
    timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """Longest wait for an answer, or for the next part of one that is streamed; then the request
    gets status 504."""
    connect_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    "Longest wait for a connection."
