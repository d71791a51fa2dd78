"""`earshot bench`: the measurements that users make of their own servers."""

import argparse
import sys

from bench.talk import Exit
from bench.voice import command as voice

EXTRA = ("kaldialign", "whisper_normalizer")


def add_measurements(parser: argparse.ArgumentParser) -> None:
    """One subcommand per measurement. Errors are only counted where the extra `bench` is there."""
    measurements = parser.add_subparsers(dest="measurement", required=True, metavar="WHAT")
    voice.add_arguments(
        measurements.add_parser("voice", help="how long an answer takes, from voice to voice")
    )
    what = "word errors, real-time factor and latencies"
    try:
        from bench.asr.command import add_arguments
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        # Whatever its arguments are: what is missing is said when it is asked for.
        asr = measurements.add_parser("asr", help=what, add_help=False, prefix_chars="\0")
        asr.add_argument("rest", nargs="*")
        asr.set_defaults(missing=missing)
    else:
        add_arguments(measurements.add_parser("asr", help=what))


def main(options: argparse.Namespace) -> int:
    """Run the one that was chosen; returns the exit code."""
    if options.measurement == "voice":
        return voice.main(options)
    if missing := getattr(options, "missing", ""):
        print(
            f"earshot: needs the package {missing}: pip install 'earshot[bench]'", file=sys.stderr
        )
        return Exit.USAGE
    from bench.asr import command

    return command.main(options)
