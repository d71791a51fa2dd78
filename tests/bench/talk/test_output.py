"""`earshot talk` shows the level of the microphone and the words on a terminal."""

import io

import numpy as np
import pytest

from bench.client.turn import TurnLog
from bench.talk.output import METER_SAMPLES, TerminalOutput
from core.audio import Pcm
from core.terminal import CLEAR_LINE


def _sound(level: float, samples: int = METER_SAMPLES) -> Pcm:
    """Returns a square wave. level: 1 is full scale."""
    return np.resize(np.array([1, -1]) * level * 32767, samples).astype(np.int16)


@pytest.mark.parametrize(
    ("level", "shown"),
    [(0, "[..........]"), (0.001, "[..........]"), (0.03, "[#####.....]"), (1, "[##########]")],
)
def test_the_level_of_the_microphone_is_shown(level: float, shown: str) -> None:
    out = io.StringIO()
    TerminalOutput(out, is_terminal=True).hear(_sound(level))
    assert out.getvalue() == f"{CLEAR_LINE}  {shown} "


def test_the_meter_shows_the_loudest_sound_since_its_last_drawing() -> None:
    out = io.StringIO()
    output = TerminalOutput(out, is_terminal=True)
    for level in (0, 1, 0, 0):
        output.hear(_sound(level, METER_SAMPLES // 4))
    output.hear(_sound(0))
    assert out.getvalue() == f"{CLEAR_LINE}  [##########] {CLEAR_LINE}  [..........] "


def test_words_stand_behind_the_level_until_other_text_follows() -> None:
    out = io.StringIO()
    output = TerminalOutput(out, is_terminal=True)
    output.hear(_sound(1))
    output.change(TurnLog(stable="turn on", unstable="the"))
    output.line("network: good")
    assert out.getvalue().split(CLEAR_LINE)[2:] == [
        "  [##########] turn on\x1b[2m the\x1b[0m",
        "network: good\n",
    ]


@pytest.mark.parametrize(("is_terminal", "is_quiet"), [(False, False), (True, True)])
def test_no_level_is_shown_to_programs(is_terminal: bool, is_quiet: bool) -> None:
    out = io.StringIO()
    TerminalOutput(out, is_terminal, is_quiet).hear(_sound(1))
    assert out.getvalue() == ""
