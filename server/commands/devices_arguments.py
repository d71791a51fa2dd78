"""Command line options of `earshot devices`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.client.http import KEY_VARIABLES

EPILOG = """DEVICE is an id (dev_...), a name or a hardware id.

exit codes:
  0  done; notify: spoken, or stored until the device connects
  1  the server refused the request, or there is no such device; the message says why
  2  wrong arguments or configuration
  5  no connection, or the key was refused
"""

DEVICE = "DEVICE"

ACTIONS: Sequence[tuple[str, Sequence[str], str]] = (
    ("list", (), "list known devices, connected devices, and those that wait for approval"),
    ("pair", ("CODE",), "approve the device that shows this six-digit code"),
    (
        "approve",
        (DEVICE, "[CODE]"),
        ("approve a device, even a blocked one; with the code that it shows, if any"),
    ),
    ("block", (DEVICE,), "refuse a device from now on; its keys become invalid"),
    ("forget", (DEVICE,), "delete a device; it counts as new when it connects again"),
    ("rename", (DEVICE, "NAME"), "give a device a name"),
    ("area", (DEVICE, "AREA"), "set the room of a device; '' removes it"),
    (
        "profile",
        (DEVICE, "FIELD=VALUE..."),
        ("set voice, language, instructions, volume, ... of a device; '' clears a field"),
    ),
    ("notify", ("[DEVICE] TEXT",), "speak a text on a device, at once or when it next connects"),
    ("restart", (DEVICE,), "restart a device"),
    ("ota", (DEVICE, "[FIRMWARE]"), "install firmware from the server: a version, or the newest"),
    ("logs", (DEVICE,), "show the latest events of a device; never transcripts"),
)
"Name, arguments and description of each action."


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot devices` to the parser."""
    parser.description = "Lists and manages the devices of a running server."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, arguments, description in ACTIONS:
        action = actions.add_parser(name, help=description, description=description)
        for argument in arguments:
            _add_argument(action, argument)
        if name == "notify":
            action.add_argument(
                "--area", metavar="AREA", help="speak on every device of this room instead"
            )
        _add_server_options(action)


def _add_argument(parser: argparse.ArgumentParser, argument: str) -> None:
    match argument:
        case "[DEVICE] TEXT":  # one optional word before another confuses argparse
            parser.add_argument("words", metavar=argument, nargs="+")
        case "[FIRMWARE]" | "[CODE]":
            name = argument.strip("[]")
            parser.add_argument(name.lower(), metavar=name, nargs="?")
        case "FIELD=VALUE...":
            parser.add_argument("field", metavar="FIELD=VALUE", nargs="+")
        case _:
            parser.add_argument(argument.lower(), metavar=argument)


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    parser.add_argument(
        "--url", help="address of the server; default: the configured server on this machine"
    )
    keys = " or $".join(KEY_VARIABLES)
    parser.add_argument(
        "--key", help=f"key of the server; default: ${keys}, or the key in the state folder"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="accept any certificate, such as a self-signed one",
    )
    parser.add_argument("--json", action="store_true", help="print the server's answer as JSON")
