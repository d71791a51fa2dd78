"""The install script names the true cause when venv or pip fails. A fake interpreter fails as the
real ones do, with the same messages."""

import os
import socket
import sys
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

from server.commands.engines.pip import failure, venv_failure
from server.config import Config
from server.net.port_check import address
from tests.shared import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("checkout")]

INTERPRETER = """#!/bin/sh
if [ "$2" = "$FAILING" ]; then cat "$SAYS" >&2; exit 1; fi
case "$2" in
  venv) for folder; do :; done; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python";;
  ensurepip | pip) ;;
  *) exec "$REAL" "$@" ;;
esac
"""

FULL = "[Errno 28] No space left on device: '/srv/earshot/.venv/lib'"
READ_ONLY = "[Errno 30] Read-only file system: '/srv/earshot/.venv'"
FORBIDDEN = "[Errno 13] Permission denied: '/srv/earshot/.venv/lib'"
NO_NETWORK = """WARNING: Retrying after connection broken by 'NewConnectionError(...)'
ERROR: Could not find a version that satisfies the requirement pip==26.3 (from versions: none)
ERROR: No matching distribution found for pip==26.3"""
OTHER_HASH = """ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
    msgspec==0.20.0 from https://index.example/msgspec.whl:
        Expected sha256 00
             Got        11"""
TRACEBACK = "Traceback (most recent call last):\n  ...\nRuntimeError: the moon is full"

DISK_FULL = "the disk is full; pip also needs room in TMPDIR"
NO_VENV = "this Python cannot create virtual environments; on Debian and Ubuntu: apt install"
CASES = [
    ("venv", f"Error: {READ_ONLY}", "/srv/earshot/.venv cannot be written: read-only file system"),
    ("venv", f"Error: {FORBIDDEN}", "/srv/earshot/.venv/lib cannot be written: permission denied"),
    ("venv", f"Error: {FULL}", DISK_FULL),
    ("venv", "/usr/bin/python3: No module named venv", NO_VENV),
    ("venv", TRACEBACK, "python -m venv: RuntimeError: the moon is full"),
    ("venv", "", "python -m venv: no reason given"),
    ("ensurepip", f"Traceback:\n  ...\nOSError: {FULL}", DISK_FULL),
    ("ensurepip", "/srv/earshot/.venv/bin/python: No module named ensurepip", NO_VENV),
    ("pip", NO_NETWORK, "the package index cannot be reached; pip's own settings"),
    (
        "pip",
        "SSLError(CERTIFICATE_VERIFY_FAILED)",
        "the package index's certificate is not trusted",
    ),
    ("pip", f"ERROR: Could not install packages due to an OSError: {FULL}", DISK_FULL),
    (
        "pip",
        "No usable temporary directory found in ['/tmp']",
        "no temporary folder can be written",
    ),
    ("pip", "OSError: [Errno 122] Disk quota exceeded", "the disk quota is used up"),
    ("pip", f"ERROR: {FORBIDDEN}", "/srv/earshot/.venv/lib cannot be written: permission denied"),
    ("pip", OTHER_HASH, "msgspec==0.20.0: the download does not match its hash"),
    ("pip", "ERROR: No matching distribution found for x==1", "the package index does not have x"),
]


@pytest.mark.parametrize(("failing", "says", "cause"), CASES)
def test_the_cause_of_each_failure_is_recognised(failing: str, says: str, cause: str) -> None:
    explain = failure if failing == "pip" else venv_failure
    assert str(explain(says.splitlines())).startswith(cause)


def _install(folder: Path, failing: str, says: str, *serve: str) -> CompletedProcess[str]:
    interpreter, words = folder / "python", folder / "says"
    interpreter.write_text(INTERPRETER)
    interpreter.chmod(0o755)
    words.write_text(says)
    kept = {k: v for k, v in os.environ.items() if k != "EXTRAS" and not k.startswith("EARSHOT_")}
    own = {"REAL": sys.executable, "FAILING": failing, "SAYS": str(words), "GPU": "0"}
    return run(
        [ROOT / "scripts" / "install.sh", *serve],
        env=kept | own | {"VENV": str(folder / "venv"), "PYTHON": str(interpreter)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("failing", "says", "cause"), [CASES[0], CASES[7], CASES[8]])
def test_the_last_line_of_the_install_script_names_the_cause(
    failing: str, says: str, cause: str, tmp_path: Path
) -> None:
    done = _install(tmp_path, failing, says)
    assert done.returncode == 1
    *heard, last = done.stderr.splitlines()
    assert last.startswith(f"earshot install: {cause}")
    assert [line.strip() for line in heard] == [line.strip() for line in says.splitlines()]
    assert not (tmp_path / "venv" / ".earshot-installed").exists()


def test_a_taken_port_stops_the_installation_before_it_begins(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = _install(
            tmp_path, "venv", "never asked", "serve", "--tls", "auto", "--port", str(port)
        )
    assert done.returncode == 3
    assert done.stderr.startswith(f"earshot: 127.0.0.1:{port} is in use by another program;")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ((), {}, ("127.0.0.1", 8080)),
        (("--port", "1", "--host=::"), {"EARSHOT_PORT": "2", "EARSHOT_HOST": "::1"}, ("::", 1)),
        (("--tls", "auto"), {"EARSHOT_SERVER__PORT": "3"}, ("127.0.0.1", 3)),
        (("--config", "own.toml"), {}, ("0.0.0.0", 4)),
        ((), {"EARSHOT_CONFIG": "own.toml", "EARSHOT_PORT": "5"}, ("0.0.0.0", 5)),
    ],
)
def test_the_checked_port_is_the_one_the_server_will_use(
    arguments: tuple[str, ...],
    variables: dict[str, str],
    expected: tuple[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('[server]\nhost = "0.0.0.0"\nport = 4\n')
    assert address(arguments, variables) == expected


def test_the_checked_defaults_are_those_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert address((), {}) == (Config().server.host, Config().server.port)


def test_what_runs_before_the_installation_needs_only_python() -> None:
    for module in (
        "server.commands.engines.pip",
        "server.commands.lock_file",
        "server.net.port_check",
    ):
        done = run([sys.executable, "-S", "-c", f"import {module}"], cwd=ROOT, check=False)
        assert done.returncode == 0, module
