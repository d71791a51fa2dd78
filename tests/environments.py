"""Environments with other packages than ours, made by uv: with a fifth of pip's processor time."""

import os
import sys
import sysconfig
from pathlib import Path
from subprocess import run

UV = str(Path(sysconfig.get_path("scripts")) / "uv")
"It is installed with the packages for development."

INSTALL_S = 900.0
"A limit for what takes a minute where the packages must be fetched."


def make_environment(folder: Path, *wanted: str, python: str = sys.executable) -> Path:
    """Makes an environment with packages; returns its interpreter.

    `wanted`: arguments of `uv pip install`. `python`: the interpreter to use.
    Raises CalledProcessError, TimeoutExpired.
    """
    run([UV, "venv", "--quiet", "--clear", "--python", python, str(folder)], check=True)
    made = folder / "bin" / "python"
    install = [UV, "pip", "install", "--quiet", "--python", str(made), *wanted]
    run(install, check=True, timeout=INSTALL_S, env=os.environ | _wheels_of_pip())
    return made


def _wheels_of_pip() -> dict[str, str]:
    """Lets uv find the folder of wheels that pip is set up with, such as that of a small torch."""
    folders = os.environ.get("PIP_FIND_LINKS")
    return {"UV_FIND_LINKS": folders} if folders else {}
