"""`earshot talk` against fake servers: one like Earshot, one like OpenAI's, and broken ones."""

import asyncio
import json
import signal
import sys
import wave
from asyncio.subprocess import PIPE
from pathlib import Path

import numpy as np
import pytest

from bench.client import conversation
from core.audio import AudioFrame
from media.files.decode import write_wav
from tests.bench.client.fake_realtime_server import (
    ANSWER_MS,
    RATE_HZ,
    Behaviour,
    FakeRealtime,
    speech,
)
from tests.bench.talk.run_talk import command, talk_to
from tests.shared import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]

TRANSPORTS = pytest.mark.parametrize("transport", ["webrtc", "ws"])


@pytest.fixture
def question(tmp_path: Path) -> Path:
    path = tmp_path / "question.wav"
    write_wav(path, [AudioFrame(speech(), RATE_HZ, 0)])
    return path


@pytest.fixture(autouse=True)
def no_key_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EARSHOT_KEY", raising=False)
    monkeypatch.delenv("EARSHOT_API_KEY", raising=False)


@TRANSPORTS
def test_an_answer_of_an_earshot_server_is_shown_with_its_stages(
    transport: str, question: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = talk_to(Behaviour(is_ours=True), "--transport", transport, question)
    out = capsys.readouterr().out
    assert code == 0
    assert out.count("... hello world") == 1
    assert "  you:     hello world\n  answer:  Hi there.\n" in out
    assert "voice to voice" in out
    assert "server:  recognition 30 = 240 ms" in out
    *_, network = out.splitlines()
    if transport == "ws":
        assert network == "network: round trip 7.0 ms; websocket over tcp"
    else:
        assert network.startswith("network: round trip ")
        assert "loss up 2.5 down 0.0 %, jitter up 2.5 down " in network
        assert network.endswith("; opus over udp, host to host")


@pytest.mark.alone
@TRANSPORTS
def test_an_answer_of_another_server_is_shown_without_stages(
    transport: str, question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "answer.wav"
    options = ("--transport", transport, "--json", "--save", saved, "--language", "de")
    code, fake = talk_to(Behaviour(), *options, question)
    report = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (report["status"], report["transcript"]) == ("answered", "hello world")
    assert (report["reply"], report["stages"], report["error"]) == ("Hi there.", [], "")
    assert report["connection"]["transport"] == {"ws": "websocket"}.get(transport, transport)
    assert report["connection"]["buffer_up_ms"] is None, "only Earshot reports it"
    # 200 ms of quiet end the utterance; the tail of the recording is no speech
    assert 195 < report["transcript_ms"] <= report["voice_to_voice_ms"] < 900
    assert abs(report["answer_ms"] - ANSWER_MS) <= 60
    with wave.open(str(saved)) as file:
        assert file.getframerate() == RATE_HZ
        pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    assert np.abs(pcm.astype(int)).max() > 4000
    asked = (
        fake.forms[0]["session"] if transport == "webrtc" else json.dumps(fake.lines[0].received)
    )
    assert '"language":"de"' in asked.replace(" ", "")


@pytest.mark.alone
def test_the_end_of_playout_is_estimated_without_playout_events(
    question: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(conversation, "NO_EVENT_S", 0.3)
    code, _ = talk_to(Behaviour(has_playout_events=False), "--json", question)
    report = json.loads(capsys.readouterr().out)
    assert code == 0
    assert abs(report["answer_ms"] - ANSWER_MS) <= 60


@TRANSPORTS
def test_several_turns_use_one_connection(
    transport: str, question: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--transport", transport, "--quiet", "--turns", 2)
    code, fake = talk_to(Behaviour(), *options, question)
    assert code == 0
    assert len(fake.lines) == 1
    assert capsys.readouterr().out == "  you:     hello world\n  answer:  Hi there.\n" * 2


@TRANSPORTS
def test_a_text_message_is_answered_by_voice(
    transport: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--transport", transport, "--text", "hi")
    code, fake = talk_to(Behaviour(is_ours=True), *options)
    sent = [event["type"] for event in fake.lines[0].received]
    assert code == 0
    assert sent[-2:] == ["conversation.item.create", "response.create"]
    out = capsys.readouterr().out
    assert "text to voice" in out
    assert "you:" not in out


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        ("failed", "(the turn failed) it broke (engine_failed)"),
        ("rejected", "(taken for noise: no answer)"),
        ("silent", "(no answer"),
    ],
)
def test_a_turn_without_an_answer_exits_with_1(
    outcome: str, shown: str, question: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviour = Behaviour(is_ours=True, outcome=outcome)
    code, _ = talk_to(behaviour, "--timeout", 0.5, "--transport", "ws", question)
    assert code == 1
    assert shown in capsys.readouterr().out


@TRANSPORTS
def test_a_lost_connection_exits_with_5(
    transport: str, question: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = talk_to(Behaviour(outcome="hangs_up"), "--transport", transport, question)
    assert code == 5
    assert "earshot: the connection ended: the server closed it" in capsys.readouterr().err


FULL = {"error": {"message": "all 8 sessions are taken", "code": "server_full"}}


@TRANSPORTS
@pytest.mark.parametrize(
    ("behaviour", "options", "complaint"),
    [
        (Behaviour(key="k"), (), "401: a key is needed (invalid_api_key); give the key with --key"),
        (Behaviour(key="k"), ("--key", "wrong"), "401: a key is needed"),
        (
            Behaviour(refuses=(503, FULL)),
            (),
            "503: all 8 sessions are taken (server_full); try again in 7 s",
        ),
        (Behaviour(refuses=(404, {})), (), "404: no reason given"),
    ],
)
def test_a_refusal_exits_with_5_and_the_servers_message(
    transport: str,
    behaviour: Behaviour,
    options: tuple[str, ...],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _ = talk_to(behaviour, "--transport", transport, "--text", "hi", *options)
    assert code == 5
    shown = capsys.readouterr().err
    assert complaint in shown
    assert shown.count("\n") == 1


@TRANSPORTS
def test_the_key_may_come_from_the_environment(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARSHOT_KEY", "k")
    code, _ = talk_to(Behaviour(key="k"), "--transport", transport, "--text", "hi")
    assert code == 0


@TRANSPORTS
def test_an_unreachable_server_exits_with_5(
    transport: str, unused_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--url", unused_url, "--transport", transport, "--text", "hi") == 5
    expected = f"earshot: {unused_url} cannot be reached: Connection refused\n"
    assert capsys.readouterr().err == expected


@pytest.fixture
def unused_url() -> str:
    async def find() -> str:
        async with FakeRealtime(Behaviour()).running() as url:
            return url

    return asyncio.run(find())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give one of: FILE, --mic, --text"),
        (("--mic", "--text", "hi"), "give one of: FILE, --mic, --text"),
        (("nothing.wav",), "nothing.wav: No such file or directory"),
        ((__file__,), "unsupported audio"),
        (("--text", "hi", "--url", "ftp://box"), "'ftp://box' is no address"),
    ],
)
def test_wrong_usage_exits_with_2(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*arguments) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("earshot: ")
    assert complaint in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("wrong", [("--turns", "0"), ("--timeout", "-1"), ("--transport", "sip")])
def test_a_wrong_option_exits_with_2(wrong: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command("--text", "hi", *wrong)
    assert ended.value.code == 2


@TRANSPORTS
def test_ctrl_c_exits_with_130_and_prints_nothing(transport: str, question: Path) -> None:
    async def run() -> tuple[int, str]:
        async with FakeRealtime(Behaviour()).running() as url:
            arguments = (
                "-m",
                "bench.talk.command",
                "--url",
                url,
                "--transport",
                transport,
                question,
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable, *map(str, arguments), stdout=PIPE, stderr=PIPE, cwd=ROOT
            )
            assert process.stdout is not None
            assert (await process.stdout.readline()).startswith(b"connected to ")
            process.send_signal(signal.SIGINT)
            _, complaint = await process.communicate()
            return process.returncode or 0, complaint.decode()

    assert asyncio.run(run()) == (130, "")
