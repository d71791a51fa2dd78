"""Command line options of `earshot audio`."""

import argparse
from pathlib import Path

EPILOG = """exit codes:
  0  every recording has its codes
  1  some recordings cannot be read; their names and the reasons are on standard error
  2  wrong arguments or configuration
  4  the codec or torch is missing
"""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot audio` to the parser."""
    parser.description = "Works on recordings, without a server."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    what = "turn recordings into the codes of a codec, one .npy file for each"
    tokenize = actions.add_parser("tokenize", help=what, description=what)
    tokenize.add_argument(
        "inputs",
        metavar="INPUT",
        type=Path,
        nargs="+",
        help="a recording, a folder (with its folders), or a tar or zip archive",
    )
    tokenize.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder for the codes; what is already there is not computed again",
    )
    tokenize.add_argument("--model", default="mimi", help="name of the codec; default: mimi")
    tokenize.add_argument(
        "--codebooks",
        type=int,
        default=8,
        metavar="N",
        help="number of codebooks: 2, 4, 8 (default) or 16, if the codec has so many",
    )
    tokenize.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda", help="where the codec runs"
    )
    tokenize.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
