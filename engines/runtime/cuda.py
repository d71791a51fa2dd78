"""Loads NVIDIA's libraries from their wheels, where the dynamic loader does not look by itself.

CTranslate2 opens them by name when a model goes to the GPU. `pip install nvidia-cublas-cu12` puts
them into `site-packages/nvidia/cublas/lib`. The loader does not search there, but it uses a library
that is already loaded under this name.
"""

import ctypes
import logging
from collections.abc import Callable, Iterator, Sequence
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path

logger = logging.getLogger(__name__)

NEEDED = ("libcublasLt.so.12", "libcublas.so.12")
"Libraries without which a decode on a GPU fails. The second one needs the first."

OPTIONAL = ("libcudnn.so.9",)
"Libraries that only CTranslate2 before 4.8 uses, for convolutions."


def preload(folders: Sequence[Path] | None = None) -> tuple[str, ...]:
    """Loads the libraries into this process, from the wheels or the system.

    Returns the needed ones that were not found: without them the first decode on a GPU would fail.
    `folders`: where to look; None: the folders of the wheels.
    """
    search_folders = list(wheel_folders() if folders is None else folders)
    loaded = [name for name in (*NEEDED, *OPTIONAL) if _load(name, search_folders)]
    return tuple(name for name in NEEDED if name not in loaded)


def missing_libraries(
    folders: Sequence[Path] | None = None, find: Callable[[str], str | None] = find_library
) -> tuple[str, ...]:
    """Returns the needed libraries that are not installed, without loading any. The gateway process
    uses it, because it computes nothing itself. `find`: searches the system's libraries."""
    search_folders = list(wheel_folders() if folders is None else folders)
    return tuple(
        name
        for name in NEEDED
        if not any((place / name).is_file() for place in search_folders)
        and find(name.removeprefix("lib").partition(".so")[0]) != name
    )


def install_hint(missing: Sequence[str]) -> str:
    """Returns the message that tells the operator how to install the missing libraries."""
    return f"a GPU needs {', '.join(missing)}: `make install EXTRAS=gpu` brings them"


def wheel_folders() -> Iterator[Path]:
    """Yields the folders `nvidia/*/lib` of this environment, one for each of NVIDIA's wheels."""
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(place).glob("*/lib"))


def _load(name: str, folders: Sequence[Path]) -> bool:
    """Loads a library from the first folder that has it, or from the system. True if it is
    loaded."""
    files = [str(folder / name) for folder in folders if (folder / name).is_file()]
    for file in (*files, name):
        try:
            ctypes.CDLL(file, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            logger.debug("= %s: %s", file, error)
        else:
            return True
    return False
