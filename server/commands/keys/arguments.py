"""Command line options of `earshot keys`."""

import argparse

from core.named_key import SCOPES
from server.commands.server_arguments import add_server

_SCOPES = "\n".join(f"  {name:<8}{what}" for name, what in SCOPES.items())

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
    parser.description = "Adds, lists and revokes named keys of a running server."
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
    what = "list the keys with scopes, limits, last use and live sessions"
    listing = actions.add_parser("list", help=what, description=what)
    what = "revoke a key: its sessions and requests end at once"
    revoke = actions.add_parser("revoke", help=what, description=what)
    _add_name(revoke)
    for action in (add, listing, revoke):
        add_server(action)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the key, such as anna or kitchen-tv")
