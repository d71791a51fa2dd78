"""`earshot extras`: lists the optional parts of Earshot and installs them into this environment.
They are the extras of the Python package. Their requirements come from its metadata, so it works in
a checkout and with a wheel."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from core.errors import ConfigError
from server.commands.engines.pip import pip
from server.commands.exit_codes import ExitCode
from server.commands.lock_file import LOCK, locked_names, name_of
from server.version import DISTRIBUTION

EXTRAS: Mapping[str, str] = {
    "bench": "counts the word errors of `earshot bench asr`",
    "gpu": "CUDA libraries for Whisper on an NVIDIA GPU",
    "kokoro": "the voices of Kokoro",
    "mcp": "tools of MCP servers",
    "mic": "the microphone of `earshot talk --mic`; needs PortAudio too",
    "piper": "the voices of Piper (GPL-3)",
    "postgresql": "PostgreSQL as the database of devices",
    "torch": "Whisper and language models in torch, and `earshot models convert`",
    "wake": "wake words; its wheels need glibc 2.35",
}
"Name of an extra -> what it adds."

STAMP = Path(sys.prefix) / ".earshot-installed"
"""File in which scripts/install.sh notes the extras of an environment, one per line after the first
line."""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot extras`; without an action it lists."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    what = "list the optional parts and whether they are installed"
    listing = actions.add_parser("list", help=what, description=what)
    what = "print the list as JSON"
    parser.add_argument("--json", action="store_true", help=what)
    # Without a default of its own, because that would undo the flag in `extras --json list`.
    listing.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=what)
    what = "install optional parts into the environment in which Earshot runs"
    adding = actions.add_parser("add", help=what, description=what)
    adding.add_argument(
        "names", nargs="+", metavar="NAME", choices=tuple(EXTRAS), help=", ".join(EXTRAS)
    )


def run(options: argparse.Namespace) -> ExitCode:
    """Runs one action. Raises InstallError, IndexUnreachable or ConfigError."""
    try:
        required = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        raise ConfigError(
            "Earshot runs from a folder that is not installed: `make run EXTRAS=NAME` installs it"
        ) from None
    if options.action == "add":
        return _add(options.names, required)
    return _list(required, as_json=options.json)


def requirements_of(extra: str, required: Iterable[str]) -> list[str]:
    """Lists what an extra needs on this machine beyond Earshot's own requirements."""
    found = []
    for line in required:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            continue
        if marker.evaluate({"extra": extra}):
            requirement.marker = None
            found.append(str(requirement))
    return found


def is_satisfied(line: str) -> bool:
    """Returns True if an installed package meets the requirement, including the extras that it
    names."""
    requirement = Requirement(line)
    try:
        there, needs = version(requirement.name), requires(requirement.name) or []
    except PackageNotFoundError:
        return False
    return requirement.specifier.contains(there, prereleases=True) and all(
        is_satisfied(need) for extra in requirement.extras for need in requirements_of(extra, needs)
    )


def _list(required: Iterable[str], *, as_json: bool) -> ExitCode:
    lines = list(required)
    wanted = {name: requirements_of(name, lines) for name in EXTRAS}
    installed = {name: bool(w) and all(map(is_satisfied, w)) for name, w in wanted.items()}
    if as_json:
        shown = [
            {"name": name, "installed": installed[name], "what": what}
            for name, what in EXTRAS.items()
        ]
        print(msgspec.json.encode(shown).decode())
        return ExitCode.OK
    width = max(map(len, EXTRAS))
    for name, what in EXTRAS.items():
        print(f"{name:{width}}  {'installed' if installed[name] else '-':9}  {what}")
    print("\n`earshot extras add NAME` installs a part.")
    return ExitCode.OK


def _add(names: Iterable[str], required: Iterable[str]) -> ExitCode:
    lines = list(required)
    for name in dict.fromkeys(names):
        wanted = requirements_of(name, lines)
        if wanted and all(map(is_satisfied, wanted)):
            print(f"{name} is installed already")
            continue
        if not wanted:
            raise ConfigError(f"{name}: the installed Earshot has no such extra")
        print(f"Installing {name} ({', '.join(wanted)}) into {sys.prefix}", flush=True)
        pip(
            Path(sys.executable),
            "install",
            "--progress-bar",
            "off",
            *_from_lock(wanted),
            *wanted,
            report_progress=lambda text: print(f"  {text}", flush=True),
        )
        _remember(name)
        print(f"{name} is installed; restart a running server to use it")
    return ExitCode.OK


def _from_lock(wanted: Iterable[str]) -> tuple[str, ...]:
    """Returns pip options that take releases and hashes from the lock; none if a package is not in
    it."""
    if not locked_names(LOCK).issuperset(map(name_of, wanted)):
        return ()
    return ("--require-hashes", "--constraint", str(LOCK))


def _remember(name: str) -> None:
    """Notes the extra, so that scripts/install.sh keeps it when it installs a newer Earshot."""
    if STAMP.is_file():
        with STAMP.open("a", encoding="utf-8") as stamp:
            stamp.write(f"{name}\n")
