"""Command line options of `earshot devices`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.client.http import KEY_VARIABLES

EPILOG = """DEVICE is an id (dev_...), a name or a hardware id.

exit codes:
  0  done; notify: said, or it waits for the device
  1  the server said no, or there is no such device; the line says why
  2  wrong arguments or configuration
  5  no connection, or the key was refused
"""

ONE = "DEVICE"

ACTIONS: Sequence[tuple[str, Sequence[str], str]] = (
    ("list", (), "what is known, connected, and waits for approval"),
    ("pair", ("CODE",), "approve the device that shows these six digits"),
    ("approve", (ONE, "[CODE]"), "approve a device by the digits it shows, if any; also a blocked"),
    ("block", (ONE,), "serve it no more; its keys are void"),
    ("forget", (ONE,), "as if it had never come"),
    ("rename", (ONE, "NAME"), "give it a name"),
    ("area", (ONE, "AREA"), "say in which room it stands; '' takes that back"),
    ("profile", (ONE, "FIELD=VALUE..."), "voice, language, instructions, volume, ...; '' clears"),
    ("notify", ("[DEVICE] TEXT",), "say something on it, or at its next contact"),
    ("restart", (ONE,), "reboot it"),
    ("ota", (ONE, "[FIRMWARE]"), "give it firmware of the server: a version, or the newest"),
    ("logs", (ONE,), "what happened on it lately; never words"),
)
"Name, arguments and description of each action."


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot devices` to the parser."""
    parser.description = "The devices that a running server knows."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, arguments, what in ACTIONS:
        one = actions.add_parser(name, help=what, description=what)
        for argument in arguments:
            _add_argument(one, argument)
        if name == "notify":
            one.add_argument("--area", metavar="AREA", help="on every device of this room instead")
        _add_server(one)


def _add_argument(parser: argparse.ArgumentParser, word: str) -> None:
    match word:
        case "[DEVICE] TEXT":  # one optional word before another confuses argparse
            parser.add_argument("words", metavar=word, nargs="+")
        case "[FIRMWARE]" | "[CODE]":
            name = word.strip("[]")
            parser.add_argument(name.lower(), metavar=name, nargs="?")
        case "FIELD=VALUE...":
            parser.add_argument("field", metavar="FIELD=VALUE", nargs="+")
        case _:
            parser.add_argument(word.lower(), metavar=word)


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    parser.add_argument("--url", help="the server; default: the configured one, on this machine")
    keys = " or $".join(KEY_VARIABLES)
    parser.add_argument("--key", help=f"its key; default ${keys}, or the one in the state folder")
    parser.add_argument(
        "--insecure", action="store_true", help="take any certificate, for a self-made one"
    )
    parser.add_argument("--json", action="store_true", help="what the server answered, as JSON")
