"""Options of `earshot bench asr`. This module needs nothing of the extra `bench`."""

import argparse
from pathlib import Path

from bench.talk.command import add_server

EPILOG = """CORPUS is a folder with wav.scp (`id path`) and trans.txt (`id words`), or a table of
`path<TAB>text` or `path<TAB>language<TAB>text`; paths are relative to it. Without --url a server
with default settings is started for the run. Files: rtf-, recogs-, errs-, errs-cer-,
stats_summary-NAME.txt, asr-NAME.json and asr-NAME.svg; see docs/bench.md.
"""

MAX_PADDING_MS = 30_000
"Longest silence around a recording: a whole window of Whisper."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `bench asr`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Sends a corpus to a server and measures word errors, real-time factor and latencies."
    )
    parser.epilog = EPILOG
    parser.add_argument("corpus", type=Path, nargs="?", metavar="CORPUS")
    parser.add_argument("--manifest-dir", type=Path, metavar="FOLDER", help="the same as CORPUS")
    parser.add_argument(
        "--num-tasks",
        type=_positive,
        default=1,
        metavar="N",
        help="number of recordings that are sent in parallel (1)",
    )
    parser.add_argument(
        "--streaming",
        nargs="?",
        choices=("ws", "webrtc"),
        const="ws",
        help=(
            "stream the recordings in real time, over WebSocket or WebRTC; default: upload each"
            " file"
        ),
    )
    add_server(parser, default="one that is started for the run")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="name of the model; with --wis-table several names, separated by commas",
    )
    parser.add_argument(
        "--language",
        metavar="CODE",
        help="spoken language; in a table with languages, only its recordings are used",
    )
    parser.add_argument(
        "--prompt", default="", metavar="TEXT", help="uploads: text that comes before"
    )
    parser.add_argument(
        "--hotwords", default="", metavar="TEXT", help="uploads: words that become more likely"
    )
    parser.add_argument(
        "--prefix", default="", metavar="TEXT", help="uploads: raw decoder prefix, special tokens"
    )
    parser.add_argument(
        "--beam", type=_positive, metavar="N", help="uploads: beam size; 1 is greedy"
    )
    parser.add_argument(
        "--padding",
        type=_padding_ms,
        default=0,
        metavar="MS",
        help=f"silence before and after each recording, 0 to {MAX_PADDING_MS} ms (0)",
    )
    parser.add_argument(
        "--limit", type=_positive, metavar="N", help="use only the first N recordings"
    )
    parser.add_argument(
        "--log-dir",
        type=Path,
        default=Path("tmp"),
        metavar="FOLDER",
        help="folder for the result files (./tmp)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--wis-table",
        action="store_true",
        help="print the table of Willow Inference Server's benchmark instead",
    )


def _padding_ms(text: str) -> int:
    padding_ms = int(text)
    if not 0 <= padding_ms <= MAX_PADDING_MS:
        raise argparse.ArgumentTypeError(f"must be from 0 to {MAX_PADDING_MS}")
    return padding_ms


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
