"""Errors of an OpenAI-compatible server, with messages that its operator can act on."""

import re
from collections.abc import Iterable

import msgspec

from core.errors import EngineError, OverloadedError

MAX_DETAIL_CHARS = 240
"Longest text of the server that is quoted in a message."
OVERLOAD_STATUSES = (429, 503)
"HTTP statuses of a server that is busy or not ready. A caller may try again later."
RETRY_AFTER_S = 5
"Wait that is suggested to the caller when a busy server names none."

HINTS = {
    400: "refused the request",
    401: "wants another key (api_key, api_key_file)",
    403: "gives this key no access",
    404: "does not know this model or address (model, base_url)",
    413: "finds the request too large",
    422: "refused the request",
    429: "is busy, or the key's quota is used up",
    500: "failed",
    502: "is a proxy, and no server answers behind it",
    503: "is not ready",
}
'Continuation of "its server ..." for each HTTP status.'


class OpenAiHttpError(EngineError):
    """Response with an HTTP status other than 200."""

    def __init__(
        self, stage: str, engine: str, status: int, body: str, retry_after_s: float | None = None
    ) -> None:
        """Creates the error.

        body: the response's text as received, with the key replaced. It may repeat the user's
        words, so only `public_detail` and `public_error` show it. retry_after_s: from its
        Retry-After header, or None.
        """
        self._hint = f"its server {HINTS.get(status, 'answered with an unexpected status')}"
        super().__init__(stage, engine, f"{self._hint} ({status})")
        self.status, self.retry_after_s, self._body = status, retry_after_s, body

    def mentions(self, field: str) -> bool:
        """True if the response contains the name of this field."""
        return field in self._body

    def matches(self, pattern: re.Pattern[str]) -> bool:
        """True if the pattern is found in the server's message, or in the whole body if that has no
        message."""
        return pattern.search(_message(self._body) or self._body) is not None

    def body_matches(self, pattern: re.Pattern[str]) -> bool:
        """True if the pattern is found in the response's body."""
        return pattern.search(self._body) is not None

    def public_detail(self, private_texts: Iterable[str]) -> str:
        """Returns the error's detail with the server's own message. `private_texts`: texts of the
        request, which are removed from the message."""
        quote = sanitized_quote(_message(self._body), private_texts)
        return f"{self._hint} ({self.status}: {quote})" if quote else self.detail

    def public_error(self, private_texts: Iterable[str]) -> EngineError | OverloadedError:
        """Returns the error for callers, with the server's own message. `private_texts`: as for
        `public_detail`."""
        error = EngineError(self.stage, self.engine, self.public_detail(private_texts))
        if self.status not in OVERLOAD_STATUSES:
            return error
        wait_s = max(1, round(self.retry_after_s or RETRY_AFTER_S))
        return OverloadedError(str(error), retry_after_s=wait_s, code="engine_busy")


def sanitized_quote(text: str, private_texts: Iterable[str]) -> str:
    """Makes a server's text fit for a log: one line of bounded length, without `private_texts`,
    which some servers repeat."""
    for private in private_texts:
        if len(private) > 3:  # a shorter one is part of other words, and reveals nothing
            text = text.replace(private, "[...]")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_DETAIL_CHARS else f"{line[:MAX_DETAIL_CHARS]}..."


def retry_after_s(header: str) -> float | None:
    """Returns the seconds of a Retry-After header; None if it is missing, or a date. Services use
    dates only for long waits."""
    return float(header) if header.isascii() and header.isdigit() and len(header) < 10 else None


def error_text(error: object) -> str:
    """Returns the message of an error object, in any of the usual shapes; empty without one."""
    if isinstance(error, dict):
        return error_text(error.get("message") or error.get("detail") or error.get("error"))
    return error if isinstance(error, str) else ""


def _message(body: str) -> str:
    """Returns the message of a JSON error object; empty for other bodies. A proxy's HTML page
    contains nothing that its status does not say."""
    try:
        return error_text(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ""
