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

TRANSCRIPTS = "transcripts"
"Logger of what was said and answered; silent unless log.transcripts is on."

NOISY = ("aioice", "aiortc", "faster_whisper", "asyncio")
"Libraries that tell at info what only they need to know."

request_id: ContextVar[str] = ContextVar("request_id", default="")
"Of the request being served; tasks started by it inherit it."

_SECRETS = re.compile(
    r"(?i)(?P<before>bearer\s+|openai-insecure-api-key\.|[#?&]key=|(?<![a-z])(?:ek|sk)[-_])"
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
    logging.getLogger(TRANSCRIPTS).disabled = not config.transcripts


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without known secrets and without what looks like one."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return _SECRETS.sub(r"\g<before>[secret]", text)


def _add_request_id(record: logging.LogRecord) -> bool:
    record.request_id = request_id.get()
    return True


class TextFormatter(logging.Formatter):
    """`12:00:01.250 INFO  server.app: message [req_...]`"""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S"
        )
        self._secrets = tuple(secrets)

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
