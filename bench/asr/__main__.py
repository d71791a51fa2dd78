"""`python -m bench.asr`: the same as `earshot bench asr`."""

import argparse
import sys

from bench.asr.arguments import add_arguments
from bench.cli import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.asr")
    parser.set_defaults(measurement="asr")
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
