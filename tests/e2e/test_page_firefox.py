"""A spoken turn in Firefox: a person's recording comes out of the system's microphone."""

import shutil
from pathlib import Path

import pytest

from tests.clients.programs import npm_program, told_by
from tests.conftest import require
from tests.e2e.sound_server import MICROPHONE, sound_server
from tests.server.process import serving
from tests.shared import shared_data

# Its sound server loses sound beside other work.
pytestmark = [pytest.mark.real, pytest.mark.browser, pytest.mark.alone]

FIREFOX = ("firefox-esr", "firefox")
"Names under which distributions install it."


def test_a_spoken_command_is_answered_in_firefox(tmp_path: Path) -> None:
    firefox = next(filter(None, map(shutil.which, FIREFOX)), "")
    require(firefox, "Firefox")
    clip = shared_data("speech", "en", "ha_turn_on_lamp.wav")
    program = npm_program("firefox", tmp_path / "firefox")
    player = ("paplay", f"--device={MICROPHONE}", clip)
    with serving(tmp_path, recogniser={}) as server, sound_server() as environment:
        turn = told_by(
            program, "node", "turn.mjs", firefox, server.url, *player, environment=environment
        )
    assert "turn on the living room lamp" in turn["said"].lower()
    assert "living room lamp" in turn["reply"]
    assert turn["lamp"] == "on"
    assert turn["browser"].startswith("firefox/")
    assert turn["errors"] == []
