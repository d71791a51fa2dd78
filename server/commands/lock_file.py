"""Reads requirements.lock: the releases and hashes for an installation from a checkout.

`python -m server.commands.lock_file locked|free EXTRA,EXTRA` prints the requirements of
pyproject.toml that are in the lock, or those that are not; scripts/install.sh gives them to pip. It
runs before anything is installed, so this file needs nothing but Python.
"""

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

LOCK = ROOT / "requirements.lock"
"Path of the lock in a checkout; a wheel has none."

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def name_of(requirement: str) -> str:
    """Returns the name of a requirement's package in the index's spelling."""
    match = _NAME.match(requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def locked_names(lock: Path = LOCK) -> frozenset[str]:
    """Returns the packages that the lock pins; none without a lock. torch is not among them: the
    right build of it depends on the machine."""
    try:
        text = lock.read_text(encoding="utf-8")
    except FileNotFoundError:
        return frozenset()
    return frozenset(map(name_of, _PINNED.findall(text)))


def requirements(extras: Sequence[str], *, is_locked: bool) -> list[str]:
    """Lists the checkout's requirements that are in the lock, or those that are not. Raises
    KeyError for an unknown extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    names = locked_names()
    return [line for line in dict.fromkeys(lines) if (name_of(line) in names) == is_locked]


def main(arguments: Sequence[str]) -> int:
    """Prints the requirements. `arguments`: `locked` or `free`, and the extras with commas between
    them. Returns 2 for an unknown extra, else 0."""
    kind, extras = arguments
    try:
        lines = requirements(extras.split(",") if extras else (), is_locked=kind == "locked")
    except KeyError as error:
        print(f"earshot install: there is no extra {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
