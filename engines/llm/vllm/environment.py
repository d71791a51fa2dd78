"""Where a vLLM that `earshot engines install vllm` made is, and what is in it.

The marker is written last, and only after vLLM was imported there once: a folder without it is
half made, whatever else it holds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

VllmDevice = Literal["cpu", "cuda"]

MARKER = "earshot-engine.json"

FORMAT = 1
"Of the marker; another one is not ours to read."


class VllmEnvironment(msgspec.Struct, frozen=True):
    """What the marker says."""

    device: VllmDevice
    packages: Mapping[str, str]
    "Those that decide: name -> version."
    python: str
    "Version of the interpreter."
    format: int = FORMAT


def python_of(folder: Path) -> Path:
    """The environment's interpreter. Not resolved: it is a link, and found through it are the
    environment's packages."""
    return folder / "bin" / "python"


def read_environment(folder: Path) -> VllmEnvironment | None:
    """What is installed there; None: nothing, or half of it."""
    try:
        made = msgspec.json.decode((folder / MARKER).read_bytes(), type=VllmEnvironment)
    except (OSError, msgspec.DecodeError):
        return None
    return made if made.format == FORMAT and python_of(folder).exists() else None


def write_marker(folder: Path, made: VllmEnvironment) -> None:
    """Say that it is whole. Raises OSError."""
    partial = folder / f".{MARKER}.new"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")
    partial.replace(folder / MARKER)
