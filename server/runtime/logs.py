"""Formats log lines: text for people or JSON for machines, with request id and without secrets."""

import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from core.terminal import Style, has_colours, styled
from server.config import LogConfig

WARNING_LOGGERS = (
    "aioesphomeapi",
    "aioice",
    "aiortc",
    "alembic",
    "faster_whisper",
    "asyncio",
    "httpcore2",
    "httpx2",
    "mcp",
)
"Loggers limited to warnings: info messages of these libraries matter only to their developers."

CRITICAL_LOGGERS = ("mcp.client.stdio", "mcp.client.sse", "mcp.client.streamable_http")
"""Loggers limited to critical messages. These libraries log what a tool server's program prints,
with a traceback for each line, and that it has gone away, which `pipeline/tools/mcp` already logs
in one line."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"Id of the request being served. Tasks started by it inherit the id."

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"Characters with which a caller could forge log lines or control a terminal."

_SECRETS = re.compile(
    r"(?i)(?P<before>bearer\s+|openai-insecure-api-key\.|[#?&]key=|(?<![a-z])(?:ek|sk)[-_]"
    r"|(?<![a-z])dev_(?=[A-Za-z0-9_-]{43})"  # a device's key; a device id is shorter
    r"|(?<![a-z])earshot_(?=[A-Za-z0-9]{43})"  # a named key
    r"|basic\s+(?=[A-Za-z0-9+/]{16})|://[^\s/:@]*:(?=[^\s/@]+@))"
    r"[A-Za-z0-9._~+/=-]{4,}"
)
"Pattern of text that looks like a key. It is cut out of log lines."


def set_up(
    config: LogConfig,
    *,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
    gateway: int = 0,
) -> None:
    """Sends all loggers to `stream` (default: standard error) in the configured form. `secrets`:
    texts that are replaced by `[secret]` in every line. `gateway`: number that every line shows; 0:
    none."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.addFilter(_add_request_id)
    known_secrets = [secret for secret in secrets if secret]
    handler.setFormatter(
        JsonFormatter(known_secrets, gateway)
        if config.json
        else TextFormatter(known_secrets, gateway, is_coloured=has_colours(out, os.environ))
    )
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in WARNING_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in CRITICAL_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Returns the text without the known secrets and without anything that looks like a key."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return _SECRETS.sub(r"\g<before>[secret]", text)


def one_line(text: str) -> str:
    """Returns the text with control characters written as escapes."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _add_request_id(record: logging.LogRecord) -> bool:
    """Filter that adds the request id to a record, and lets every record pass."""
    record.request_id = request_id.get()
    return True


HIGHLIGHTED: Mapping[str, bool] = {"is_highlighted": True}
"The argument `extra` of a message that stands out on a terminal."


class TextFormatter(logging.Formatter):
    """Formats lines as `12:00:01.250 INFO    server.http.app: message [req_...]`. On a terminal
    warnings, errors and highlighted messages are coloured."""

    def __init__(self, secrets: Iterable[str], gateway: int = 0, *, is_coloured: bool) -> None:
        mark = f"[gateway {gateway}] " if gateway else ""
        super().__init__(
            f"%(asctime)s.%(msecs)03d %(levelname)-7s {mark}%(name)s: %(message)s", "%H:%M:%S"
        )
        self._secrets = tuple(secrets)
        self._is_coloured = is_coloured

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        # a traceback follows later and keeps its line breaks
        record.message = one_line(record.message)
        line = super().formatMessage(record)
        style = _style_of(record) if self._is_coloured else None
        return styled(line, style) if style else line

    def format(self, record: logging.LogRecord) -> str:
        line = redact(super().format(record), self._secrets)
        current_id = getattr(record, "request_id", "")
        return f"{line} [{current_id}]" if current_id else line


def _style_of(record: logging.LogRecord) -> Style | None:
    if record.levelno >= logging.ERROR:
        return "red"
    if record.levelno >= logging.WARNING:
        return "yellow"
    return "bold" if getattr(record, "is_highlighted", False) else None


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object per line; `time` is UTC."""

    def __init__(self, secrets: Iterable[str], gateway: int = 0) -> None:
        super().__init__()
        self._secrets = tuple(secrets)
        self._gateway = gateway

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage(), self._secrets),
        }
        if self._gateway:
            fields["gateway"] = str(self._gateway)
        if current_id := getattr(record, "request_id", ""):
            fields["request_id"] = current_id
        if record.exc_info:
            fields["traceback"] = redact(self.formatException(record.exc_info), self._secrets)
        return msgspec.json.encode(fields).decode()
