"""Errors of a language model server, with messages that its operator can act on."""

import re
from collections.abc import Sequence

import msgspec

from core.errors import EngineError
from engines.base import Message
from engines.llm.openai.chunks import error_text

MAX_DETAIL_CHARS = 240
"Longest text of the server that is quoted in a message."

HINTS = {
    400: "refused the request",
    401: "wants another key (api_key, api_key_file)",
    403: "does not let this key in",
    404: "does not know this model or address (model, base_url)",
    413: "finds the request too large",
    422: "refused the request",
    429: "is busy, or the key's quota is used up",
    500: "failed",
    502: "has nothing behind its proxy",
    503: "is not ready",
}
'Continuation of "its server ..." for each HTTP status.'

TOO_LARGE = 413
"HTTP status for a request that is too large."
BAD = (400, 422)
"HTTP statuses with which servers refuse a prompt that is too long, among other errors."
_LENGTH = re.compile(
    r"context[ _](length|size|window)|n_ctx|maximum (model|sequence) length"
    r"|(maximum|too large).{0,60}(input|number of) tokens|(prompt|input) (is )?too long"
    r"|tokens.{0,3} \+ .?max_new_tokens",
    re.IGNORECASE,
)
"""Wordings of different servers for a prompt that does not fit the context window.

OpenAI: code `context_length_exceeded`, "maximum context length", "exceeds the context window".
vLLM: "maximum context length", earlier "maximum model length". llama.cpp: "exceeds the available
context size", with `n_ctx`. Ollama: "prompt too long", "input length exceeds the context length".
SGLang: "model's context length". TGI: "`inputs` tokens + `max_new_tokens`".
"""


def is_about_length(text: str) -> bool:
    """True if a server's message says that the prompt, or prompt and answer together, exceed the
    context window."""
    return _LENGTH.search(text) is not None


class LlmHttpError(EngineError):
    """Answer of a language model server with an HTTP status other than 200."""

    def __init__(
        self, engine: str, status: int, body: str, retry_after_s: float | None = None
    ) -> None:
        """Creates the error. `body`: the response's text as received, with the key replaced."""
        self._why = f"its server {HINTS.get(status, 'does not answer with a completion')}"
        super().__init__("llm", engine, f"{self._why} ({status})")
        self.status, self.retry_after_s, self._body = status, retry_after_s, body

    def mentions(self, field: str) -> bool:
        """True if the server's answer contains the name of this field."""
        return field in self._body

    def is_about(self, pattern: re.Pattern[str]) -> bool:
        """True if the server's message, or else its whole answer, matches the pattern."""
        return pattern.search(_message(self._body) or self._body) is not None

    @property
    def is_about_length(self) -> bool:
        """True if the request was refused because it exceeds the context window."""
        if self.status == TOO_LARGE:
            return True
        return self.status in BAD and is_about_length(self._body)

    def told(self, messages: Sequence[Message]) -> str:
        """Returns the error's text with the server's own message, from which the words of
        `messages` are removed."""
        said = sanitized_quote(_message(self._body), messages)
        return f"{self._why} ({self.status}: {said})" if said else self.detail


def sanitized_quote(text: str, messages: Sequence[Message]) -> str:
    """Makes foreign text fit for a log: one line, of bounded length, without the words of the
    conversation, which some servers repeat."""
    for message in messages:
        if len(message.text) > 3:
            text = text.replace(message.text, "[...]")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_DETAIL_CHARS else f"{line[:MAX_DETAIL_CHARS]}..."


def retry_after_s(header: str) -> float | None:
    """Returns the seconds of a Retry-After header; None if it is missing or a date, which services
    use only for long waits."""
    return float(header) if header.isascii() and header.isdigit() and len(header) < 10 else None


def _message(body: str) -> str:
    """Returns the message of one of the usual JSON error objects; empty otherwise. A proxy's HTML
    page says no more than its status."""
    try:
        return error_text(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ""
