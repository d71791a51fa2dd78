"""The example packages, installed with pip beside the wheel, as a user does."""

import json
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, run
from urllib.request import Request, urlopen

import pytest

from tests.plugins.packages import EXAMPLES
from tests.repo.files import build_wheel

pytestmark = pytest.mark.real

READY = re.compile(r"ready in [0-9.]+ s at (\S+)")

CONFIG = """
[asr]
engine = "beeps"
[tools.plugins.bins]
collected = { monday = "the blue one" }
[doors.ask]
path = "/question"
"""


def environment_with(wheels: list[Path], folder: Path) -> Path:
    """Installs the wheels into a new environment; returns its `earshot`. Dependencies come from
    this environment, so no index is used."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-index"]
    run([sys.executable, *install, "--no-deps", *map(str, wheels)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "earshot"


def test_packages_installed_by_pip_are_found_and_used(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    for example in EXAMPLES.values():
        shutil.copytree(example, sources / example.name)
    wheels = [build_wheel(one, tmp_path / "wheels") for one in sorted(sources.iterdir())]
    earshot = environment_with([build_wheel(None, tmp_path / "own"), *wheels], tmp_path / "venv")
    config = tmp_path / "earshot.toml"
    config.write_text(CONFIG)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("EARSHOT_", "PYTHON"))}
    kept |= {"XDG_STATE_HOME": str(tmp_path), "EARSHOT_WYOMING__PORT": "0"}
    start = [str(earshot), "serve", "--port", "0", "--config", str(config)]
    with Popen(start, cwd=tmp_path, env=kept, stdout=PIPE, stderr=STDOUT, text=True) as server:
        try:
            said = ""
            assert server.stdout is not None
            for line in server.stdout:
                said += line
                if ready := READY.search(line):
                    break
            else:
                pytest.fail(said)
            body = json.dumps({"question": "turn on the kitchen lights"}).encode()
            with urlopen(Request(f"{ready[1]}/question", data=body), timeout=30) as response:
                assert json.load(response) == {"answer": "Turned on the kitchen lights."}
        finally:
            server.kill()
    for kind in ("engine", "tool", "door"):
        assert f"earshot-example-{kind} 0.1.0" in said
