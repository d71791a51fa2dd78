"""Reads the environment that `earshot engines install vllm` makes."""

from pathlib import Path

from engines.runtime.external_server.installation import ServerInstallation, read_marker

PYTHON = Path("bin/python")
"Path of the interpreter within the environment."


def python_of(folder: Path) -> Path:
    """Returns the path of the environment's interpreter.

    The path is a link and is not resolved: Python finds the environment's packages through it.
    """
    return folder / PYTHON


def read_environment(folder: Path) -> ServerInstallation | None:
    """Returns the installation in a folder; None if there is none, or if it is incomplete."""
    return read_marker(folder, PYTHON)
