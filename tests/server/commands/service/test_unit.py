"""The systemd unit: what it holds, and that systemd itself accepts it."""

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import run

import pytest

from core.errors import ConfigError
from server.commands.service.unit import MARK, UNIT, UnitSettings, unit_text
from tests.conftest import require

pytestmark = pytest.mark.live

SYSTEM = UnitSettings(
    program=Path(sys.executable),
    working_folder=Path("/"),
    config_file=Path("/etc/earshot.toml"),
    certificate=(Path("/etc/ssl/a.pem"), Path("/etc/ssl/a.key")),
    is_user=False,
    has_low_port=False,
    has_gpu=False,
    drain_timeout_s=8.0,
)
USER = replace(SYSTEM, is_user=True)
BARE = replace(SYSTEM, config_file=None, certificate=None, has_low_port=True, has_gpu=True)

MOST_EXPOSED = 2.5
"Score of `systemd-analyze security`, from 0 (shut in) to 10. A unit without limits has 9.6."


def test_the_service_of_the_system_is_shut_in() -> None:
    lines = unit_text(SYSTEM).splitlines()
    assert lines[0] == MARK
    assert {
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateDevices=yes",
        "DynamicUser=yes",
        "StateDirectory=earshot",
        "CapabilityBoundingSet=",
        "KillMode=mixed",
        "TimeoutStopSec=28",
        "LoadCredential=earshot.toml:/etc/earshot.toml",
        "LoadCredential=key.pem:/etc/ssl/a.key",
        (
            f"ExecStart={sys.executable} serve --config ${{CREDENTIALS_DIRECTORY}}/earshot.toml"
            " --tls ${CREDENTIALS_DIRECTORY}/certificate.pem:${CREDENTIALS_DIRECTORY}/key.pem"
        ),
        "WantedBy=multi-user.target",
    } <= set(lines)


def test_a_low_port_and_a_gpu_get_what_they_need() -> None:
    lines = unit_text(BARE).splitlines()
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE" in lines
    assert "PrivateDevices=yes" not in lines
    assert f"ExecStart={sys.executable} serve" in lines


def test_the_service_of_a_user_needs_no_namespace() -> None:
    text = unit_text(USER)
    assert f"ExecStart={sys.executable} serve --config /etc/earshot.toml\n" in text
    assert "NoNewPrivileges=yes" in text
    assert "WantedBy=default.target" in text
    assert re.findall("^(?:Protect|Private|Dynamic|State|Load).*", text, re.MULTILINE) == []


@pytest.mark.parametrize("path", ["/a b/x", "/a%b", "/a$b", '/a"b', "/a:b", "/a\nb"])
def test_a_path_that_a_unit_cannot_hold_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot hold the path"):
        unit_text(replace(SYSTEM, working_folder=Path(path)))


@pytest.mark.parametrize("unit", [SYSTEM, BARE, USER], ids=["system", "bare", "user"])
def test_systemd_accepts_the_unit(tmp_path: Path, unit: UnitSettings) -> None:
    require(shutil.which("systemd-analyze"), "systemd-analyze (apt install systemd)")
    file = tmp_path / UNIT
    file.write_text(unit_text(unit))
    done = run(
        ["systemd-analyze", *(["--user"] if unit.is_user else []), "verify", str(file)],
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_finds_the_service_hardly_exposed(tmp_path: Path) -> None:
    require(shutil.which("systemd-analyze"), "systemd-analyze (apt install systemd)")
    file = tmp_path / UNIT
    file.write_text(unit_text(SYSTEM))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)]
    done = run(command, capture_output=True, text=True, check=True)
    score = re.search(r"exposure level for .*: ([0-9.]+)", done.stdout)
    assert score
    assert float(score[1]) <= MOST_EXPOSED
