"""`earshot bench voice` against a server that follows the protocol sheet, and its arguments."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.voice import command
from core.audio import AudioFrame
from media.files.decode import write_wav
from tests.bench.client.fake_realtime_server import RATE_HZ, Behaviour, FakeRealtime, speech

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]


@pytest.fixture
def question(tmp_path: Path) -> Path:
    path = tmp_path / "question.wav"
    write_wav(path, [AudioFrame(speech(), RATE_HZ, 0)])
    return path


def bench(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.main(parser.parse_args([str(one) for one in arguments]))


def against(behaviour: Behaviour, *arguments: str | Path) -> tuple[int, FakeRealtime]:
    async def run() -> tuple[int, FakeRealtime]:
        fake = FakeRealtime(behaviour)
        async with asyncio.timeout(30), fake.running() as url:
            return await asyncio.to_thread(bench, "--url", url, *arguments), fake

    return asyncio.run(run())


def test_the_help_names_the_server_that_is_used_without_an_address() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    (url,) = (action for action in parser._actions if action.dest == "url")
    assert url.help == "address of the server; default: one that is started for the run"


def test_the_warm_up_is_excluded_and_every_client_counts(
    question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = ("--svg", tmp_path / "voice.svg")
    options = ("--transport", "ws", "--turns", "2", "--clients", "2", *picture, question)
    code, fake = against(Behaviour(is_ours=True), *options)
    out = capsys.readouterr().out
    assert code == 0
    assert len(fake.lines) == 2
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith("|")]
    measured = {row[0].strip("| "): row[-1].strip("| ") for row in rows[2:]}
    assert measured == {
        "**voice to voice, at the client**": "4",
        "transcript, at the client": "4",
        "first words after speech begins": "4",
        "response latency, by the server": "4",
        "- recognition": "4",
        "mouth to ear without a server, one way": "100",
    }
    ET.fromstring((tmp_path / "voice.svg").read_text())


def test_every_turn_is_printed_as_json(question: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--transport", "ws", "--turns", "2", "--clients", "2", "--json", question)
    assert against(Behaviour(is_ours=True), *options)[0] == 0
    report = json.loads(capsys.readouterr().out)
    assert [(turn["client"], turn["turn"]) for turn in report["each"]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    # The fake waits for 200 ms of silence; frames that leave late are caught up with.
    assert report["voice_to_voice_ms"]["min"] > 180
    assert report["stages"][0]["stage"] == "asr"


def test_each_turn_can_have_its_own_connection(question: Path) -> None:
    options = ("--transport", "ws", "--turns", "2", "--reconnect")
    code, fake = against(Behaviour(), *options, question)
    assert (code, len(fake.lines)) == (0, 3)


def test_the_requested_silence_is_sent_to_the_server(question: Path) -> None:
    options = ("--transport", "ws", "--turns", "1", "--wait", "250")
    _, fake = against(Behaviour(), *options, question)
    asked = [event for event in fake.lines[0].received if event["type"] == "session.update"]
    turns = asked[0]["session"]["audio"]["input"]["turn_detection"]
    assert turns == {"type": "server_vad", "silence_duration_ms": 250}


def test_an_unanswered_turn_fails_the_run(
    question: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviour = Behaviour(is_ours=True, outcome="rejected")
    assert against(behaviour, "--transport", "ws", "--turns", "1", question)[0] == 1
    assert "1 of 1 turns were not answered" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--url", "http://127.0.0.1:1", "--stubs", "0,0,0"), "--url and --stubs"),
        (("no-such-file.wav",), "no-such-file.wav"),
    ],
)
def test_the_error_names_arguments_that_cannot_be_used(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*arguments) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "0,-1,0", "0,0,99999"])
def test_stub_delays_are_three_times_in_range(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench("--stubs", text)
    assert "--stubs: must be" in capsys.readouterr().err


def test_a_satellite_needs_its_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aioesphomeapi", None)
    monkeypatch.delitem(sys.modules, "bench.client.satellite", raising=False)
    monkeypatch.delitem(sys.modules, "bench.voice.satellite", raising=False)
    assert bench("--beside", "esphome") == 2
    assert "`earshot extras add esphome`" in capsys.readouterr().err
