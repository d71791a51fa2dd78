"""Fetching a model must never stand in the way of a start, and never leave half a model behind."""

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import run
from sys import executable

import pytest

from bench.pull import BASE, REACH_TIMEOUT_S, SMALL, TINY, TURBO, Model, choose, installed
from tests.shared import ROOT

COMMIT = "0" * 40
FILES = {"config.json": b"{}", "model.bin": b"w" * 5000, "tokenizer.json": b"{}"}


class _Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download touches: listings and files with an ETag."""

    files = FILES

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        data: bytes | None
        if "/resolve/" in self.path:
            data, kind = self.files.get(name), "application/octet-stream"
        elif "/tree/" in self.path:
            entry = '{{"type":"file","oid":"{0}","size":{1},"path":"{0}"}}'
            entries = ",".join(entry.format(name, len(data)) for name, data in self.files.items())
            data, kind = f"[{entries}]".encode(), "application/json"
        else:
            listing = ",".join(f'{{"rfilename":"{name}"}}' for name in self.files)
            data = f'{{"id":"x/y","sha":"{COMMIT}","siblings":[{listing}]}}'.encode()
            kind = "application/json"
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data or b"")))
        self.send_header("ETag", f'"{hashlib.sha256(data or b"").hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(data or b"")


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def _pull(models: Path, hub: str, *arguments: str) -> tuple[str, float]:
    started = time.monotonic()
    done = run(
        [executable, "-m", "bench.pull", "--models", str(models), *arguments],
        env={"HF_ENDPOINT": hub, "PATH": "", "HOME": str(models), "NO_PROXY": "*"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.strip().splitlines()[-1], time.monotonic() - started


@pytest.mark.parametrize(
    ("cores", "memory_gb", "vram_gb", "model"),
    [
        (2, 3.7, 0, TINY),
        (2, 64, 0, TINY),
        (4, 7.7, 0, BASE),
        (16, 3, 0, TINY),
        (8, 15, 0, SMALL),
        (2, 8, 4, TINY),
        (4, 16, 8, TURBO),
    ],
)
def test_model_fits_the_machine(cores: int, memory_gb: float, vram_gb: float, model: Model) -> None:
    assert choose(cores, memory_gb, vram_gb) == model


def test_fetches_once_and_names_the_folder_only_when_whole(tmp_path: Path, hub: str) -> None:
    line, _ = _pull(tmp_path, hub, "--model", "tiny")
    folder = TINY.folder(tmp_path)
    assert line == f"Speech recognition: fetched {folder}."
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert installed(tmp_path) == folder
    line, _ = _pull(tmp_path, "http://127.0.0.1:9", "--model", "tiny")
    assert "nothing to fetch" in line


def test_half_a_model_is_no_model(
    tmp_path: Path, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Hub, "files", {"config.json": b"{}", "model.bin": b"w"})
    line, _ = _pull(tmp_path, hub, "--model", "tiny")
    assert "not fetched" in line
    assert "tokenizer.json" in line
    assert installed(tmp_path) is None


def test_refused_connection_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connecting is refused
        line, took_s = _pull(tmp_path, f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert "refused" in line
    assert "works without" in line
    assert took_s < REACH_TIMEOUT_S


def test_silent_hub_costs_only_the_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line, took_s = _pull(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "not fetched" in line
    assert took_s < REACH_TIMEOUT_S + 2  # two seconds for starting Python on a busy machine
