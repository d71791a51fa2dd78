"""`earshot bench voice` with its own server, whose stub engines take fixed times."""

import json

import pytest

from server.__main__ import main

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]


@pytest.mark.parametrize("transport", ["ws", "webrtc"])
def test_the_times_of_the_stub_engines_are_measured(
    transport: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--transport", transport, "--turns", "1", "--wait", "200", "--stubs", "10,300,100"]
    assert main(["bench", "voice", *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["answered"] == 1
    assert "stub engines 10/300/100 ms" in report["title"]
    turn = report["each"][0]
    assert turn["transcript"] == "turn on the kitchen lights"
    assert turn["reply"].startswith("All the lights")
    assert turn["answer_ms"] >= 380
    # The model and the voice are not hidden by a wait of 200 ms, whatever is begun early.
    assert 400 <= report["voice_to_voice_ms"]["min"] < 3000
    assert {stage["stage"] for stage in report["stages"]} >= {"endpoint_wait", "llm", "tts"}
