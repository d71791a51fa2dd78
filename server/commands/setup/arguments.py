"""Command line options of `earshot setup`."""

import argparse
from pathlib import Path

EPILOG = """Without --set and --unset it asks questions; Enter keeps what is there. Nothing is
written before the change was shown and confirmed. Comments and order of the file stay.

  earshot setup
  earshot setup --yes --set language=de --set llm.engine=hybrid \\
      --set llm.options.model.options.base_url=http://127.0.0.1:11434/v1

exit codes:
  0  written, or nothing to change
  1  not confirmed; nothing was written
  2  a value is wrong; nothing was written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `earshot setup`."""
    parser.description = (
        "Asks for voice, language, language model, wake word and access, and writes them."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change this setting instead of asking; may be given several times",
    )
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="KEY",
        help="remove this setting from the file, so that its default holds",
    )
    parser.add_argument("--yes", action="store_true", help="write without confirmation")
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON; asks nothing"
    )
