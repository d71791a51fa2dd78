"""The list of what is no unit test, and what a unit test may not do."""

import socket
import subprocess
import sys

import pytest

from tests.shared import ROOT
from tests.tiers import (
    MUCH_SOUND,
    NOT_UNIT,
    SECOND_TRIES,
    UNIT_CPU_S,
    UNIT_S,
    WHOLE_SESSIONS,
    is_unit,
    shut_in,
    too_flaky,
    too_slow,
)


def test_the_list_names_what_is_there() -> None:
    listed = (*NOT_UNIT, *MUCH_SOUND, *WHOLE_SESSIONS)
    assert [one for one in listed if not (ROOT / "tests" / one).exists()] == []
    assert is_unit(ROOT / "tests" / "core" / "test_queues.py")
    assert not is_unit(ROOT / "tests" / "e2e" / "test_page_spoken.py")


def test_a_unit_test_that_reaches_out_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    shut_in(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match=r"tests/tiers\.py"):
        subprocess.run([sys.executable, "--version"], check=False)
    with socket.socket() as one, pytest.raises(pytest.fail.Exception):
        one.bind(("127.0.0.1", 0))


def test_slow_unit_tests_are_told() -> None:
    assert too_slow(UNIT_CPU_S, UNIT_S) == ""
    assert "processor time; the limit is 10 s" in too_slow(UNIT_CPU_S + 1, UNIT_S)
    assert "31.0 s; the limit is 30 s" in too_slow(UNIT_CPU_S, UNIT_S + 1)


def test_a_run_of_many_second_tries_fails() -> None:
    assert too_flaky(["one"] * SECOND_TRIES) == ""
    assert "tests needed a second try; the limit is 4: one, one" in too_flaky(
        ["one"] * (SECOND_TRIES + 1)
    )


def test_only_tests_in_real_time_are_tried_again(request: pytest.FixtureRequest) -> None:
    """This file is in real time; `tests/core` is not."""
    assert request.node.get_closest_marker("flaky").kwargs == {"reruns": 1}
    unit = [one for one in request.session.items if one.get_closest_marker("unit")]
    assert [one.nodeid for one in unit if one.get_closest_marker("flaky")] == []
