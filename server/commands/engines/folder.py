"""The folder of an installed engine: its lock, its size, and whether the disk has room for it."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.runtime.external_server.installation import MARKER
from server.commands.engines.pip import InstallError


def check_space(folder: Path, needed_gb: float) -> None:
    """Raises InstallError, with the space that is needed, if the disk has too little."""
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < needed_gb:
        raise InstallError(
            f"{folder} has {free_gb:.1f} GB free; about {needed_gb:.0f} GB are needed."
            " paths.state_dir sets the folder"
        )


def remove(folder: Path) -> bool:
    """Removes an installation; returns False if there is none. The marker goes first: a half
    removed installation must not look complete."""
    if not folder.exists():
        return False
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder)
    return True


def size_bytes(folder: Path) -> int:
    """Returns the size of a folder's files on disk. Links are not followed."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


def log_file_of(folder: Path) -> Path:
    """Returns the file with the whole output of the latest installation into a folder."""
    return folder.with_name(f"{folder.name}-install.log")


@contextmanager
def installation_lock(folder: Path) -> Iterator[None]:
    """Holds a lock, as two installations into one folder would damage it. Raises InstallError if
    another one runs."""
    with folder.with_name(f".{folder.name}.lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InstallError(f"another installation into {folder} is running") from None
        yield
