"""`earshot completion SHELL`: prints a script with which a shell completes commands and options."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

SHELLS = ("bash", "zsh", "fish")

EPILOG = """install it for new shells with one of:
  bash  earshot completion bash >> ~/.bashrc
  zsh   earshot completion zsh > "${fpath[1]}/_earshot"
  fish  earshot completion fish > ~/.config/fish/completions/earshot.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `earshot completion`."""
    parser.description = "Prints a script with which a shell completes commands and options."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def script(shell: str) -> str:
    """Returns the script of one of `SHELLS`."""
    parser = _full_parser()
    for command in _walk_parsers(parser):
        for action in command._actions:  # noqa: SLF001 - argparse has no public list of options
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _full_parser() -> argparse.ArgumentParser:
    """Returns the parser with the options of all commands. It is put together from one parser per
    command, because each has only the options of the command that it was made for."""
    from server.__main__ import parser_for

    parser = parser_for([])
    commands = _subcommands(parser)
    for name in commands:
        commands[name] = _subcommands(parser_for([name]))[name]
    return parser


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the subcommands of a parser by name; changes of the result change the parser."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of subcommands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return action._name_parser_map  # noqa: SLF001
    return {}


def _walk_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields a parser and all parsers of its subcommands, at any depth."""
    yield parser
    for subparser in _subcommands(parser).values():
        yield from _walk_parsers(subparser)
