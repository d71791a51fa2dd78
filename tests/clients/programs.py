"""Programs that use a client library exactly as its registry has it."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import require
from tests.environments import make_environment

FOLDER = Path(__file__).parent
INSTALL_TIMEOUT_S = 120.0
RUN_TIMEOUT_S = 90.0


def npm_program(name: str, folder: Path) -> Path:
    """Copies `tests/clients/<name>` into this folder and installs exactly its locked packages."""
    require(shutil.which("node") and shutil.which("npm"), "Node.js with npm")
    shutil.copytree(
        FOLDER / name, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules")
    )
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT_S)
    return folder


def python_with(lock: Path, folder: Path) -> Path:
    """Makes an environment with exactly the locked packages; returns its interpreter."""
    return make_environment(folder, "--no-deps", "-r", str(lock))


def told_by(
    folder: Path, *command: str | Path, environment: Mapping[str, str] | None = None
) -> Any:
    """Returns the JSON of the last line that a program printed."""
    ran = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.splitlines()[-1])
