"""Finds the GGUF files of a model in a folder. A large model is split into several files, and a
model that takes images has a second one, the vision projector."""

import re
from collections.abc import Sequence
from pathlib import Path

from engines.runtime.model_files.gguf_file import GgufHeader, UnreadableGgufError, read_gguf_header

_PROJECTOR_NAME = re.compile(r"(?i)mmproj.*\.gguf")
_PART_NAME = re.compile(r".+-(\d{5})-of-(\d{5})\.gguf")
"Name of one file of a model that was split into several."


def model_files(folder: Path) -> Sequence[Path]:
    """Returns the GGUF files of a folder that are models: of a split model only the first file, and
    no vision projectors."""
    files = sorted(path for path in folder.glob("*.gguf") if path.is_file())
    return [file for file in files if not _is_projector(file) and _part_number(file) == 1]


def only_model(path: Path) -> Path:
    """Returns the GGUF file at a path: the path itself, or the only model of a folder. Raises
    UnreadableGgufError for a folder with none or several."""
    if not path.is_dir():
        return path
    files = model_files(path)
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise UnreadableGgufError(f"{path} must hold one GGUF model, it holds: {names}")
    return files[0]


def check_parts(file: Path) -> GgufHeader:
    """Checks all files of a model and returns the header of the first. `file`: the first file.
    Raises UnreadableGgufError if one is missing or damaged."""
    header, *_ = [read_gguf_header(part) for part in part_files(file)]
    return header


def part_files(file: Path) -> Sequence[Path]:
    """Returns all files of a model of which `file` is the first; some may be missing."""
    match = _PART_NAME.fullmatch(file.name)
    if match is None:
        return (file,)
    name, count = file.name[: match.start(1)], int(match[2])
    numbers = range(1, count + 1)
    return [file.with_name(f"{name}{number:05}-of-{match[2]}.gguf") for number in numbers]


def projectors(folder: Path) -> Sequence[Path]:
    """Returns the vision projectors of a folder, by their usual names."""
    return [path for path in sorted(folder.glob("*.gguf")) if _is_projector(path)]


def _is_projector(path: Path) -> bool:
    return _PROJECTOR_NAME.fullmatch(path.name) is not None


def _part_number(path: Path) -> int:
    match = _PART_NAME.fullmatch(path.name)
    return int(match[1]) if match else 1
