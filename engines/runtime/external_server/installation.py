"""Marker file in the folder of a model server that `earshot engines install` made.

The marker is written last, and only after the server's program ran there once. So a folder without
a marker holds an incomplete installation.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

ServerDevice = Literal["cpu", "cuda"]

MARKER = "earshot-engine.json"

FORMAT = 1
"Version of the marker's format; a marker of another version is not read."


class ServerInstallation(msgspec.Struct, frozen=True):
    """Content of the marker."""

    device: ServerDevice
    packages: Mapping[str, str]
    "Versions of the important packages: name -> version."
    python: str
    "Version of the interpreter that installed it."
    format: int = FORMAT


def read_marker(folder: Path, program: Path) -> ServerInstallation | None:
    """Returns what is installed in a folder; None if nothing is, or if the installation is
    incomplete. `program`: path of the server's program within the folder."""
    try:
        installation = msgspec.json.decode((folder / MARKER).read_bytes(), type=ServerInstallation)
    except (OSError, msgspec.DecodeError):
        return None
    is_usable = installation.format == FORMAT and (folder / program).exists()
    return installation if is_usable else None


def write_marker(folder: Path, installation: ServerInstallation) -> None:
    """Marks an installation as complete. Raises OSError."""
    partial = folder / f".{MARKER}.new"
    data = msgspec.json.format(msgspec.json.encode(installation), indent=2)
    partial.write_bytes(data + b"\n")
    partial.replace(folder / MARKER)
