"""Settings of the engine `openai`: the server's address, the model and the limits."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

AUTO = "auto"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `openai`."""

    base_url: Annotated[str, Meta(min_length=1)]
    "Address of the API including its version: `http://127.0.0.1:8000/v1`."
    model: Annotated[str, Meta(min_length=1)] = AUTO
    "Name of the model; auto: the first that the server lists."
    api_key: str = ""
    "Key that the server asks for; empty: none."
    api_key_file: str = ""
    "File with the key, read at start; replaces `api_key`."
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    "Sampling temperature. Not set: the server's default."
    max_output_tokens: Annotated[int, Meta(ge=1)] = 512
    """Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a
    quarter of the context is used: servers refuse a prompt that leaves no room for the answer."""
    context_tokens: Annotated[int, Meta(ge=256)] | None = None
    "Size of the context. Not set: as the server says (vLLM, llama.cpp, Ollama), else 8192."
    tools: bool = True
    "Whether the model may call tools. Off for models that cannot."
    images: bool = False
    "Whether the model takes images, which no server announces."
    thinking: bool = False
    "Whether the model may think before it answers, which takes seconds if it can."
    starts_thinking: bool = False
    """Whether the chat template itself opens the thought. Text before `</think>` is not spoken
    then."""
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes of the languages that the model understands. Empty: any."
    connect_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    "Longest wait for a connection."
    first_token_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow."
    token_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    "Longest wait between two tokens."
    answer_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 300.0
    "Longest wait for an answer that is not streamed."
    max_requests: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    "Most requests at once; a further one waits. Not set: 16, or more with many drafts."
    extra_body: dict[str, Any] = {}
    "Further fields of the request; null removes a field that Earshot sends."

    def __repr__(self) -> str:
        """Returns the settings without the key and `extra_body`, for logs and tracebacks."""
        hidden = {"api_key", "extra_body"}
        shown = (f"{k}={'***' if k in hidden and v else v!r}" for k, v in asdict(self).items())
        return f"Settings({', '.join(shown)})"
