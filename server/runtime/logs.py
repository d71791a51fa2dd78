"""Log lines: text for people or JSON for machines, with a request id and without secrets."""

import logging
import re
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from server.config import LogConfig

NOISY = ("aioice", "aiortc", "alembic", "faster_whisper", "asyncio", "httpcore2", "httpx2", "mcp")
"Libraries that tell at info what only they need to know."

SILENT = ("mcp.client.stdio", "mcp.client.sse", "mcp.client.streamable_http")
"""Libraries that tell what somebody else's program printed, with a traceback for each line; and
that one went away, which `pipeline/tools/mcp` says in one."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"Of the request being served; tasks started by it inherit it."

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"What a caller could forge lines with, or steer a terminal."

_SECRETS = re.compile(
    r"(?i)(?P<before>bearer\s+|openai-insecure-api-key\.|[#?&]key=|(?<![a-z])(?:ek|sk)[-_]"
    r"|(?<![a-z])dev_(?=[A-Za-z0-9_-]{43})"  # a device's key; its id is shorter
    r"|basic\s+(?=[A-Za-z0-9+/]{16})|://[^\s/:@]*:(?=[^\s/@]+@))"
    r"[A-Za-z0-9._~+/=-]{4,}"
)


def set_up(config: LogConfig, *, secrets: Iterable[str] = (), stream: TextIO | None = None) -> None:
    """Send every logger to `stream` (standard error), once, as configured."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(_add_request_id)
    known = [secret for secret in secrets if secret]
    handler.setFormatter(JsonFormatter(known) if config.json else TextFormatter(known))
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without known secrets and without what looks like one."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return _SECRETS.sub(r"\g<before>[secret]", text)


def one_line(text: str) -> str:
    """The text with control characters written as escapes."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _add_request_id(record: logging.LogRecord) -> bool:
    record.request_id = request_id.get()
    return True


class TextFormatter(logging.Formatter):
    """`12:00:01.250 INFO  server.http.app: message [req_...]`"""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S"
        )
        self._secrets = tuple(secrets)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        record.message = one_line(record.message)  # a traceback comes after and keeps its lines
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        line = redact(super().format(record), self._secrets)
        current = getattr(record, "request_id", "")
        return f"{line} [{current}]" if current else line


class JsonFormatter(logging.Formatter):
    """One object per line; `time` is UTC."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage(), self._secrets),
        }
        if current := getattr(record, "request_id", ""):
            fields["request_id"] = current
        if record.exc_info:
            fields["traceback"] = redact(self.formatException(record.exc_info), self._secrets)
        return msgspec.json.encode(fields).decode()
