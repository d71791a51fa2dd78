"""`earshot replay` with the real default engines: sessions are recorded, replayed and compared."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from bench.client.conversation import open_conversation
from bench.client.microphone import RATE_HZ
from bench.client.realtime import SessionRequest
from bench.server.own_server import own_server
from bench.tools.clips import synthesise
from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, silence
from core.conversation.events import InputCommitted, ResponseCreated, TranscriptionCompleted
from media.resample import Resampler
from pipeline.shared.settings import SessionSettings, TurnDetection
from pipeline.shared.trace import SessionTrace
from server.__main__ import main
from server.commands.replay.run import FRAME_SAMPLES, replay, replay_environment
from server.commands.replay.trace_reader import RecordedSession
from server.config import Config
from server.runtime.clock import JsonlTraceSink, SystemClock, open_trace
from tests.server.commands.replay import garage

pytestmark = pytest.mark.live

SETTINGS = SessionSettings(language="en", turn_detection=TurnDetection(silence_ms=300))
SAID = ("turn on the kitchen lights", "what is on the shopping list")


def question() -> Pcm:
    """Two commands at 16 kHz, with time for the answers."""
    resampler = Resampler(RATE_HZ, ASR_RATE_HZ)
    parts = []
    for text in SAID:
        parts += [synthesise(text), silence(4000, RATE_HZ)]
    return np.concatenate([resampler.push(np.concatenate(parts)), resampler.flush()])


def spoken_at_16_khz(text: str) -> Pcm:
    resampler = Resampler(RATE_HZ, ASR_RATE_HZ)
    return np.concatenate([resampler.push(synthesise(text)), resampler.flush()])


@contextlib.contextmanager
def trace_of(path: Path) -> Iterator[JsonlTraceSink]:
    with open_trace(str(path)) as sink:
        assert sink is not None
        yield sink


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a trace with the audio of a real session."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    pcm, clock = question(), SystemClock()

    async def run() -> list[Any]:
        async with replay_environment(Config()) as stage:
            first = RecordedSession("first", SETTINGS, pcm, (), (), has_words=True, is_cut=False)
            await replay(stage, first)
            return stage.trace_sink.records

    told = asyncio.run(run())
    with trace_of(path) as sink:
        before = SessionTrace(sink, "first", clock, words=True, sound=True)
        before.settings(SETTINGS)
        for start in range(0, len(pcm), FRAME_SAMPLES):
            before.frame(AudioFrame(pcm[start : start + FRAME_SAMPLES], ASR_RATE_HZ, start))
        before.close()
        for record in told:
            sink.write({**record, "session": "first"})
    return path


def test_a_replay_of_the_same_audio_gives_the_same_words(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["replay", str(trace), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["is_same"]) == (0, True)
    (session,) = report["sessions"]
    assert [turn["new"]["transcript"] for turn in session["turns"]] == list(SAID)
    assert all(turn["new"]["answer"] for turn in session["turns"])
    assert {"endpoint_wait", "asr", "llm", "tts", "response latency"} <= report["stages"].keys()


def test_changed_words_and_missing_turns_are_reported(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    altered = tmp_path / "altered.jsonl"
    lines = trace.read_text().replace("turn on the kitchen lights", "turn on the garden lights")
    records = [json.loads(line) for line in lines.splitlines()]
    traced = [record for record in records if record["event"] == "TurnTraced"]
    records.append({**traced[-1], "item_id": "nobody", "response_id": None, "status": "rejected"})
    altered.write_bytes(b"\n".join(msgspec.json.encode(record) for record in records) + b"\n")
    assert main(["replay", str(altered), "--speed", "2"]) == 1
    out = capsys.readouterr().out
    assert "1 - turn on the garden lights" in out
    assert "1 + turn on the kitchen lights" in out
    assert "2 = what is on the shopping list" in out
    assert "3 - (no words) [rejected]" in out


@pytest.mark.parametrize(
    ("options", "opened", "answer"),
    [
        ([], 0, "not_run_in_replay"),
        (["--act"], 1, "it is open now"),
    ],
)
def test_a_users_function_that_acts_is_called_only_on_request(
    options: list[str],
    opened: int,
    answer: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace, config = tmp_path / "trace.jsonl", tmp_path / "earshot.toml"
    config.write_text(garage.CONFIG)
    with trace_of(trace) as sink:
        one = SessionTrace(sink, "garage", SystemClock(), words=True, sound=True)
        one.settings(SessionSettings(language="en", turn_detection=None))
        one.frame(AudioFrame(spoken_at_16_khz(SAID[0]), ASR_RATE_HZ, 0))
        one.write(InputCommitted("item", None))
        one.write(TranscriptionCompleted("item", SAID[0], 1.0, "en"))
        one.write(ResponseCreated("resp", "audio"))
        one.close()
    garage.opened.clear()
    command = ["replay", str(trace), "--config", str(config), "--speed", "4", "--json"]
    assert main([*command, *options]) == 1
    (session,) = json.loads(capsys.readouterr().out)["sessions"]
    assert (len(garage.opened), session["turns"][0]["new"]["status"]) == (opened, "answered")
    assert answer in session["turns"][0]["new"]["answer"]


def test_a_trace_without_audio_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    with trace_of(path) as sink:
        SessionTrace(sink, "mute", SystemClock(), words=True).settings(SETTINGS)
    assert main(["replay", str(path)]) == 1
    assert "not replayed: its trace has no sound (trace.audio)" in capsys.readouterr().out


def test_an_empty_trace_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    path.touch()
    assert main(["replay", str(path)]) == 2
    assert "the trace contains no session" in capsys.readouterr().err


def test_a_trace_of_a_server_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, config = tmp_path / "trace.jsonl", tmp_path / "earshot.toml"
    config.write_text(f'[trace]\npath = "{path}"\ntranscripts = true\naudio = true\n')

    async def converse() -> None:
        wish = SessionRequest(language="en")
        async with (
            own_server(["--config", str(config)]) as server,
            open_conversation(server.address, "webrtc", wish, timeout_s=20) as (talker, _),
        ):
            assert (await talker.say(synthesise(SAID[0]))).status == "answered"

    asyncio.run(converse())
    assert main(["replay", str(path)]) == 0
    assert f"1 = {SAID[0]}" in capsys.readouterr().out
