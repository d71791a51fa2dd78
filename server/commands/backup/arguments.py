"""Command line options of `earshot backup` and `earshot restore`."""

import argparse
from pathlib import Path

BACKUP = """Writes one archive (tar.gz, readable by you alone) with the configuration file, the API
key, the certificates with their private keys, and the database of devices and settings. The server
may run meanwhile. Not in it: models, firmware for devices, installed engines, traces, variables
(EARSHOT_*), and a PostgreSQL database, which pg_dump copies. Keep it as safe as a password: whoever
has it can use your server."""

RESTORE = """Writes back what `earshot backup` has saved: the configuration to --config, the rest to
the state folder that this configuration names. Stop the server first. Nothing is written if the
archive is damaged, if a server has the state open, or if there is a configuration or a state
already. Restore only archives of your own, because a configuration decides what a server runs."""


def add_backup(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `earshot backup`."""
    parser.description = BACKUP
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", metavar="FILE", type=Path, help="the archive, such as home.tar.gz")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML file with the settings that are saved"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing archive")
    _add_json(parser)


def add_restore(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `earshot restore`."""
    parser.description = RESTORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", metavar="FILE", type=Path, help="an archive of `earshot backup`")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="where the configuration is written; default: $EARSHOT_CONFIG, or earshot.toml here",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the present configuration and state"
    )
    _add_json(parser)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
