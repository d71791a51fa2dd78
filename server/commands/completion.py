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
    parser = _whole_parser()
    for command in _with_subcommands(parser):
        for action in command._actions:  # noqa: SLF001 - argparse has no public list of options
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _whole_parser() -> argparse.ArgumentParser:
    """Returns the parser with the options of all commands. They are asked for one by one, because
    the usual parser has only the options of the command that runs."""
    from server.__main__ import parser_for

    whole = parser_for([])
    commands = _subcommands(whole)
    for name in commands:
        commands[name] = _subcommands(parser_for([name]))[name]
    return whole


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the subcommands of a parser by name; changes of the result change the parser."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of subcommands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return action._name_parser_map  # noqa: SLF001
    return {}


def _with_subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for below in _subcommands(parser).values():
        yield from _with_subcommands(below)
