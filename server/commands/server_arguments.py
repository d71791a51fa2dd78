"""Command line options that say which running server a command manages."""

import argparse
from pathlib import Path

from bench.client.http import KEY_VARIABLES


def add_server(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the server to the parser of an action."""
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
