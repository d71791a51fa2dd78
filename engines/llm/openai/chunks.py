"""Events of a streamed chat completion. A field is `Any` if servers send different types in it."""

from typing import Any

import msgspec

from core.conversation.usage import TokenUsage
from core.errors import RemoteProtocolError
from engines.runtime.openai_http.errors import error_text

DONE = "[DONE]"


class ChunkFunction(msgspec.Struct, frozen=True):
    """Name and a piece of the arguments of a tool call."""

    name: str | None = None
    arguments: Any = None
    "A piece of JSON text; some servers send the whole object."


class ChunkToolCall(msgspec.Struct, frozen=True):
    """A piece of one tool call; `index` counts the calls of an answer."""

    index: int | None = None
    id: str | None = None
    function: ChunkFunction = ChunkFunction()


class ChunkDelta(msgspec.Struct, frozen=True):
    """The text and tool calls that one event adds to the answer."""

    content: Any = None
    "Text; some servers send a list of parts."
    tool_calls: list[ChunkToolCall] | None = None
    reasoning_content: Any = None
    "Thoughts. They are never spoken, but show that the server is generating."
    reasoning: Any = None

    @property
    def is_empty(self) -> bool:
        """True if the event adds nothing."""
        return not (self.content or self.tool_calls or self.reasoning_content or self.reasoning)

    @property
    def text(self) -> str:
        """The text of `content`, in both of its forms."""
        if isinstance(self.content, list):
            return "".join(map(_text_of, self.content))
        return self.content if isinstance(self.content, str) else ""


class ChunkChoice(msgspec.Struct, frozen=True):
    """One of several answers in an event. We request only one."""

    delta: ChunkDelta | None = None
    message: ChunkDelta | None = None
    "The whole answer, from servers that did not stream it."
    finish_reason: str | None = None

    @property
    def addition(self) -> ChunkDelta:
        """The text and tool calls of the event, streamed or whole."""
        return self.delta or self.message or _EMPTY_DELTA


_EMPTY_DELTA = ChunkDelta()


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Number of the prompt's tokens that the server had in its cache."""

    cached_tokens: int | None = None


class CompletionUsage(msgspec.Struct, frozen=True):
    """Numbers of tokens, which servers send at the end."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None


class ChatCompletionChunk(msgspec.Struct, frozen=True):
    """One event of the stream."""

    choices: list[ChunkChoice] | None = None
    usage: CompletionUsage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None
    "Text of an error, from servers that put it at the top level."

    @property
    def is_empty(self) -> bool:
        """True if the event only shows that the request arrived."""
        is_last = self.usage or any(choice.finish_reason for choice in self.choices or ())
        written = any(not choice.addition.is_empty for choice in self.choices or ())
        return not (written or is_last or self.error_message)

    @property
    def error_message(self) -> str:
        """Message of an error during the answer; empty without an error."""
        if self.object == "error" or self.error:
            return error_text(self.error or self.message) or "it failed and gave no reason"
        return ""


_CHUNKS = msgspec.json.Decoder(ChatCompletionChunk)


def read_chunk(data: str) -> ChatCompletionChunk:
    """Decodes one event.

    Raises RemoteProtocolError for bad JSON or types. The error does not repeat the data, which may
    be private.
    """
    try:
        return _CHUNKS.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as exc:
        raise RemoteProtocolError(f"an event that is not a chunk of a completion: {exc}") from None


def _text_of(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    return text if isinstance(text, str) else ""


def usage_of(chunk: ChatCompletionChunk) -> TokenUsage | None:
    """Returns the numbers of tokens in a chunk; None without any."""
    if chunk.usage is None:
        return None
    counted, details = chunk.usage, chunk.usage.prompt_tokens_details
    sent = counted.prompt_tokens, counted.completion_tokens, details and details.cached_tokens
    return TokenUsage(*(max(0, tokens or 0) for tokens in sent))  # counters only go up
