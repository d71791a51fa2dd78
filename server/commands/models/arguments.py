"""Command line options of `earshot models`."""

import argparse
from pathlib import Path

QUANTIZATIONS = ("float16", "int8", "int8_float16", "float32")


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot models`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_list_options(
        _action(
            actions, "list", ("list the models in the models folder, and those that can be pulled")
        )
    )
    _add_pull_options(
        _action(actions, "pull", ("download a model from a hub; continues an interrupted download"))
    )
    _add_convert_options(
        _action(actions, "convert", "convert a checkpoint to a model (needs the extra torch)")
    )
    remove = _action(actions, "rm", "remove a model from the models folder")
    remove.add_argument("name", metavar="NAME")
    remove.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    bench = _action(
        actions,
        "bench",
        (
            "measure both Whisper engines with a model, or with --recordings all recognisers; the"
            " setting auto then selects the better one"
        ),
    )
    bench.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        default="",
        help="name of the model; with --recordings default: all recognisers",
    )
    bench.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        nargs="?",
        default="",
        help="the checkpoint of the same model, for whisper_torch",
    )
    bench.add_argument(
        "--recordings",
        type=Path,
        metavar="FOLDER",
        help=(
            "folder with recordings and transcripts.tsv (path, perhaps language, text): measure"
            " word errors, times and memory with them (needs the extra bench)"
        ),
    )
    _add_json_option(bench)
    doctor = _action(actions, "doctor", "check whether models are complete, load and decode")
    doctor.add_argument(
        "name", metavar="NAME", nargs="?", help="name of one model; default: all models"
    )
    _add_json_option(doctor)


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, description: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=description, description=description)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    parser.add_argument(
        "--models-dir",
        type=Path,
        metavar="DIR",
        help="folder of the models; default: the setting paths.models_dir",
    )
    return parser


def _add_list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true", help="show more details of the models that can be pulled"
    )
    _add_json_option(parser)


def _add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_pull_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "wanted",
        metavar="NAME",
        nargs="?",
        default="auto",
        help=(
            "a known name (`list --all`), auto (the default), ORGANISATION/REPOSITORY, or the"
            " address of its page; voices: piper:VOICE (piper:en_US-lessac-medium), hibari:VOICE"
            " (hibari:emma), kokoro; models of sherpa-onnx: sherpa:NAME"
        ),
    )
    parser.add_argument(
        "--json", action="store_true", help="print the progress as events, one JSON object per line"
    )
    parser.add_argument(
        "--best-effort", action="store_true", help="exit with code 0 even after an error"
    )
    _add_source_options(parser)


def _add_convert_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="folder of a checkpoint, or a name as for `pull`"
    )
    parser.add_argument("name", metavar="NAME", help="name of the new model")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        default="float16",
        help="number format of the weights in the file; default: float16",
    )
    parser.add_argument(
        "--padding",
        choices=("nopad",),
        help=(
            "for weights that were trained on windows as short as the utterance; default: the"
            " padding that is known for the model"
        ),
    )
    parser.add_argument(
        "--python",
        default="",
        metavar="FILE",
        help="Python interpreter that has torch; default: the one that runs Earshot",
    )
    _add_source_options(parser)


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--revision", metavar="REF", help="branch, tag or commit of the repository")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        help="seconds without a byte after which a connection is given up; default: 15",
    )
    parser.add_argument(
        "--offline", action="store_true", help="download nothing (the same as HF_HUB_OFFLINE=1)"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds in (0, 3600], got {text!r}")
    return seconds
