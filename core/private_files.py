"""Makes files and folders private to their owner: a key, a database, recorded audio.

A path may exist already with rights for all users, made by a backup, another tool or a wide umask.
Then those rights are taken away, or the path is refused.
"""

import os
import stat
from pathlib import Path

from core.errors import ConfigError

ROOT = 0
"""User id of root, which may read everything anyway. A file of root counts as our own, unless all
users have access to it."""

OTHERS = stat.S_IRWXG | stat.S_IRWXO
"File mode bits of the group and of all other users."


def make_private(path: Path, setting: str) -> str:
    """Takes the rights of others from an existing path, links followed; not from pipes and
    terminals.

    Returns what was done, for the log; empty: nothing. Raises ConfigError, with `setting` and path,
    when the path belongs to another user or its rights cannot be changed.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror or error}") from error
    mode = stat.S_IMODE(found.st_mode)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        return ""
    if found.st_uid not in (os.geteuid(), ROOT):
        raise ConfigError(
            f"{setting}: {path} belongs to another user (uid {found.st_uid}), who could read and"
            f" change it; change its owner to uid {os.geteuid()}, or choose another path"
        )
    if found.st_uid != os.geteuid():  # root's, perhaps shared with our group, as Kubernetes does
        if not mode & stat.S_IRWXO:
            return ""
        raise ConfigError(
            f"{setting}: {path} belongs to root, and all users have access to it (mode"
            f" {mode:04o}); remove that access (chmod o-rwx), or choose another path"
        )
    return _tightened(path, mode, setting) if mode & OTHERS else ""


def _tightened(path: Path, mode: int, setting: str) -> str:
    """Takes the rights away. Returns a line for the log. Raises ConfigError."""
    private, why = mode & ~OTHERS, ""
    try:
        path.chmod(private)
        if stat.S_IMODE(path.stat().st_mode) & OTHERS:
            why = "its file system keeps no rights"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise ConfigError(
            f"{setting}: {path} is accessible to other users (mode {mode:04o}), and that cannot"
            f" be changed: {why}; choose another path"
        )
    return f"{path} could be used by others (mode {mode:04o}); its mode is {private:04o} now"
