"""The bar of a long task."""

import io
from contextlib import suppress

from core.terminal import ProgressBar
from tests.terminal import Terminal


def test_the_time_left_follows_the_mean_time_of_a_step() -> None:
    out, now_s = Terminal(), 0.0
    with ProgressBar(out, "turns", lambda: now_s) as bar:
        bar.start(4)
        now_s = 30.0
        bar.add()
        now_s = 30.1
        bar.add()  # too soon to draw again
    assert out.drawn() == [
        "[........................]   0% of 4 turns",
        "[######..................]  25% of 4 turns, 1:30 left",
        "[############............]  50% of 4 turns, 0:30 left",
    ]


def test_a_message_stands_above_the_bar() -> None:
    out = Terminal()
    with ProgressBar(out, "turns", lambda: 0.0) as bar:
        bar.start(2)
        bar.note("first")
    bar.note("after")
    assert out.drawn()[1] == "first"
    assert out.getvalue().endswith("2 turns\nafter\n")


def test_an_error_leaves_the_line_of_the_bar() -> None:
    out = Terminal()
    with suppress(RuntimeError), ProgressBar(out, "turns", lambda: 0.0) as bar:
        bar.start(2)
        raise RuntimeError
    assert out.getvalue().endswith("0% of 2 turns\n")


def test_elsewhere_only_messages_are_written() -> None:
    out, now_s = io.StringIO(), 0.0
    with ProgressBar(out, "turns", lambda: now_s) as bar:
        bar.start(2)
        now_s = 9.0
        bar.add()
        bar.note("first")
    assert out.getvalue() == "first\n"
