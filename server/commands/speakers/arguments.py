"""Command line options of `earshot speakers`."""

import argparse
from pathlib import Path

from server.commands.server_arguments import add_server

PROFILE_OPTIONS = (
    ("voice", "VOICE", "voice of the answers"),
    ("language", "CODE", "language of the answers, such as en or de"),
    ("speed", "N", "rate of speech, 0.25 to 1.5; 1 is normal"),
    ("volume", "N", "volume of a device's loudspeaker, 0 to 100"),
    ("instructions", "TEXT", "instructions for the assistant"),
    ("follow_voice", "on|off", "add sure utterances to the recordings of the voice"),
)
"Field of a person's profile, value and description of its option."

EPILOG = """PERSON is an id (spk_...) or a name. Recordings are files in any common format. The
server keeps none of them.

exit codes:
  0  done; try: also if the voice is that of a guest
  1  the server refused the request, or there is no such person; the message says why
  2  wrong arguments or configuration
  5  no connection, or the key was refused
"""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot speakers` to the parser."""
    parser.description = "Teaches a running server the voices of people, and forgets them."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    what = "list the people whose voices the server knows"
    listing = actions.add_parser("list", help=what, description=what)
    what = "learn a person's voice from recordings; three of some seconds each are best"
    add = actions.add_parser("add", help=what, description=what)
    add.add_argument("name", metavar="NAME", help="name of the person")
    add.add_argument("files", metavar="FILE", type=Path, nargs="+", help="a recording of the voice")
    what = "rename a person, or change the settings of the answers to them; '' clears one"
    change = actions.add_parser("set", help=what, description=what)
    change.add_argument("person", metavar="PERSON", help="the person to change")
    for name, metavar, meaning in (("name", "NAME", "new name"), *PROFILE_OPTIONS):
        change.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=meaning)
    change.add_argument(
        "--telephone",
        metavar="NUMBERS",
        help="numbers from which the person calls, with + and the country, commas between them",
    )
    what = "let conversations learn voices for some minutes: say 'learn my voice'"
    allow = actions.add_parser("allow", help=what, description=what)
    allow.add_argument("--minutes", type=int, default=5, metavar="N", help="0 to 60; default: 5")
    what = "forget a person's voice"
    remove = actions.add_parser("remove", help=what, description=what)
    remove.add_argument("person", metavar="PERSON", help="the person to forget")
    what = "say whose voice a recording has"
    attempt = actions.add_parser("try", help=what, description=what)
    attempt.add_argument("files", metavar="FILE", type=Path, nargs="+", help="a recording")
    for action in (listing, add, change, allow, remove, attempt):
        add_server(action)
