"""`earshot engines ACTION`: installs model servers, which Earshot starts by itself."""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.json import encode

from core.errors import ConfigError
from engines.llm.vllm.environment import read_environment
from engines.runtime.external_server.installation import ServerDevice, ServerInstallation
from server.commands.engines import llama_cpp_install, vllm_install
from server.commands.engines.folder import log_file_of, remove, size_bytes
from server.commands.engines.pip import InstallError
from server.commands.exit_codes import ExitCode
from server.config import Config
from server.models.progress import DownloadProgress
from serving.placement.hardware import detect_hardware


@dataclass(frozen=True, slots=True)
class InstallableEngine:
    """An engine whose server Earshot can install."""

    package: Mapping[ServerDevice, str]
    "Name of its package on the index, by device."
    read: Callable[[Path], ServerInstallation | None]
    "Returns what is installed in a folder; None if nothing is, or the installation broke off."
    installer: type[vllm_install.VllmInstaller] | type[llama_cpp_install.LlamaCppInstaller]


ENGINES: Mapping[str, InstallableEngine] = {
    "vllm": InstallableEngine(
        vllm_install.DISTRIBUTION, read_environment, vllm_install.VllmInstaller
    ),
    "llama_cpp": InstallableEngine(
        {"cpu": llama_cpp_install.PACKAGE, "cuda": llama_cpp_install.PACKAGE},
        llama_cpp_install.read_installation,
        llama_cpp_install.LlamaCppInstaller,
    ),
}
"Engines that can be installed into a folder of their own."


def folder_of(state_dir: str, engine: str) -> Path:
    """Returns the folder into which an engine is installed, whether it is or not."""
    return Path(state_dir).expanduser().absolute() / "engines" / engine


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot engines`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install_parser = _action(
        actions,
        "install",
        ("install an engine into its own folder; continues an interrupted installation"),
    )
    install_parser.add_argument(
        "name", metavar="NAME", choices=tuple(ENGINES), help=", ".join(ENGINES)
    )
    device_options = install_parser.add_mutually_exclusive_group()
    device_options.add_argument(
        "--cpu",
        dest="device",
        action="store_const",
        const="cpu",
        help="install the variant for the CPU",
    )
    device_options.add_argument(
        "--cuda",
        dest="device",
        action="store_const",
        const="cuda",
        help="install the variant for NVIDIA GPUs",
    )
    install_parser.add_argument(
        "--force", action="store_true", help="replace an existing installation"
    )
    list_parser = _action(actions, "list", "list the installed engines with version and size")
    list_parser.add_argument("--json", action="store_true", help="print the list as JSON")
    remove_parser = _action(actions, "remove", "remove an installed engine")
    remove_parser.add_argument(
        "name", metavar="NAME", choices=tuple(ENGINES), help=", ".join(ENGINES)
    )


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, description: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=description, description=description)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    return parser


def run(options: argparse.Namespace, config: Config, visible_gpus: str | None) -> ExitCode:
    """Runs one action. `visible_gpus`: value of CUDA_VISIBLE_DEVICES. Raises EarshotError."""
    try:
        match options.action:
            case "install":
                return _install(options, config, lambda: _detect_device(visible_gpus))
            case "list":
                return _list(config, as_json=options.json)
            case _:
                return _remove(options, config)
    except OSError as error:
        path = error.filename or "the state folder"
        raise InstallError(f"{path}: {error.strerror or error}") from error


def _install(
    options: argparse.Namespace, config: Config, detect_device: Callable[[], ServerDevice]
) -> ExitCode:
    engine, folder = ENGINES[options.name], folder_of(config.paths.state_dir, options.name)
    existing = engine.read(folder)
    device: ServerDevice = options.device or (existing.device if existing else detect_device())
    if existing and not options.force:
        if existing.device != device:
            raise ConfigError(
                f"{options.name} is installed for {existing.device}; --force replaces it with"
                f" one for {device}"
            )
        print(f"{folder} already exists ({_versions(existing.packages)}); --force replaces it")
        return ExitCode.OK
    print(f"Installing {options.name} for {device} into {folder}; this takes minutes.", flush=True)
    installer = engine.installer(folder, device, DownloadProgress(sys.stdout))
    try:
        installation = installer.install(from_scratch=options.force)
    except InstallError:
        if (log_file := log_file_of(folder)).exists():
            print(f"  the whole output is in {log_file}", file=sys.stderr)
        raise
    print(f"{options.name} is ready: {_versions(installation.packages)}")
    return ExitCode.OK


def _detect_device(visible_gpus: str | None) -> ServerDevice:
    """Returns `cuda` if the machine has an NVIDIA GPU that this process may use."""
    return "cuda" if detect_hardware(visible_gpus).gpus else "cpu"


class EngineEntry(Struct, frozen=True, omit_defaults=True):
    """An engine in the list. Version, device and size only of an installed one."""

    name: str
    state: Literal["installed", "partly_installed", "not_installed"]
    folder: str
    version: str = ""
    device: str = ""
    size_bytes: int = 0

    def __str__(self) -> str:
        install = f"`earshot engines install {self.name}`"
        match self.state:
            case "installed":
                size = f"{self.size_bytes / 1e9:.2f} GB"
                return "  ".join(
                    (self.name, self.state, self.version, self.device, size, self.folder)
                )
            case "partly_installed":
                return f"{self.name}  partly installed; {install} goes on  {self.folder}"
            case "not_installed":
                return f"{self.name}  not installed; {install} installs it"


def _entry(name: str, engine: InstallableEngine, folder: Path) -> EngineEntry:
    if found := engine.read(folder):
        version = found.packages.get(engine.package[found.device], "?")
        size = size_bytes(folder)
        return EngineEntry(name, "installed", str(folder), version, found.device, size)
    return EngineEntry(
        name, "partly_installed" if folder.exists() else "not_installed", str(folder)
    )


def _list(config: Config, *, as_json: bool) -> ExitCode:
    entries = [
        _entry(name, engine, folder_of(config.paths.state_dir, name))
        for name, engine in ENGINES.items()
    ]
    print(encode(entries).decode() if as_json else "\n".join(map(str, entries)))
    return ExitCode.OK


def _remove(options: argparse.Namespace, config: Config) -> ExitCode:
    folder = folder_of(config.paths.state_dir, options.name)
    was_installed = remove(folder)
    print(f"removed {folder}" if was_installed else f"{options.name} is not installed")
    return ExitCode.OK


def _versions(packages: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
