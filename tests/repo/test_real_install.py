"""The first minutes of a new user: clone, `make run`, the content of the image and the release."""

import json
import os
import re
import shlex
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from subprocess import DEVNULL, PIPE, STDOUT, CompletedProcess, Popen, run
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from server.commands.lock_file import name_of
from tests.conftest import require
from tests.ports import reserved_port
from tests.repo.files import PACKAGES, copy_repository
from tests.repo.guide import blocks
from tests.shared import ROOT

READY_S = 8.0  # the default voice loads too: 4 to 5 s alone; more beside other programs
TRIES = 3  # a machine that does something else besides makes any one of them slow
STOP_S = 20.0  # longer than the server drains

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("checkout")]


def _environment(**more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "EARSHOT_", "VIRTUAL_ENV"))
        and name not in {"ARGS", "CI", "EXTRAS", "HOST", "PORT", "VENV"}
    }
    return kept | more


def _ready_after_s(url: str, server: Popen[str], limit_s: float) -> float:
    """Returns the seconds until `url` answers; fails if the server ends first or at the limit."""
    started = time.monotonic()
    while (elapsed := time.monotonic() - started) < limit_s:
        assert server.poll() is None, "the server ended before it was ready"
        try:
            with urlopen(url, timeout=1):
                return elapsed
        except (URLError, OSError):
            time.sleep(0.05)  # polling another process: there is nothing to wait on
    pytest.fail(f"not ready within {limit_s} s")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone with an environment of its own, as `make install` makes it."""
    require(which("git") and which("make"), "git and make")
    clone = tmp_path_factory.mktemp("fresh") / "earshot"
    run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    run(["make", "install"], cwd=clone, env=_environment(), stdout=DEVNULL, check=True)
    return clone


@pytest.mark.alone
def test_make_run_from_a_fresh_clone_is_ready_in_time(clone: Path) -> None:
    with reserved_port() as port:
        assert any(_is_ready_in_time(clone, port) for _ in range(TRIES))


GUIDE = blocks(ROOT / "docs" / "first-hour.md")


@pytest.mark.alone
def test_the_first_hour_goes_as_its_page_says(clone: Path, tmp_path: Path) -> None:
    require(_is_free(8080), "port 8080, which the page names")
    shown = [block.lines for block in GUIDE if block.language == "sh"]
    cloning, (start,), talks, (doctor,), (start_for_all,) = shown
    assert cloning[0].startswith("git clone REPOSITORY earshot"), "the fixture has done it"
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    with _started(start, clone, home) as output:
        assert "http://127.0.0.1:8080" in output[-1]
        answers = [_run(command, clone, home) for command in talks]
    assert [answer.returncode for answer in answers] == [0, 0, 0], answers
    assert "Turned on the kitchen lights." in answers[0].stdout
    checked = _run(doctor, clone, home)
    assert checked.returncode == 0, checked.stdout
    assert "FAIL" not in checked.stdout
    with _started(start_for_all, clone, home) as output:
        assert any(re.search(r"https://\S+/#key=\S", line) for line in output), output
    (settings,) = [block.text for block in GUIDE if block.language == "toml"]
    (clone / "earshot.toml").write_text(settings, encoding="utf-8")
    configured = _run(".venv/bin/earshot config", clone, home)
    (clone / "earshot.toml").unlink()
    assert configured.returncode == 0, configured.stdout
    assert "qwen3:4b" in configured.stdout


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _run(command: str, folder: Path, home: Mapping[str, str]) -> CompletedProcess[str]:
    """Runs a line of the page in a shell."""
    return run(
        ["bash", "-c", command],
        cwd=folder,
        env=_environment(**home),
        stdout=PIPE,
        stderr=STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def _started(command: str, folder: Path, home: Mapping[str, str]) -> Iterator[list[str]]:
    """Runs a line of the page that starts the server; yields its output until it is ready."""
    with Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=folder,
        env=_environment(**home),
        stdout=PIPE,
        stderr=STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        output: list[str] = []
        for line in server.stdout:
            output.append(line.rstrip())
            if " ready in " in line:
                break
        try:
            assert server.poll() is None, output
            yield output
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=STOP_S)


def _is_ready_in_time(clone: Path, port: int) -> bool:
    ready_s, output = _ready_and_stopped(clone, port)
    assert "Traceback" not in output
    print(f"ready in {ready_s:.1f} s", output, sep="\n")
    return ready_s <= READY_S


def _ready_and_stopped(clone: Path, port: int) -> tuple[float, str]:
    """Returns the seconds until `make run` serves the page, and its output until it was stopped."""
    command = ["make", "run", f"PORT={port}", "PULL=0"]
    with Popen(
        command, cwd=clone, env=_environment(), stdout=PIPE, stderr=STDOUT, text=True
    ) as server:
        try:
            ready_s = _ready_after_s(f"http://127.0.0.1:{port}/health", server, 60)
            with urlopen(f"http://127.0.0.1:{port}/", timeout=5) as page:
                assert b"<html" in page.read()
        finally:
            server.send_signal(signal.SIGTERM)
            output, _ = server.communicate(timeout=STOP_S)
    return ready_s, output


def test_the_image_holds_a_working_server(tmp_path: Path) -> None:
    """Runs the COPY and RUN lines of the Dockerfile without Docker."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [
        part
        for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
        for part in line.split()[:-1]
    ]
    build, venv = tmp_path / "build", tmp_path / "opt" / "earshot"
    copy_repository(build, *copied)
    (line,) = re.findall(r"^RUN (VENV=\S+ .*GPU=0 .*install\.sh)$", dockerfile, re.MULTILINE)
    settings = dict(word.split("=", 1) for word in shlex.split(line)[:-1])
    assert settings["EXTRAS"] == "$EXTRAS"
    assert 'ARG EXTRAS=""' in dockerfile
    environment = _environment(**settings | {"VENV": str(venv), "EXTRAS": ""})
    run(["scripts/install.sh"], cwd=build, env=environment, stdout=DEVNULL, check=True)

    code = f"for name in {PACKAGES!r}: print(__import__(name).__file__)"
    done = run(
        [str(venv / "bin/python"), "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(Path(name).is_relative_to(venv) for name in done.stdout.split())
    assert (next(venv.glob("lib/*/site-packages")) / "web/static/index.html").is_file()
    run([str(venv / "bin/earshot"), "--help"], cwd=tmp_path, stdout=DEVNULL, check=True)


def test_a_release_lists_its_dependencies(tmp_path: Path) -> None:
    """The tool that makes the list validates its form; this tests the content."""
    source, dist = tmp_path / "source", tmp_path / "dist"
    copy_repository(source)
    command = ["make", "release"]
    run(command, cwd=source, env=_environment(DIST=str(dist)), stdout=DEVNULL, check=True)
    (listed,) = dist.glob("earshot-server-*.cdx.json")
    bom = json.loads(listed.read_text(encoding="utf-8"))
    assert bom["bomFormat"] == "CycloneDX"
    assert bom["metadata"]["component"]["name"] == "earshot-server"
    found = {name_of(one["name"]): one for one in bom["components"]}
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = {(name_of(pin[1]), pin[2]) for pin in re.finditer(r"(?m)^(\S+)==(\S+)", lock)}
    assert {(name, one["version"]) for name, one in found.items()} <= pins
    assert {"aiohttp", "aiortc", "faster-whisper", "setuptools", "pip"} <= set(found)
    without_licence = {name for name, one in found.items() if not one.get("licenses")}
    assert len(without_licence) < len(found) / 4  # some packages declare none
    assert str(tmp_path) not in listed.read_text(encoding="utf-8")
    sums = run(["sha256sum", "--check", "--quiet", *dist.glob("*.sha256")], cwd=dist, check=False)
    assert sums.returncode == 0
    assert len(list(dist.glob("earshot_server-*.whl"))) == 1
