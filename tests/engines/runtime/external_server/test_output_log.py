"""The output of a server is logged within limits, without the key, and kept for error messages."""

import logging

import pytest

from engines.runtime.external_server.output_log import (
    KEPT_LINES,
    LINES_PER_S,
    MAX_LINE_CHARS,
    ServerLog,
)

KEY = "key-of-this-start"


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().removeprefix("< tts.parrot: ") for record in caplog.records]


def test_lines_are_logged_whole_bounded_and_without_the_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "engines.runtime.external_server")
    log = ServerLog("tts.parrot", KEY, lambda: 1.0)
    for piece in (b"INFO one", b" line\r", f"\nkey={KEY}\n".encode(), "gr\u00fc".encode()[:3]):
        log.feed(piece)
    log.feed("\u00fc".encode()[1:] + b"n\n" + b"x" * 3 * MAX_LINE_CHARS + b"\nlast")
    log.close()
    lines = logged(caplog)
    assert lines[:3] == ["INFO one line", "key=***", "gr\u00fcn"]
    assert lines[-1] == "last"
    assert max(map(len, lines)) == MAX_LINE_CHARS


def test_lines_above_the_rate_are_counted_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "engines.runtime.external_server")
    clock = iter([*[1.0] * 1000, 2.0])
    log = ServerLog("tts.parrot", KEY, lambda: next(clock))
    log.feed(b"\n".join(b"line %d" % n for n in range(1000)) + b"\n")
    assert len(logged(caplog)) == LINES_PER_S
    log.feed(b"calm\n")
    assert logged(caplog)[LINES_PER_S:] == [f"{1000 - LINES_PER_S} more lines", "calm"]


def test_the_summary_has_the_lines_that_name_an_error() -> None:
    log = ServerLog("tts.parrot", KEY, lambda: 1.0)
    assert log.summary() == "none"
    log.feed(b"loading\nbye\n")
    assert log.summary() == "loading | bye"
    log.feed(b"ValueError: no room\nINFO shutting down\n")
    assert log.summary() == "ValueError: no room"
    log.feed(b"noise\n" * KEPT_LINES)
    assert log.summary() == "noise"
    log.begin()
    assert log.summary() == "none"


def test_errors_of_an_ending_server_are_not_logged_as_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ServerLog("tts.parrot", KEY, lambda: 1.0)
    log.feed(b"(APIServer pid=1) ERROR 11-21 it broke\n(APIServer pid=1) WARNING slow\n")
    log.end()
    log.feed(b"(APIServer pid=1) ERROR 11-21 the engine is gone\n")
    assert logged(caplog) == ["(APIServer pid=1) ERROR 11-21 it broke"]
