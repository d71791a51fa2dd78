"""Command line options of `earshot keys`."""

import argparse

from core.access.named_key import SCOPES
from server.commands.server_arguments import add_server

_SCOPES = "\n".join(f"  {name:<8}{what}" for name, what in SCOPES.items())

PROFILE_OPTIONS = (
    ("voice", "VOICE", "voice of the answers"),
    ("language", "CODE", "language of the conversation, such as en or de"),
    ("speed", "N", "rate of speech, 0.25 to 1.5; 1 is normal"),
    ("asr", "MODEL", "recogniser"),
    ("instructions", "TEXT", "instructions for the assistant"),
    ("answer_temperature", "N", "temperature of the language model, 0 to 2"),
    ("tools", "TOOL[,TOOL...]", "names of the only tools that the assistant may use"),
    ("echo", "MODE", "off, cancel or half_duplex: what is done about the answer's echo"),
    ("barge_in", "POLICY", "on, patient, wake_word or off: speech that stops an answer"),
)
"Field of a key's profile, value and description of its option."

EPILOG = f"""scopes:
{_SCOPES}

exit codes:
  0  done
  1  the server refused the request, or there is no such key; the message says why
  2  wrong arguments or configuration
  5  no connection, or the key was refused
"""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot keys` to the parser."""
    parser.description = "Adds, lists, changes and revokes named keys of a running server."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    what = "make a key and print it; nothing shows it later"
    add = actions.add_parser("add", help=what, description=what)
    _add_name(add)
    add.add_argument(
        "--scopes",
        default="talk",
        metavar="SCOPE[,SCOPE...]",
        help=f"what the key opens: {', '.join(SCOPES)}; default: talk",
    )
    add.add_argument("--sessions", type=int, metavar="N", help="most sessions at once")
    add.add_argument("--requests", type=int, metavar="N", help="most requests within a minute")
    _add_profile(add)
    what = "change the settings with which new sessions of a key begin; '' clears one"
    change = actions.add_parser("set", help=what, description=what)
    _add_name(change)
    _add_profile(change)
    what = "list the keys with scopes, limits, last use and live sessions"
    listing = actions.add_parser("list", help=what, description=what)
    what = "revoke a key: its sessions and requests end at once"
    revoke = actions.add_parser("revoke", help=what, description=what)
    _add_name(revoke)
    for action in (add, change, listing, revoke):
        add_server(action)


def _add_profile(parser: argparse.ArgumentParser) -> None:
    """Adds an option for each setting of a key."""
    for name, metavar, what in PROFILE_OPTIONS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=what)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the key, such as anna or kitchen-tv")
