"""Command line options of `earshot service`."""

import argparse
from pathlib import Path

EPILOG = """The service runs in the folder in which you install it, with the configuration file of
that folder or of --config. It starts with the machine, and again when it fails.

Without --user it is a service of the system: it gets a user of its own, sees no home folders, and
keeps keys and devices in /var/lib/earshot. With --user it runs with your rights.

exit codes:
  0  done; status: it runs
  1  systemd refused, or does not run here; status: it does not run
  2  wrong arguments or configuration
"""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot service`."""
    parser.description = "Runs the server as a service of systemd."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    description = "install the service, start it, and start it with the machine"
    install = actions.add_parser("install", help=description, description=description)
    install.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    install.add_argument(
        "--print", action="store_true", help="only print the unit; changes nothing"
    )
    description = "stop the service and remove it; keys, devices and settings stay"
    uninstall = actions.add_parser("uninstall", help=description, description=description)
    description = "say whether the service is installed and runs"
    status = actions.add_parser("status", help=description, description=description)
    status.add_argument("--json", action="store_true", help="print it as JSON")
    for action in (install, uninstall, status):
        action.add_argument(
            "--user", action="store_true", help="a service of your own instead of the system's"
        )
