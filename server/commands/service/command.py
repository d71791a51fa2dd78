"""`earshot service install|uninstall|status`: runs the server as a service of systemd."""

import argparse
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from core.errors import ConfigError, EarshotError
from server.commands.exit_codes import ExitCode
from server.commands.service.unit import MARK, STATE, UNIT, UnitSettings, unit_text
from server.config import Config
from server.config.load import EffectiveConfig, find_file, load

SYSTEMD_FOLDER = Path("/run/systemd/system")
"Folder that exists if systemd runs the machine (sd_booted of libsystemd)."

SYSTEM_UNITS = Path("/etc/systemd/system")
"Folder of the unit files that an administrator adds."

HIDDEN_FOLDERS = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108
"Folders that ProtectHome and PrivateTmp hide from the system service."

GPU_DEVICES = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd")))
"Device files of which one exists if the machine has a GPU of NVIDIA or AMD."

FIRST_UNPRIVILEGED_PORT = 1024
"First port that a program without special rights may listen on."

SYSTEMCTL_TIMEOUT_S = 120
"Time limit of one call, in seconds. A stop waits until the turns in progress are over."


class ServiceError(EarshotError):
    """Raised when the service cannot be installed, removed or queried."""

    code = "service_failed"


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> ExitCode:
    """Runs one action. Raises ConfigError or ServiceError."""
    match options.action:
        case "install":
            return _install(options, environ)
        case "uninstall":
            return _uninstall(options, environ)
        case _:
            return _status(options, environ)


def _install(options: argparse.Namespace, environ: Mapping[str, str]) -> ExitCode:
    effective = load(environ, file=options.config)
    unit = _unit_settings(options, effective.config, find_file(environ, options.config))
    text = unit_text(unit)
    if options.print:
        print(text, end="")
        return ExitCode.OK
    _require_systemd(options)
    if not options.user:
        _require_access(unit, effective.config)
    file = _unit_file(options, environ)
    _require_own_unit(file)
    _write(file, text)
    _systemctl(options, "daemon-reload")
    _systemctl(options, "enable", UNIT)
    _systemctl(options, "restart", UNIT)
    print(f"installed and started: {file}")
    for note in _notes(options, effective):
        print(note)
    return ExitCode.OK


def _uninstall(options: argparse.Namespace, environ: Mapping[str, str]) -> ExitCode:
    _require_systemd(options)
    file = _unit_file(options, environ)
    if not file.exists():
        raise ServiceError(f"there is no service: {file} does not exist")
    _require_own_unit(file)
    _systemctl(options, "disable", "--now", UNIT)
    file.unlink()
    _systemctl(options, "daemon-reload")
    state = load(environ).config.paths.state_dir if options.user else f"/var/lib/{STATE}"
    print(f"removed: {file}; keys and devices are still in {state}")
    return ExitCode.OK


def _status(options: argparse.Namespace, environ: Mapping[str, str]) -> ExitCode:
    _require_systemd(options, needs_root=False)
    file = _unit_file(options, environ)
    state = {
        "unit": str(file),
        "installed": file.exists(),
        "active": _systemctl(options, "is-active", UNIT, is_query=True),
        "enabled": _systemctl(options, "is-enabled", UNIT, is_query=True),
    }
    if options.json:
        print(msgspec.json.encode(state).decode())
    elif state["installed"]:
        print(f"{UNIT}: {state['active']}, {state['enabled']} ({file})")
        print(f"its log: journalctl {'--user ' if options.user else ''}-u {UNIT}")
    else:
        print("not installed; `earshot service install` does it")
    return ExitCode.OK if state["active"] == "active" else ExitCode.CANNOT_RUN


def _unit_settings(
    options: argparse.Namespace, config: Config, config_file: Path | None
) -> UnitSettings:
    program = Path(sys.prefix) / "bin" / "earshot"
    if not program.is_file():
        raise ServiceError(f"{program} does not exist; install Earshot with `make install` first")
    certificate_files = None
    if config.server.tls not in ("off", "auto"):
        certificate, _, key = config.server.tls.partition(":")
        certificate_files = Path(certificate).absolute(), Path(key).absolute()
    willow, ingrain = config.willow, config.ingrain
    ports = (
        config.server.port,
        *(willow.http_port, willow.https_port, willow.was_port),
        *(ingrain.port, ingrain.model_port),
        *(config.kserve.http_port, config.kserve.grpc_port),
    )
    return UnitSettings(
        program=program,
        working_folder=Path.cwd(),
        config_file=config_file and config_file.absolute(),
        certificate=certificate_files,
        is_user=options.user,
        has_low_port=any(0 < port < FIRST_UNPRIVILEGED_PORT for port in ports),
        has_gpu=any(device.exists() for device in GPU_DEVICES),
        drain_timeout_s=config.server.drain_timeout_s,
    )


def _notes(options: argparse.Namespace, effective: EffectiveConfig) -> Iterator[str]:
    """Yields what the user should know after the installation."""
    journal_options = "--user -u" if options.user else "-u"
    yield f"its address and key are in its log: journalctl {journal_options} {UNIT}"
    origins = {origin.removeprefix("env:") for origin in effective.origins.values()}
    if names := ", ".join(sorted(name for name in origins if name.startswith("EARSHOT_"))):
        yield f"the service does not see this shell's variables: {names}; write them into the file"
    if options.user:
        yield "`loginctl enable-linger` keeps it running when you are not logged in"


def _require_systemd(options: argparse.Namespace, *, needs_root: bool = True) -> None:
    if not SYSTEMD_FOLDER.is_dir() or shutil.which("systemctl") is None:
        raise ServiceError(
            "systemd does not run on this machine; `earshot service install --print` shows the unit"
        )
    if needs_root and not options.user and os.geteuid() != 0:
        raise ServiceError("a system service needs root: use sudo, or --user for one of your own")


def _require_access(unit: UnitSettings, config: Config) -> None:
    """Raises ServiceError if the user of the service cannot read a folder that the server needs."""
    source = Path(__file__).parents[3]
    models = Path(config.paths.models_dir).expanduser().absolute()
    required = [unit.program, Path(sys.base_prefix), source, unit.working_folder]
    for path in [*required, *([models] if models.exists() else [])]:
        resolved = path.resolve()
        if any(
            resolved.is_relative_to(folder) for folder in HIDDEN_FOLDERS
        ) or not _is_reachable_by_all(resolved):
            raise ServiceError(
                f"a system service cannot read {resolved}; move it, for example to /opt/earshot, or"
                " use `earshot service install --user`"
            )


def _is_reachable_by_all(path: Path) -> bool:
    """Returns True if all users can reach a path."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def _unit_file(options: argparse.Namespace, environ: Mapping[str, str]) -> Path:
    if not options.user:
        return SYSTEM_UNITS / UNIT
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "systemd" / "user" / UNIT


def _require_own_unit(file: Path) -> None:
    if file.exists() and not file.read_text(encoding="utf-8").startswith(MARK):
        raise ServiceError(f"{file} was not written by Earshot; remove it first")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o644)  # it holds no secret
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror or error}") from error


def _systemctl(options: argparse.Namespace, *arguments: str, is_query: bool = False) -> str:
    """Runs systemctl and returns the first line that it prints. `is_query`: a failed
    command is an answer, such as `inactive`. Raises ServiceError."""
    command: Sequence[str] = ["systemctl", *(["--user"] if options.user else []), *arguments]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=SYSTEMCTL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"{' '.join(command)}: {error}") from error
    first_line = (result.stdout if is_query else result.stderr).strip().partition("\n")[0]
    if result.returncode and not is_query:
        raise ServiceError(f"{' '.join(command)}: {first_line or f'exit code {result.returncode}'}")
    return first_line or "unknown"
