"""Entry point of `earshot`: one command with subcommands, clear errors and exit codes."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

EPILOG = """exit codes:
  0  done; for serve: stopped by a signal after draining
  1  doctor: the server cannot answer with these settings; setup: not confirmed, nothing written;
     models doctor: a model is damaged or does not load; talk, bench: no answer; replay: different
     words than in the recorded run; devices, keys, speakers, voices: the server refused the
     request; backup, restore: the archive or the state is not as it must be; service: systemd
     refused, or does not run here; audio: some recordings cannot be read; otherwise an internal
     error
  2  wrong arguments or configuration
  3  the address is in use
  4  an engine or its weights are missing
  5  talk, devices, keys, speakers, voices: the connection failed, was refused or was lost; models:
     the hub cannot be reached; engines, extras: the package index cannot be reached
  130  interrupted
  141  the reader of the output has ended, as `head` does

Settings come from a TOML file (--config, EARSHOT_CONFIG, or ./earshot.toml), then from EARSHOT_*
variables (EARSHOT_PORT, EARSHOT_TURN__SILENCE_MS), which may also be in ./.env, then from flags.
`earshot config` lists them.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code of the process."""
    started = time.monotonic()
    _find_own_packages_first()
    parser = parser_for(arguments)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    # The import of `run` waits until here: numpy, msgspec and asyncio take three times as long as
    # printing the help does.
    from server.commands.run import run

    return run(options, started)


def _find_own_packages_first() -> None:
    """Puts the folder of this package before all others that are searched. aioesphomeapi, of the
    extra esphome, installs a package `bench` of its own, which hides ours in a checkout."""
    root = str(Path(__file__).resolve().parents[1])
    if sys.path[:1] != [root]:
        sys.path.insert(0, root)


def parser_for(arguments: Sequence[str] | None) -> argparse.ArgumentParser:
    """Returns the parser of all commands. Only the command that `arguments` begin with has its
    options: importing all of them would be slow. None: the arguments of the process."""
    parser = argparse.ArgumentParser(
        prog="earshot",
        description="A self-hosted, real-time streaming voice assistant.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, description in (
        ("serve", "start the server"),
        ("config", "print every setting, its value and where the value came from"),
        ("doctor", "show which engines are installed, reachable and chosen, and why"),
    ):
        command = commands.add_parser(name, help=description, description=description)
        _add_server_options(command)
        if name == "serve":
            # The parent of several gateways starts them, and the process of their models, with
            # file descriptors.
            command.add_argument("--as-gateway", type=int, help=argparse.SUPPRESS)
            command.add_argument("--as-model-host", type=int, nargs=2, help=argparse.SUPPRESS)
        if name == "doctor":
            command.add_argument(
                "--json", action="store_true", help="print all results as JSON, at the end"
            )
            command.add_argument(
                "--update",
                action="store_true",
                help="also ask the package index (pypi.org, or PIP_INDEX_URL) for a newer release",
            )
    _add_other_commands(commands, [*(sys.argv[1:] if arguments is None else arguments)])
    return parser


OTHER_COMMANDS: Mapping[str, str] = {
    "talk": "send a recording or the microphone to a server and play the answer",
    "bench": "measure a server: `earshot bench voice`, `earshot bench asr CORPUS`",
    "models": "list, pull, convert, remove and check models",
    "devices": "list, approve, rename and notify the devices of a running server",
    "keys": "add, list and revoke keys of persons and programs",
    "speakers": "teach a running server the voices of people, list and delete them",
    "voices": "make voices of recordings on a running server, list and delete them",
    "audio": "turn recordings into the codes of a codec, without a server",
    "engines": "install, list and remove engines such as vLLM",
    "extras": "list the optional parts of Earshot and install them",
    "replay": "run the sessions of a trace again, and show what differs from the recorded run",
    "setup": "ask for voice, language, language model and access, and write the settings",
    "cluster": "start or join a cluster of machines that run models with Ray, and show it",
    "backup": "save configuration, keys and devices in one file",
    "restore": "write back what `earshot backup` has saved",
    "service": "run the server as a service of systemd",
    "completion": "print what makes bash, zsh or fish complete the commands",
}
"Name of a command whose options are imported only if it is called -> help."


def _add_other_commands(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", words: list[str]
) -> None:
    """Adds the other commands. `words`: arguments of the process. The options of a command are
    imported only if `words` begins with its name."""
    parsers = {name: commands.add_parser(name, help=text) for name, text in OTHER_COMMANDS.items()}
    match words[:1]:
        case ["talk"]:
            from bench.talk.command import add_arguments as add_talk

            add_talk(parsers["talk"])
        case ["bench"]:
            from bench.cli import add_measurements

            add_measurements(parsers["bench"])
        case ["models"]:
            from server.commands.models.arguments import add_actions

            add_actions(parsers["models"])
        case ["engines"]:
            from server.commands.engines import command

            command.add_actions(parsers["engines"])
        case ["devices"]:
            from server.commands.devices_arguments import add_actions as add_devices

            add_devices(parsers["devices"])
        case ["keys"]:
            from server.commands.keys.arguments import add_actions as add_keys

            add_keys(parsers["keys"])
        case ["speakers"]:
            from server.commands.speakers.arguments import add_actions as add_speakers

            add_speakers(parsers["speakers"])
        case ["voices"]:
            from server.commands.voices.arguments import add_actions as add_voices

            add_voices(parsers["voices"])
        case ["audio"]:
            from server.commands.audio.arguments import add_actions as add_audio

            add_audio(parsers["audio"])
        case ["extras"]:
            from server.commands.extras import add_actions as add_extras

            add_extras(parsers["extras"])
        case ["replay"]:
            from server.commands.replay.command import add_arguments as add_replay

            add_replay(parsers["replay"])
        case ["backup" | "restore"]:
            from server.commands.backup.arguments import add_backup, add_restore

            add_backup(parsers["backup"])
            add_restore(parsers["restore"])
        case ["setup"]:
            from server.commands.setup.arguments import add_arguments as add_setup

            add_setup(parsers["setup"])
        case ["cluster"]:
            from server.commands.cluster.arguments import add_actions as add_cluster

            add_cluster(parsers["cluster"])
        case ["service"]:
            from server.commands.service.arguments import add_actions as add_service

            add_service(parsers["service"])
        case ["completion"]:
            from server.commands.completion import add_arguments as add_completion

            add_completion(parsers["completion"])


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on")
    parser.add_argument("--port", metavar="PORT", help="port to listen on; 0: any free port")
    parser.add_argument(
        "--tls",
        metavar="off|auto|CERT:KEY",
        help="serve HTTPS; auto: with a self-signed certificate",
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        help="lowest level that is logged: debug, info, warning or error",
    )
    parser.add_argument(
        "--models",
        metavar="NAME,NAME",
        help="models to load at start, besides the default ones",
    )
    parser.add_argument(
        "--gateways",
        metavar="N|auto",
        type=lambda text: "0" if text == "auto" else text,
        help="processes that share the work on this address; auto: one for every two cores",
    )


class _Version(argparse.Action):
    """Option that prints the version. The version is read only then, because reading it takes
    time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from server.version import product_version

        print(f"earshot {product_version()}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
