"""`earshot service` with a `systemctl` that writes down what it is asked."""

import json
from pathlib import Path

import pytest

from server.__main__ import main
from server.commands.exit_codes import ExitCode
from server.commands.service import command
from server.commands.service.unit import MARK, UNIT

pytestmark = pytest.mark.live

SYSTEMCTL = """#!/bin/sh
echo "$@" >> "{0}/asked"
case "$*" in *is-active*) echo active ;; *is-enabled*) echo enabled ;; esac
test ! -e "{0}/refuses" || {{ echo "Unit is masked." >&2; exit 1; }}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with systemd, and a program to start. Returns its folder."""
    for name in ("bin", "venv/bin", "units", "work"):
        (tmp_path / name).mkdir(parents=True)
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text(SYSTEMCTL.format(tmp_path))
    systemctl.chmod(0o755)
    (tmp_path / "venv" / "bin" / "earshot").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(command, "SYSTEMD_FOLDER", tmp_path)
    monkeypatch.setattr(command, "SYSTEM_UNITS", tmp_path / "units")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def _asked(machine: Path) -> list[str]:
    return (machine / "asked").read_text().splitlines()


def test_a_user_installs_asks_for_and_removes_a_service(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("EARSHOT_PORT", "9000")
    file = machine / "config" / "systemd" / "user" / UNIT
    assert main(["service", "install", "--user"]) == 0
    assert f"WorkingDirectory={machine / 'work'}\n" in file.read_text()
    assert "does not see this shell's variables: EARSHOT_PORT" in capsys.readouterr().out
    assert main(["service", "status", "--user", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "unit": str(file),
        "installed": True,
        "active": "active",
        "enabled": "enabled",
    }
    assert main(["service", "uninstall", "--user"]) == 0
    assert "keys and devices are still in" in capsys.readouterr().out
    assert not file.exists()
    assert _asked(machine) == [
        "--user daemon-reload",
        f"--user enable {UNIT}",
        f"--user restart {UNIT}",
        f"--user is-active {UNIT}",
        f"--user is-enabled {UNIT}",
        f"--user disable --now {UNIT}",
        "--user daemon-reload",
    ]


def test_root_installs_a_service_of_the_system(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "HIDDEN_FOLDERS", ())
    monkeypatch.setattr(command, "_is_reachable_by_all", lambda place: True)
    assert main(["service", "install"]) == 0
    assert "DynamicUser=yes" in (machine / "units" / UNIT).read_text()
    assert _asked(machine)[0] == "daemon-reload"


@pytest.mark.parametrize(
    ("break_it", "arguments", "words"),
    [
        ("SYSTEMD_FOLDER", ["install"], "systemd does not run on this machine"),
        ("SYSTEMD_FOLDER", ["status"], "systemd does not run on this machine"),
        ("user", ["install"], "needs root: use sudo, or --user"),
        ("user", ["uninstall"], "needs root: use sudo, or --user"),
        ("", ["install"], "a system service cannot read"),
        ("", ["uninstall"], "there is no service"),
        ("foreign", ["install", "--user"], "was not written by Earshot"),
        ("foreign", ["uninstall", "--user"], "was not written by Earshot"),
        ("refuses", ["install", "--user"], "systemctl --user daemon-reload: Unit is masked."),
        ("program", ["install", "--print"], "install Earshot with `make install` first"),
    ],
)
def test_a_refusal_is_one_line(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    break_it: str,
    arguments: list[str],
    words: str,
) -> None:
    match break_it:
        case "SYSTEMD_FOLDER":
            monkeypatch.setattr(command, "SYSTEMD_FOLDER", machine / "none")
        case "user":
            monkeypatch.setattr("os.geteuid", lambda: 1000)
        case "foreign":
            file = machine / "config" / "systemd" / "user" / UNIT
            file.parent.mkdir(parents=True)
            file.write_text("[Unit]\n")
        case "refuses":
            (machine / "refuses").touch()
        case "program":
            (machine / "venv" / "bin" / "earshot").unlink()
        case _:
            monkeypatch.setattr(command, "HIDDEN_FOLDERS", (machine,))
    assert main(["service", *arguments]) == ExitCode.CANNOT_RUN
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_the_unit_is_printed_without_systemd(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "SYSTEMD_FOLDER", machine / "none")
    (machine / "work" / "earshot.toml").write_text("[server]\nport = 443\n")
    assert main(["service", "install", "--print"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(MARK)
    assert f"LoadCredential=earshot.toml:{machine}/work/earshot.toml\n" in said
    assert "CapabilityBoundingSet=CAP_NET_BIND_SERVICE" in said
    assert not (machine / "asked").exists()
