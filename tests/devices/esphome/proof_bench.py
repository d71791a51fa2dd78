"""`earshot bench voice --beside esphome` measures turns of a satellite beside another door."""

import json

import pytest

from server.__main__ import main

pytestmark = pytest.mark.live


def test_a_satellite_is_measured_beside_a_websocket(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--transport", "ws", "--beside", "esphome", "--rounds", "1", "--turns", "1"]
    assert main(["bench", "voice", *options, "--stubs", "10,300,100", "--json"]) == 0
    doors = json.loads(capsys.readouterr().out)["doors"]
    text = json.dumps(doors)
    assert "ws" in text
    assert "esphome" in text
