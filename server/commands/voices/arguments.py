"""Command line options of `earshot voices`."""

import argparse
from pathlib import Path

from server.commands.server_arguments import add_server

EPILOG = """The recording has 3 to 15 s of one person's speech, in any common format. The server
does not keep it. `add` shows a text of consent; --consent says that the person agrees to it.

exit codes:
  0  done
  1  the server refused the request, or there is no such voice; the message says why
  2  wrong arguments or configuration, or no consent
  5  no connection, or the key was refused
"""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot voices` to the parser."""
    parser.description = "Makes voices of recordings, lists and deletes them."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    what = "list the voices of the key"
    listing = actions.add_parser("list", help=what, description=what)
    what = "make a voice of a recording"
    add = actions.add_parser("add", help=what, description=what)
    add.add_argument("name", metavar="NAME", help="letters, digits, _ and -, at most 32")
    add.add_argument("file", metavar="FILE", type=Path, help="the recording")
    add.add_argument("--language", metavar="CODE", default="", help="language of the voice: en, de")
    add.add_argument("--consent", action="store_true", help="the person agrees to the text")
    what = "delete a voice, with all that was computed of it"
    delete = actions.add_parser("delete", help=what, description=what)
    delete.add_argument("name", metavar="NAME", help="the voice to delete")
    for action in (listing, add, delete):
        add_server(action)
