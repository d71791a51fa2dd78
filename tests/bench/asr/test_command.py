"""`earshot bench asr` against a server process."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from aiohttp.test_utils import unused_port

from bench.asr.report.wis_table import WisTableRow, measured
from bench.client.http import Address
from core.audio import ASR_RATE_HZ, AudioFrame
from media.files.decode import decode_file, write_wav
from tests.server.process import Running, run, serving
from tests.shared import ROOT
from tests.speech import say

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]

SAID = {"light": "turn on the kitchen light", "timer": "cancel the timer", "day": "what day is it"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "home"
    folder.mkdir()
    for name, text in SAID.items():
        write_wav(folder / f"{name}.wav", [AudioFrame(say(text, lead_ms=300), ASR_RATE_HZ, 0)])
    rows = {"wav.scp": {name: f"{name}.wav" for name in SAID}, "trans.txt": SAID}
    for file, lines in rows.items():
        (folder / file).write_text("".join(f"{name} {text}\n" for name, text in lines.items()))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


def bench(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Returns its exit code and output."""
    done = run(folder, "bench", "asr", *arguments)
    return done.returncode, done.stdout, done.stderr


def report(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "asr-home.json").read_text(encoding="utf-8"))
    return found


def test_streaming_reports_error_rates_and_latencies(
    corpus: Path, server: Running, tmp_path: Path
) -> None:
    options = ("--url", server.url, "--streaming", "--num-tasks", "2", "--language", "en")
    code, printed, wrong = bench(tmp_path, str(corpus), *options, "--log-dir", str(tmp_path))
    assert (code, wrong) == (0, "")
    found = report(tmp_path)
    assert (found["recordings"], found["failed"], found["tasks"]) == (3, 0, 2)
    assert found["wer"]["percent"] < 35
    assert 400 < found["latency_ms"]["p50"] < 5000
    assert found["first_partial_ms"]["p50"] > 0
    assert 0 < found["partial_words_kept"] <= 1
    assert 0.3 < found["rtf"] < 3
    assert f"| RTF = wall / audio | {found['rtf']:.4f} |" in printed
    written = {file.name for file in tmp_path.glob("*-home.*")}
    names = ("rtf", "recogs", "errs", "errs-cer", "stats_summary")
    text_files = {f"{name}-home.txt" for name in names}
    assert written == text_files | {"asr-home.json", "asr-home.svg"}
    assert "model name is whisper-1" in (tmp_path / "stats_summary-home.txt").read_text()
    assert (tmp_path / "rtf-home.txt").read_text().startswith(f"RTF: {found['rtf']:.4f}\n")
    ET.parse(tmp_path / "asr-home.svg")


def test_uploads_report_error_rates_and_latencies(
    corpus: Path, server: Running, tmp_path: Path
) -> None:
    options = ("--url", server.url, "--num-tasks", "9", "--limit", "2", "--json")
    code, printed, wrong = bench(tmp_path, str(corpus), *options, "--log-dir", str(tmp_path))
    assert (code, wrong) == (0, "earshot: 2 recordings for 9 tasks\n")
    found = json.loads(printed)
    assert (found["way"], found["recordings"], found["failed"], found["tasks"]) == ("rest", 2, 0, 2)
    assert found["wer"]["percent"] < 35
    assert 0 < found["latency_ms"]["p50"] < 20_000
    assert found["first_partial_ms"] is None
    assert "batch_size" in (tmp_path / "stats_summary-home.txt").read_text()


def test_uploads_can_vary_padding_and_decoding(
    corpus: Path, server: Running, tmp_path: Path
) -> None:
    options = ("--url", server.url, "--limit", "1", "--json", "--log-dir", str(tmp_path))
    code, printed, wrong = bench(tmp_path, str(corpus), *options, "--padding", "300")
    assert (code, wrong) == (0, "")
    found = json.loads(printed)
    assert (found["padding_ms"], found["decoding"]) == (300, {})
    code, printed, _ = bench(tmp_path, str(corpus), *options, "--beam", "5", "--hotwords", "lamp")
    assert code == 0
    assert json.loads(printed)["decoding"] == {"hotwords": "lamp", "beam_size": "5"}
    code, _, wrong = bench(tmp_path, str(corpus), *options, "--prefix", "<|en|>")
    assert code == 1
    assert "prefix" in wrong  # PocketSphinx has none
    code, _, wrong = bench(tmp_path, str(corpus), *options, "--streaming", "--beam", "5")
    assert code == 2
    assert "for uploads only" in wrong


def test_a_missing_model_is_reported_for_each_recording(
    corpus: Path, server: Running, tmp_path: Path
) -> None:
    options = ("--url", server.url, "--model", "no-such-model")
    code, _, wrong = bench(tmp_path, str(corpus), *options, "--log-dir", str(tmp_path))
    assert code in {1, 5}
    assert "no-such-model" in wrong
    assert not list(tmp_path.iterdir())


def test_a_run_prints_willows_table(corpus: Path, server: Running) -> None:
    speech = decode_file(corpus / "light.wav")

    async def rows() -> list[WisTableRow]:
        table = measured(
            Address(server.url), ["whisper-1"], speech, language="en", timeout_s=60, rounds=1
        )
        return [row async for row in table]

    found = asyncio.run(rows())
    assert [row.speech_s for row in found] == [3.84, 10.688, 29.248, 180.0]
    assert all(row.took_ms > 0 for row in found)


def test_a_wrong_corpus_and_a_missing_server_have_exit_codes(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_text("light\n")
    (tmp_path / "trans.txt").write_text("light on\n")
    code, _, wrong = bench(tmp_path, str(tmp_path), "--streaming", "--url", "http://127.0.0.1:1")
    assert code == 2
    assert "wav.scp:1: expected exactly an id and a path, got 'light'" in wrong
    nobody = f"http://127.0.0.1:{unused_port()}"
    code, _, wrong = bench(tmp_path, str(corpus), "--streaming", "--url", nobody)
    assert code == 5
    assert wrong.startswith(f"earshot: {nobody} cannot be reached")
    assert len(wrong.splitlines()) == 1


def test_bench_asr_is_a_command_of_earshot(tmp_path: Path) -> None:
    code, printed, _ = bench(tmp_path, "--help")
    assert code == 0
    assert "--num-tasks" in printed
    assert ROOT.joinpath("docs", "bench.md").is_file()
