"""From a clone to a server: the targets of make, the install script and the images."""

import os
import re
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

from server.commands.extras import EXTRAS
from server.commands.service.unit import STATE
from server.config.load import load
from tests.repo.files import PACKAGES
from tests.shared import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("checkout")]

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")

MAKE_SETS = {"ARGS", "EXTRAS", "HOST", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PORT", "PULL"}
"What an outer `make test ARGS=...` hands down to this process."


def _make(*arguments: str) -> CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in MAKE_SETS}
    return run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_plain_make_lists_the_targets() -> None:
    listed = set(re.findall(r"^ +make (\S+)", _make().stdout, re.MULTILINE))
    assert {
        "run",
        "test",
        "test-real",
        "check",
        "soak",
        "bench",
        "lock",
        "release",
        "clean",
    } <= listed


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ((), "earshot serve"),
        (("PORT=9000", "HOST=0.0.0.0"), "earshot serve --host '0.0.0.0' --port '9000'"),
        (("ARGS=--tls auto",), "earshot serve --tls auto"),
    ],
)
def test_make_run_passes_host_and_port(arguments: tuple[str, ...], command: str) -> None:
    lines = [" ".join(line.split()) for line in _make("-n", "run", *arguments).stdout.splitlines()]
    assert [line for line in lines if line.startswith("exec ")][-1].endswith(command)


@pytest.mark.parametrize("python", ["/nonexistent/python", "/bin/false"])
def test_no_usable_python_is_one_clear_line(python: str, tmp_path: Path) -> None:
    done = _make("install", f"VENV={tmp_path / 'venv'}", f"PYTHON={python}")
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert said == [f"earshot install: PYTHON={python} is not a working Python >= 3.11"]


def test_images_start_from_pinned_bases_and_stages() -> None:
    stages: set[str] = set()
    for base, stage in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE):
        assert base in stages or re.fullmatch(
            r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?", base
        ), base
        stages.add(stage)
    assert {"cpu", "gpu"} <= stages
    assert len(re.findall(r"^FROM ", DOCKERFILE, re.MULTILINE)) == len(stages)
    compose = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"target: (\w+)", compose)) <= stages


def test_compose_and_documents_agree_on_the_ports_of_calls() -> None:
    compose = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    webrtc = (ROOT / "docs" / "webrtc.md").read_text(encoding="utf-8")
    ranges = re.findall(r"(?<![\d-])\d{5}-\d{5}(?![\d-])", compose) + re.findall(
        r"(?:-p |:|ports = \")(\d{5}-\d{5})", webrtc
    )
    assert len(ranges) > 5
    assert len(set(ranges)) == 1
    shown = dict(re.findall(r"^# +(EARSHOT_\w+): (\S+)$", compose, re.MULTILINE))
    given = {
        name: value.strip('"').replace("ADDRESS", "192.0.2.7") for name, value in shown.items()
    }
    ice = load(given).config.ice
    assert (ice.ports, ice.public_address) == (ranges[0], "192.0.2.7")
    assert re.search(r"^  network_mode: host$", compose, re.MULTILINE)
    port = re.findall(r'"--port", "(\d+)"', DOCKERFILE)[0]
    assert f'"{port}:{port}"' in compose
    assert f"-p {port}:{port}" in webrtc


def test_the_page_on_operation_names_what_exists() -> None:
    """A test of the documented commands parses its `earshot` commands."""
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"make (\w+)", page))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets
    assert {one for one in targets if not re.search(rf"^{one}:", makefile, re.MULTILINE)} == set()
    compose = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    for service in re.findall(r"docker compose (?:exec|--profile gpu up) (\w+)", page):
        assert re.search(rf"^  {service}:$", compose, re.MULTILINE), service
    extras = " ".join(re.findall(r"(?:EXTRAS=|extras add )([a-z, ]+)", page))
    assert set(re.findall(r"[a-z]+", extras)) <= set(EXTRAS)
    for folder in re.findall(r"/var/(?:lib|cache)/(\w+)", page):
        assert folder == STATE
    shell = "".join(re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    programs = {"earshot", ".venv/bin/earshot", "cd", "docker", "git", "make", "systemctl"}
    words = (line.removeprefix("sudo ").split() for line in shell.splitlines())
    assert {next(word for word in line if "=" not in word) for line in words} <= programs


def test_images_install_the_extras_that_are_asked_for() -> None:
    for stage in ("installed-cpu", "installed-gpu"):
        part = DOCKERFILE.split(f" AS {stage}\n")[1].split("\nFROM ")[0]
        assert re.search(r'^ARG EXTRAS=""\nRUN .* EXTRAS="\$EXTRAS" ', part, re.MULTILINE)


def test_images_run_unprivileged_with_a_health_check() -> None:
    base = DOCKERFILE.split(" AS base\n")[1].split("\nFROM ")[0]
    assert re.findall(r"^USER (\S+)$", base, re.MULTILINE) == ["10001:10001"]
    assert re.search(r"^HEALTHCHECK .*CMD \[.*/health", base, re.MULTILINE)
    assert re.search(r'^CMD \["earshot", "serve", .*\]$', base, re.MULTILINE)
    state = re.findall(r"EARSHOT_STATE_DIR=(\S+)", base)  # a key that is not in a volume gets lost
    assert state
    assert f'"{state[0]}"' in re.findall(r"^VOLUME (.*)$", base, re.MULTILINE)[0]
    assert "USER" not in DOCKERFILE.split(" AS base\n")[1].split("\nFROM ", 1)[1]


def test_images_hold_every_package_and_use_the_install_script() -> None:
    assert set(re.findall(r"^COPY (\w+)/ \1/$", DOCKERFILE, re.MULTILINE)) == {
        *PACKAGES,
        "scripts",
    }
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {f"!{package}" for package in PACKAGES} <= set(allowed)
    assert len(re.findall(r"^RUN .*scripts/install\.sh$", DOCKERFILE, re.MULTILINE)) == 2
    assert "pip install" not in DOCKERFILE
