"""Runs `earshot models` as a process."""

import os
from pathlib import Path
from sys import executable

from tests.server.forked import run_earshot
from tests.server.process import TIMEOUT_S
from tests.shared import ROOT

COMMAND = [executable, "-m", "server", "models"]


def environment_of(models: Path, hub: str) -> dict[str, str]:
    return {
        "EARSHOT_MODELS_DIR": str(models),
        "HF_ENDPOINT": hub,
        "HOME": str(models.parent),
        "NO_PROXY": "*",
        "PATH": "",  # no nvidia-smi: `auto` is the same everywhere
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",  # nor a package index, unless a test says so
    }


def earshot(models: Path, hub: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    env = environment_of(models, hub) | environment
    done = run_earshot(["models", *arguments], ROOT, env, TIMEOUT_S)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def last_line(models: Path, hub: str, *arguments: str, **environment: str) -> str:
    code, out, err = earshot(models, hub, *arguments, **environment)
    assert code == 0, err
    return out.strip().splitlines()[-1]
