"""Finds llama.cpp's server and the GGUF files of a model."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from core.errors import EngineMissing
from engines.llm.llama_cpp.settings import NAME, Settings
from engines.runtime.external_server.installation import read_marker
from engines.runtime.model_files.gguf_file import GgufHeader, UnreadableGgufError, read_gguf_header
from engines.runtime.model_files.gguf_folder import check_parts, only_model, projectors

PROGRAM = "llama-server"

PROGRAM_PATH = Path("bin") / PROGRAM
"Path of the server within the folder of `earshot engines install llama_cpp`."


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A model, and the vision projector that belongs to it."""

    file: Path
    "Its only file, or the first one of several."
    header: GgufHeader
    projector: Path | None = None
    "File that turns images into tokens; None: the model takes no images."


def find_program(settings: Settings) -> Path:
    """Returns the absolute path of llama-server: the configured, the installed, or the one on the
    PATH. Raises EngineMissing if there is none."""
    if settings.program:
        program = Path(settings.program).expanduser().absolute()
        if not os.access(program, os.X_OK) or program.is_dir():
            raise EngineMissing("llm", NAME, f"program: {program} is not an executable file")
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
    """Returns the model that the settings name, and its vision projector.

    Raises EngineMissing if a file is missing, truncated, or not of the expected kind.
    """
    path = Path(settings.model).expanduser().absolute()
    if not path.exists():
        advice = "`earshot models list` names the models that are there"
        raise EngineMissing("llm", NAME, f"model: there is no {path}; {advice}")
    try:
        path = only_model(path)
        header = check_parts(path)
        projector = _projector_of(settings, path)
        if projector is not None and not read_gguf_header(projector).is_projector:
            raise EngineMissing(
                "llm", NAME, f"vision_projector: {projector} is not a vision projector"
            )
    except UnreadableGgufError as exc:
        raise EngineMissing("llm", NAME, str(exc)) from exc
    if header.is_projector:
        raise EngineMissing("llm", NAME, f"model: {path} is a vision projector, and writes no text")
    return GgufModel(path, header, projector)


def _projector_of(settings: Settings, model: Path) -> Path | None:
    if not settings.vision_projector:
        return next(iter(projectors(model.parent)), None)
    projector = Path(settings.vision_projector).expanduser().absolute()
    if not projector.is_file():
        raise EngineMissing("llm", NAME, f"vision_projector: there is no {projector}")
    return projector
