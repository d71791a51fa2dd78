"""Finds llama.cpp's server and the GGUF files of a model."""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import EngineMissing
from engines.llm.llama_cpp.settings import NAME, Settings
from engines.runtime.external_server.installation import read_marker
from engines.runtime.gguf_file import GgufHeader, UnreadableGgufError, read_gguf_header

PROGRAM = "llama-server"

PROGRAM_PATH = Path("bin") / PROGRAM
"Path of the server within the folder of `earshot engines install llama_cpp`."

_PROJECTOR_NAME = re.compile(r"(?i)mmproj.*\.gguf")
_PART_NAME = re.compile(r".+-(\d{5})-of-(\d{5})\.gguf")
"Name of one file of a model that was split into several."


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A model, and the vision projector that belongs to it."""

    file: Path
    "Its only file, or the first one of several."
    header: GgufHeader
    projector: Path | None = None
    "File that turns images into tokens; None: the model takes no images."


def find_program(settings: Settings) -> Path:
    """Returns the path of llama-server. Raises EngineMissing if there is none."""
    if settings.program:
        program = Path(settings.program).expanduser().absolute()
        if not os.access(program, os.X_OK) or program.is_dir():
            raise EngineMissing("llm", NAME, f"program: {program} is no program")
        return program
    if settings.installation:
        folder = Path(settings.installation).expanduser().absolute()
        if read_marker(folder, PROGRAM_PATH) is not None:
            return folder / PROGRAM_PATH
    if found := shutil.which(PROGRAM):
        return Path(found).absolute()
    advice = "`earshot engines install llama_cpp` builds it"
    raise EngineMissing("llm", NAME, f"there is no {PROGRAM} on the PATH; {advice}")


def find_model(settings: Settings) -> GgufModel:
    """Returns the model that the settings name. Raises EngineMissing if there is none, or if its
    file is truncated or no model."""
    path = _path_of(settings)
    if path.is_dir():
        files = model_files(path)
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise EngineMissing(
                "llm", NAME, f"model: {path} must hold one model, it holds: {names}"
            )
        path = files[0]
    projector = _projector_of(settings, path)
    try:
        header = check_parts(path)
        if projector is not None and not read_gguf_header(projector).is_projector:
            raise EngineMissing("llm", NAME, f"vision_projector: {projector} is no projector")
    except UnreadableGgufError as exc:
        raise EngineMissing("llm", NAME, str(exc)) from exc
    if header.is_projector:
        raise EngineMissing("llm", NAME, f"model: {path} is a vision projector, and writes no text")
    return GgufModel(path, header, projector)


def model_files(folder: Path) -> Sequence[Path]:
    """Returns the GGUF files of a folder that are models: of a split model only the first file, and
    no vision projectors."""
    files = sorted(path for path in folder.glob("*.gguf") if path.is_file())
    return [file for file in files if not _is_projector(file) and _part_number(file) == 1]


def check_parts(file: Path) -> GgufHeader:
    """Reads the header of a model, and of all its files if it was split into several. Raises
    UnreadableGgufError."""
    header = read_gguf_header(file)
    if (match := _PART_NAME.fullmatch(file.name)) is not None:
        for number in range(2, int(match[2]) + 1):
            read_gguf_header(
                file.with_name(f"{file.name[: match.start(1)]}{number:05}-of-{match[2]}.gguf")
            )
    return header


def _path_of(settings: Settings) -> Path:
    """Returns the file or folder of the model. Raises EngineMissing."""
    given = Path(settings.model).expanduser()
    if given.exists():
        return given.absolute()
    places = [given.absolute()]
    if settings.models_dir and "/" not in settings.model:
        folder = Path(settings.models_dir).expanduser().absolute()
        places = [folder / settings.model, folder / f"{settings.model}.gguf"]
    for place in places:
        if place.exists():
            return place
    missing = " and no ".join(map(str, places))
    raise EngineMissing("llm", NAME, f"model: there is no {missing}")


def _projector_of(settings: Settings, model: Path) -> Path | None:
    if not settings.vision_projector:
        return next(
            (path for path in sorted(model.parent.glob("*.gguf")) if _is_projector(path)), None
        )
    projector = Path(settings.vision_projector).expanduser().absolute()
    if not projector.is_file():
        raise EngineMissing("llm", NAME, f"vision_projector: there is no {projector}")
    return projector


def _is_projector(path: Path) -> bool:
    return _PROJECTOR_NAME.fullmatch(path.name) is not None


def _part_number(path: Path) -> int:
    match = _PART_NAME.fullmatch(path.name)
    return int(match[1]) if match else 1
