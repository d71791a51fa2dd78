"""Command line options of `earshot models`."""

import argparse
from pathlib import Path

QUANTIZATIONS = ("float16", "int8", "int8_float16", "float32")


def add_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _list(_action(actions, "list", "what is in the models folder, and what could be"))
    _pull(_action(actions, "pull", "fetch a model from a hub; an interrupted one goes on"))
    _convert(_action(actions, "convert", "make a model of a checkpoint (needs the extra torch)"))
    remove = _action(actions, "rm", "remove a model from the models folder")
    remove.add_argument("name", metavar="NAME")
    remove.add_argument("--yes", action="store_true", help="do not ask")
    bench = _action(
        actions, "bench", "time both Whisper engines with a model; auto takes the faster"
    )
    bench.add_argument("name", metavar="NAME")
    bench.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", default="", help="the same for whisper_torch"
    )
    doctor = _action(actions, "doctor", "say whether models are whole, load and decode")
    doctor.add_argument("name", metavar="NAME", nargs="?", help="default: every one")


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, what: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=what, description=what)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    parser.add_argument(
        "--models-dir", type=Path, metavar="DIR", help="default: the setting paths.models_dir"
    )
    return parser


def _list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="say more of those that can be pulled")
    parser.add_argument("--json", action="store_true", help="for programs")


def _pull(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "wanted",
        metavar="NAME",
        nargs="?",
        default="auto",
        help="a known name (`list --all`), auto (the default), ORGANISATION/REPOSITORY, or its"
        " page's address; voices: piper:VOICE (piper:en_US-lessac-medium), kokoro",
    )
    parser.add_argument("--best-effort", action="store_true", help="end with 0 whatever happens")
    _add_source(parser)


def _convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="a folder with a checkpoint, or what `pull` takes"
    )
    parser.add_argument("name", metavar="NAME", help="what the model will be called")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        default="float16",
        help="of the file; default: float16",
    )
    parser.add_argument(
        "--padding",
        choices=("nopad",),
        help="weights that were trained on windows as short as the utterance; default: as known",
    )
    parser.add_argument(
        "--python", default="", metavar="FILE", help="an interpreter that has torch; default: ours"
    )
    _add_source(parser)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--revision", metavar="REF", help="a branch, a tag or a commit")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        help="give a connection up without one byte for so long; default: 15",
    )
    parser.add_argument(
        "--offline", action="store_true", help="fetch nothing (as does HF_HUB_OFFLINE=1)"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds in (0, 3600], got {text!r}")
    return seconds
