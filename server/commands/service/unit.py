"""Builds the text of the systemd unit, for the system or for one user."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError

UNIT = "earshot.service"
MARK = "# Written by `earshot service install`."
"First line of our unit files. A file without it belongs to somebody else and is not replaced."

STATE = "earshot"
"Folder below /var/lib that systemd makes for the system service."

PLAIN_PATH = re.compile(r"[^\s\"'\\$%:\x00-\x1f]+")
"Pattern of paths that need no quotes. Others would be quoted in four ways, one per kind of line."

STOP_GRACE_S = 20
"""Seconds between the end of the drain and the kill by systemd. In this time workers end, and the
database is closed."""

COMMON_HARDENING = """\
# Limits of the service. It needs no special rights, and starts nothing that gets more.
NoNewPrivileges=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077"""

SYSTEM_HARDENING = """\
# MemoryDenyWriteExecute is missing, because model libraries make machine code while they run.
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSettings:
    """Values that differ between units. All paths are absolute."""

    program: Path
    "The `earshot` that is started."
    working_folder: Path
    "Folder in which the server runs; relative paths of the settings begin there."
    config_file: Path | None
    "TOML file with the settings; None: the server runs with the defaults."
    certificate: tuple[Path, Path] | None
    "Certificate and private key of server.tls; None without TLS, or if the server makes its own."
    is_user: bool
    "True: a service of one user, which runs with that user's rights."
    has_low_port: bool
    "True: the server listens on a port below 1024."
    has_gpu: bool
    "True: the service may need the device files of a GPU."
    drain_timeout_s: float
    "Longest time in seconds in which the server finishes its turns when it stops."


def unit_text(unit: UnitSettings) -> str:
    """Returns the unit file. Raises ConfigError for a path that a unit cannot hold."""
    return (
        "\n".join(
            (
                *_unit_section(unit),
                *_service_section(unit),
                *_hardening(unit),
                *_install_section(unit),
            )
        )
        + "\n"
    )


def _unit_section(unit: UnitSettings) -> Iterator[str]:
    yield MARK
    yield "# Changes: `systemctl edit earshot`; they stay when this file is written again."
    yield "[Unit]"
    yield "Description=Earshot voice assistant"
    if not unit.is_user:
        yield "Wants=network-online.target"
        yield "After=network-online.target"
    yield ""


def _service_section(unit: UnitSettings) -> Iterator[str]:
    command = [_checked_path(unit.program), "serve"]
    credentials = []
    if unit.config_file and unit.is_user:
        command += ["--config", _checked_path(unit.config_file)]
    elif unit.config_file:
        credentials.append(f"LoadCredential=earshot.toml:{_checked_path(unit.config_file)}")
        command += ["--config", "${CREDENTIALS_DIRECTORY}/earshot.toml"]
    if unit.certificate and not unit.is_user:
        for name, path in zip(("certificate.pem", "key.pem"), unit.certificate, strict=True):
            credentials.append(f"LoadCredential={name}:{_checked_path(path)}")
        folder = "${CREDENTIALS_DIRECTORY}"
        command += ["--tls", f"{folder}/certificate.pem:{folder}/key.pem"]
    yield "[Service]"
    yield "Type=exec"
    yield f"ExecStart={' '.join(command)}"
    yield f"WorkingDirectory={_checked_path(unit.working_folder)}"
    yield "Restart=on-failure"
    yield "RestartSec=2"
    yield "# 2: wrong settings, 4: an engine is missing. Another start would not help."
    yield "RestartPreventExitStatus=2 4"
    yield "# Only the server gets the stop signal: its workers finish the turns in progress."
    yield "KillMode=mixed"
    yield f"TimeoutStopSec={round(unit.drain_timeout_s) + STOP_GRACE_S}"
    yield "LimitNOFILE=65536"
    if credentials:
        yield "# systemd reads these files as root, so that only root needs rights on them."
        yield from credentials
    yield ""


def _hardening(unit: UnitSettings) -> Iterator[str]:
    yield COMMON_HARDENING
    if unit.is_user:
        # Folders can be hidden only in a namespace, which many systems do not grant to users.
        yield ""
        return
    yield SYSTEM_HARDENING
    if not unit.has_gpu:
        yield "PrivateDevices=yes"
    port = "CAP_NET_BIND_SERVICE" if unit.has_low_port else ""
    yield f"CapabilityBoundingSet={port}"
    yield f"AmbientCapabilities={port}"
    yield "# A user of its own, which exists while the service runs. It writes only here:"
    yield "DynamicUser=yes"
    yield f"StateDirectory={STATE}"
    yield "StateDirectoryMode=0700"
    yield f"CacheDirectory={STATE}"
    yield f"Environment=EARSHOT_STATE_DIR=%S/{STATE} HOME=%S/{STATE} XDG_CACHE_HOME=%C/{STATE}"
    yield ""


def _install_section(unit: UnitSettings) -> Iterator[str]:
    yield "[Install]"
    yield f"WantedBy={'default.target' if unit.is_user else 'multi-user.target'}"


def _checked_path(path: Path) -> str:
    """Returns the path as text. Raises ConfigError if a unit cannot hold it without quotes."""
    if not PLAIN_PATH.fullmatch(str(path)):
        raise ConfigError(
            f"a systemd unit cannot hold the path {str(path)!r}: it may have no space, no colon"
            " and none of \" ' \\ $ %"
        )
    return str(path)
