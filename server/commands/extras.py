"""`earshot extras`: lists the optional parts of Earshot and installs them into this environment.
The parts are the extras of the Python package. Their requirements come from the metadata of the
installed package, which a checkout and a wheel both have."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from core.errors import ConfigError
from server.commands.engines.pip import pip, progress_options
from server.commands.exit_codes import ExitCode
from server.commands.lock_file import LOCK, locked_names, name_of
from server.models.progress import DownloadProgress
from server.version import DISTRIBUTION

EXTRAS: Mapping[str, str] = {
    "bench": "counts the word errors of `earshot bench asr`",
    "clip": "embeddings of images, with CLIP and SigLIP",
    "esphome": "voice satellites with ESPHome's firmware, without Home Assistant",
    "gpu": "CUDA libraries for Whisper on an NVIDIA GPU",
    "kokoro": "the voices of Kokoro",
    "kserve": "KServe's protocol over gRPC, for clients of Triton",
    "mcp": "tools of MCP servers",
    "mic": "the microphone of `earshot talk --mic`; needs PortAudio too",
    "piper": "the voices of Piper (GPL-3)",
    "mqtt": "MQTT, for Home Assistant and other programs at a broker",
    "pocketsphinx": "PocketSphinx; compiled where the package index has no wheel of it",
    "pocket": "the voices of Pocket TTS, and voices of your own, in torch",
    "postgresql": "PostgreSQL as the database of devices",
    "scale": "models on a cluster of machines, with Ray Serve",
    "sherpa": "models of sherpa-onnx for speech recognition",
    "torch": "Whisper, language models, Indri and Bark in torch, and `earshot models convert`",
    "wake": "wake words; its wheels need glibc 2.35",
}
"Name of an extra -> what it adds."

STAMP = Path(sys.prefix) / ".earshot-installed"
"""File in which scripts/install.sh notes the extras of an environment, one per line after the first
line."""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot extras`; without an action it lists."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    description = "list the optional parts and whether they are installed"
    list_parser = actions.add_parser("list", help=description, description=description)
    description = "print the list as JSON"
    parser.add_argument("--json", action="store_true", help=description)
    # Without a default of its own, because that would undo the flag in `extras --json list`.
    list_parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help=description
    )
    description = "install optional parts into the environment in which Earshot runs"
    add_parser = actions.add_parser("add", help=description, description=description)
    add_parser.add_argument(
        "names", nargs="+", metavar="NAME", choices=tuple(EXTRAS), help=", ".join(EXTRAS)
    )


def run(options: argparse.Namespace) -> ExitCode:
    """Runs one action. Raises InstallError, IndexUnreachable or ConfigError."""
    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        raise ConfigError(
            "Earshot runs from a folder that is not installed: `make run EXTRAS=NAME` installs it"
        ) from None
    if options.action == "add":
        return _add(options.names, requirements)
    return _list(requirements, as_json=options.json)


def requirements_of(extra: str, requirements: Iterable[str]) -> list[str]:
    """Lists what an extra needs on this machine beyond Earshot's own requirements.
    `requirements`: lines of the package's metadata, such as `torch>=2; extra == "torch"`."""
    needed = []
    for line in requirements:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            continue
        if marker.evaluate({"extra": extra}):
            requirement.marker = None
            needed.append(str(requirement))
    return needed


def is_satisfied(line: str) -> bool:
    """Returns True if an installed package meets the requirement, including the extras that it
    names."""
    requirement = Requirement(line)
    try:
        installed_version, own_requirements = (
            version(requirement.name),
            requires(requirement.name) or [],
        )
    except PackageNotFoundError:
        return False
    return requirement.specifier.contains(installed_version, prereleases=True) and all(
        is_satisfied(extra_line)
        for extra in requirement.extras
        for extra_line in requirements_of(extra, own_requirements)
    )


def _list(all_requirements: Iterable[str], *, as_json: bool) -> ExitCode:
    lines = list(all_requirements)
    requirements = {name: requirements_of(name, lines) for name in EXTRAS}
    installed = {
        name: bool(needed) and all(map(is_satisfied, needed))
        for name, needed in requirements.items()
    }
    if as_json:
        entries = [
            {"name": name, "installed": installed[name], "what": description}
            for name, description in EXTRAS.items()
        ]
        print(msgspec.json.encode(entries).decode())
        return ExitCode.OK
    width = max(map(len, EXTRAS))
    for name, description in EXTRAS.items():
        print(f"{name:{width}}  {'installed' if installed[name] else '-':9}  {description}")
    print("\n`earshot extras add NAME` installs a part.")
    return ExitCode.OK


def _add(names: Iterable[str], all_requirements: Iterable[str]) -> ExitCode:
    lines = list(all_requirements)
    progress = DownloadProgress(sys.stdout)
    for name in dict.fromkeys(names):
        requirements = requirements_of(name, lines)
        if requirements and all(map(is_satisfied, requirements)):
            print(f"{name} is installed already")
            continue
        if not requirements:
            raise ConfigError(f"{name}: the installed Earshot has no such extra")
        print(f"Installing {name} ({', '.join(requirements)}) into {sys.prefix}", flush=True)
        pip(
            Path(sys.executable),
            "install",
            *progress_options(),
            *_lock_options(requirements),
            *requirements,
            report_progress=progress.note,
            report_bytes=progress.file_bytes,
        )
        _record_extra(name)
        print(f"{name} is installed; restart a running server to use it")
    return ExitCode.OK


def _lock_options(requirements: Iterable[str]) -> tuple[str, ...]:
    """Returns pip options that take releases and hashes from the lock; none if the lock lacks one
    of the packages."""
    if not locked_names(LOCK).issuperset(map(name_of, requirements)):
        return ()
    return ("--require-hashes", "--constraint", str(LOCK))


def _record_extra(name: str) -> None:
    """Notes the extra, so that scripts/install.sh keeps it when it installs a newer Earshot."""
    if STAMP.is_file():
        with STAMP.open("a", encoding="utf-8") as stamp:
            stamp.write(f"{name}\n")
