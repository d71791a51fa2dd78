"""The environment that `earshot engines install vllm` makes, and the marker file in it.

The marker is written last, and only after vLLM was imported there once. So a folder without it is
incomplete, whatever else it holds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

VllmDevice = Literal["cpu", "cuda"]

MARKER = "earshot-engine.json"

FORMAT = 1
"Version of the marker's format; a marker of another version is not read."


class VllmEnvironment(msgspec.Struct, frozen=True):
    """Content of the marker."""

    device: VllmDevice
    packages: Mapping[str, str]
    "Versions of the important packages: name -> version."
    python: str
    "Version of the interpreter."
    format: int = FORMAT


def python_of(folder: Path) -> Path:
    """Returns the path of the environment's interpreter.

    The path is a link and is not resolved: Python finds the environment's packages through it.
    """
    return folder / "bin" / "python"


def read_environment(folder: Path) -> VllmEnvironment | None:
    """Returns what is installed in a folder; None if nothing is, or the installation broke off."""
    try:
        environment = msgspec.json.decode((folder / MARKER).read_bytes(), type=VllmEnvironment)
    except (OSError, msgspec.DecodeError):
        return None
    return environment if environment.format == FORMAT and python_of(folder).exists() else None


def write_marker(folder: Path, environment: VllmEnvironment) -> None:
    """Marks an environment as complete. Raises OSError."""
    partial = folder / f".{MARKER}.new"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(environment), indent=2) + b"\n")
    partial.replace(folder / MARKER)
