"""Log lines: request ids, JSON, one line per record, and no secrets."""

import io
import logging
from collections.abc import Iterator

import msgspec
import pytest

from server.config import LogConfig
from server.runtime.logs import HIGHLIGHTED, redact, request_id, set_up
from tests.terminal import Terminal

KEY = "kEy-0123456789abcdef"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(capture=False)


def lines(config: LogConfig) -> list[str]:
    """Returns the lines of three records: a plain one, one with the key, one with a traceback."""
    out = io.StringIO()
    set_up(config, secrets=[KEY, ""], stream=out)
    logger = logging.getLogger("test")
    token = request_id.set("req_1")
    logger.info("plain %d", 1)
    request_id.reset(token)
    logger.warning("key is %s", KEY)
    try:
        raise ValueError(f"Bearer {KEY}")
    except ValueError:
        logger.exception("failed")
    logger.debug("hidden")
    logging.getLogger("aiortc").info("chatter")
    return out.getvalue().splitlines()


def test_records_are_lines_of_text() -> None:
    found = lines(LogConfig())
    assert found[0].endswith("INFO    test: plain 1 [req_1]")
    assert found[1].endswith("WARNING test: key is [secret]")
    text = "\n".join(found)
    assert KEY not in text
    assert "Traceback" in text
    assert "hidden" not in text
    assert "chatter" not in text


@pytest.mark.parametrize(("no_colour", "is_coloured"), [("", True), ("1", False)])
def test_a_terminal_shows_problems_and_highlighted_messages_in_colours(
    no_colour: str, is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    set_up(LogConfig(), stream=out)
    logger = logging.getLogger("test")
    logger.info("plain")
    logger.info("here", extra=HIGHLIGHTED)
    logger.warning("odd")
    logger.error("bad \x1b[32m")
    begins = [line.partition("m")[0] for line in out.getvalue().splitlines() if "\x1b" in line]
    assert begins == (["\x1b[1", "\x1b[33", "\x1b[31"] if is_coloured else [])
    assert "\x1b[32m" not in out.getvalue()


def test_a_librarys_traceback_of_a_lost_connection_is_left_out() -> None:
    out = io.StringIO()
    set_up(LogConfig(level="debug"), stream=out)
    logging.getLogger("mcp.client.streamable_http").error("Error in post_writer")
    logging.getLogger("httpcore2.http11").debug("send_request_headers.started")
    assert out.getvalue() == ""


def test_records_are_lines_of_json() -> None:
    records = [msgspec.json.decode(line) for line in lines(LogConfig(json=True))]
    assert [record["level"] for record in records] == ["info", "warning", "error"]
    assert records[0]["request_id"] == "req_1"
    assert records[0]["message"] == "plain 1"
    assert "request_id" not in records[1]
    assert "Bearer [secret]" in records[2]["traceback"]
    assert all(record["time"].endswith("+00:00") for record in records)


@pytest.mark.parametrize(
    ("char", "is_json"),
    [
        *((char, False) for char in "\n\r\0\x1b\x85\u2028"),
        *((char, True) for char in "\n\r\0\x1b"),  # what JSON itself escapes
    ],
)
def test_a_caller_cannot_forge_a_line(char: str, is_json: bool) -> None:
    out = io.StringIO()
    set_up(LogConfig(json=is_json), stream=out)
    logging.getLogger("test").info("GET /%s -> 200", f"x{char}12:00 ERROR")
    assert char not in out.getvalue().removesuffix("\n")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abcdef123", "Authorization: Bearer [secret]"),
        ("realtime, openai-insecure-api-key.abcd-1", "realtime, openai-insecure-api-key.[secret]"),
        ("https://x/#key=abcdef", "https://x/#key=[secret]"),
        ("got ek_0123abcd here", "got ek_[secret] here"),
        (f"got dev_{43 * 'a'} here", "got dev_[secret] here"),
        (f"got dev_{24 * 'a'} here", f"got dev_{24 * 'a'} here"),
        (f"got earshot_{43 * 'a'} here", "got earshot_[secret] here"),
        ("the metric earshot_sessions", "the metric earshot_sessions"),
        ("a bearer of news", "a bearer of news"),
        ("Authorization: Basic dXNlcjprZXktMDEyMzQ1Njc4OQ==", "Authorization: Basic [secret]"),
        ("https://anna:abcdef-123@host:19001/x", "https://anna:[secret]@host:19001/x"),
        ("a basic vocabulary, ws://host:8080/x", "a basic vocabulary, ws://host:8080/x"),
        ("week-long task-list", "week-long task-list"),
    ],
)
def test_values_that_look_like_secrets_are_hidden(text: str, clean: str) -> None:
    assert redact(text) == clean
