"""One event of a streamed chat completion, as servers send it: typed where they agree."""

from typing import Any

import msgspec

from core.errors import RemoteProtocolError

DONE = "[DONE]"


class ChunkFunction(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: Any = None
    "A piece of JSON text; from some servers the whole object."


class ChunkToolCall(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: ChunkFunction = ChunkFunction()


class ChunkDelta(msgspec.Struct, frozen=True):
    content: Any = None
    "Text; from some servers a list of parts."
    tool_calls: list[ChunkToolCall] | None = None
    reasoning_content: Any = None
    "Thoughts: never spoken; that they come shows that the server is at work."
    reasoning: Any = None

    @property
    def is_empty(self) -> bool:
        return not (self.content or self.tool_calls or self.reasoning_content or self.reasoning)

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(map(_text_of, self.content))
        return self.content if isinstance(self.content, str) else ""


class ChunkChoice(msgspec.Struct, frozen=True):
    delta: ChunkDelta | None = None
    message: ChunkDelta | None = None
    "From servers that answered as a whole."
    finish_reason: str | None = None

    @property
    def written(self) -> ChunkDelta:
        return self.delta or self.message or _NOTHING


_NOTHING = ChunkDelta()


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class CompletionUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None


class ChatCompletionChunk(msgspec.Struct, frozen=True):
    choices: list[ChunkChoice] | None = None
    usage: CompletionUsage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None
    "Of an error, from servers that put it at the top."

    @property
    def is_empty(self) -> bool:
        """It says no more than that the request arrived."""
        is_last = self.usage or any(choice.finish_reason for choice in self.choices or ())
        written = any(not choice.written.is_empty for choice in self.choices or ())
        return not (written or is_last or self.problem)

    @property
    def problem(self) -> str:
        """What went wrong while the answer was written; empty if nothing did."""
        if self.object == "error" or self.error:
            return error_text(self.error or self.message) or "it failed without saying why"
        return ""


_CHUNKS = msgspec.json.Decoder(ChatCompletionChunk)


def read_chunk(data: str) -> ChatCompletionChunk:
    """Raises RemoteProtocolError, which does not repeat what was sent: it may be private."""
    try:
        return _CHUNKS.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as exc:
        raise RemoteProtocolError(f"an event that is no chunk of a completion: {exc}") from None


def error_text(error: Any) -> str:
    """The sentence in an error object, in any of the shapes in use."""
    if isinstance(error, dict):
        return error_text(error.get("message") or error.get("detail") or error.get("error"))
    return error if isinstance(error, str) else ""


def _text_of(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    return text if isinstance(text, str) else ""
