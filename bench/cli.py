"""`earshot bench`: measurements that users make of their own servers."""

import argparse
import sys

from bench.asr import arguments as asr
from bench.load import command as load
from bench.talk.command import TalkExitCode
from bench.voice import command as voice

EXTRA = ("kaldialign", "whisper_normalizer")
"Packages of the extra `bench`."


def add_measurements(parser: argparse.ArgumentParser) -> None:
    """Adds one subcommand per measurement. `asr` needs the extra `bench` to run, but not for its
    help."""
    measurements = parser.add_subparsers(dest="measurement", required=True, metavar="WHAT")
    voice.add_arguments(
        measurements.add_parser(
            "voice", help="measure the time from the end of speech to the answer's first audio"
        )
    )
    what = "measure word errors, real-time factor and latencies of speech recognition"
    asr.add_arguments(measurements.add_parser("asr", help=what))
    for kind, aim in load.PURPOSES.items():
        load.add_arguments(measurements.add_parser(kind, help=aim), kind)


def main(options: argparse.Namespace) -> int:
    """Runs the chosen measurement; returns the exit code."""
    if options.measurement == "voice":
        return voice.main(options)
    if options.measurement in load.PURPOSES:
        return load.main(options)
    try:
        from bench.asr import command
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        print(f"earshot: needs the package {missing}: `earshot extras add bench`", file=sys.stderr)
        return TalkExitCode.USAGE
    return command.main(options)
