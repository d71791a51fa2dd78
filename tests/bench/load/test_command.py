"""`earshot bench embeddings`, `rerank`, `chat` and `tts` as users run them, on real servers."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.load import command
from tests.clients.scripted_server import answering
from tests.engines.embed.tiny_model import write_embedder, write_reranker
from tests.server.process import Running
from tests.server.process import run as run_earshot
from tests.terminal import Terminal

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yields a server with two small text models, and a language model that answers in 7 tokens."""
    folder = tmp_path_factory.mktemp("server")
    write_embedder(folder / "models/tiny-embedder")
    write_reranker(folder / "models/tiny-reranker")
    with answering(folder, EARSHOT_PATHS__MODELS_DIR=str(folder / "models")) as server:
        yield server


def bench(folder: Path, url: str, *arguments: str) -> tuple[int, str, str]:
    """Runs `earshot bench`; returns its exit code, output and errors."""
    done = run_earshot(folder, "bench", *arguments, "--url", url)
    return done.returncode, done.stdout, done.stderr


def rows(output: str) -> list[list[str]]:
    """Returns the cells of the table, without its head."""
    lines = [line for line in output.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_rate_of_embeddings_is_by_the_wall_time(server: Running, tmp_path: Path) -> None:
    code, output, _ = bench(
        tmp_path,
        server.url,
        *("embeddings", "--clients", "1", "8", "--connections", "both", "--requests", "24"),
        *("--words", "2", "--inputs", "3", "--json"),
    )
    assert code == 0
    runs = json.loads(output)["runs"]
    assert [
        (run["clients"], run["is_kept"], len(run["answers"]), run["errors"]) for run in runs
    ] == [(clients, is_kept, 24, {}) for clients in (1, 8) for is_kept in (True, False)]
    for run in runs:
        assert run["requests_per_s"] == pytest.approx(24 / run["wall_s"])
        took_s = sum(one["took_ms"] for one in run["answers"]) / 1000
        # with eight clients at once the requests overlap; alone they cannot
        assert (took_s > run["wall_s"]) == (run["clients"] == 8)


def test_documents_are_reranked(server: Running, tmp_path: Path) -> None:
    code, output, _ = bench(
        tmp_path,
        server.url,
        *("rerank", "--clients", "2", "--requests", "4", "--documents", "20", "--words", "2"),
    )
    assert (code, rows(output)[0][:4]) == (0, ["2", "kept", "4", "0"])


def test_chat_counts_the_tokens_that_the_server_reports(server: Running, tmp_path: Path) -> None:
    code, output, _ = bench(
        tmp_path, server.url, "chat", "--clients", "1", "4", "--requests", "4", "--json"
    )
    assert code == 0
    runs = json.loads(output)["runs"]
    assert [(run["clients"], len(run["answers"]), run["errors"]) for run in runs] == [
        (1, 4, {}),
        (4, 4, {}),
    ]
    for run in runs:
        assert run["tokens_per_s"] == pytest.approx(4 * 7 / run["wall_s"])
        assert all(0 < one["first_ms"] <= one["took_ms"] for one in run["answers"])


def test_speech_is_measured_by_what_a_listener_hears(server: Running, tmp_path: Path) -> None:
    code, output, _ = bench(
        tmp_path,
        server.url,
        *("tts", "--clients", "2", "--requests", "4", "--words", "4", "--json"),
    )
    assert code == 0
    (run,) = json.loads(output)["runs"]
    for one in run["answers"]:
        assert 0 < one["first_ms"] <= one["took_ms"]
        assert 1 < one["sound_s"] < 5
    assert run["sound_per_s"] == pytest.approx(
        sum(one["sound_s"] for one in run["answers"]) / run["wall_s"]
    )


def test_a_ramp_of_speech_writes_its_files(server: Running, tmp_path: Path) -> None:
    ramp = ("--qps-ramp", "2:4:2", "--hold", "1", "--output", str(tmp_path / "ramp"))
    code, output, _ = bench(tmp_path, server.url, "tts", "--words", "1", *ramp)
    assert (code, [row[:4] for row in rows(output)]) == (
        0,
        [["2", "2", "2", "0"], ["4", "4", "4", "0"]],
    )
    names = {"config.json", "detailed_results.csv", "time_series_metrics.csv", "ramp.svg"}
    assert {path.name for path in (tmp_path / "ramp").iterdir()} == names
    code, _, why = bench(tmp_path, server.url, "tts", "--qps-ramp", "5:1:1")
    assert (code, "FROM:TO:STEP" in why) == (2, True)


def test_a_refusal_of_the_first_request_ends_the_run(server: Running, tmp_path: Path) -> None:
    code, _, why = bench(tmp_path, server.url, "embeddings", "--words", "90", "--requests", "1")
    assert (code, "the server answered 400" in why) == (5, True)


def test_the_error_names_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    code, _, why = bench(tmp_path, "http://127.0.0.1:1", "chat")
    assert (code, "http://127.0.0.1:1 cannot be reached" in why) == (5, True)


def test_a_terminal_shows_how_many_requests_of_all_runs_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def accept(*_: object) -> None:
        """Accepts a server that does not run; each request then fails at once."""

    out = Terminal()
    monkeypatch.setattr(command, "check_server", accept)
    monkeypatch.setattr("sys.stderr", out)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser, "chat")
    url = ("--url", "http://127.0.0.1:1")
    options = parser.parse_args([*url, "--clients", "1", "2", "--requests", "3", "--json"])
    options.measurement = "chat"
    assert command.main(options) == 1
    drawn = [line.split("]")[1].strip() for line in out.drawn()]
    assert (drawn[0], drawn[-1]) == ("0% of 6 requests", "100% of 6 requests")
