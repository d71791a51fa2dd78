"""`python -m bench.asr`: the same as `earshot bench asr`."""

import argparse
import sys

from bench.asr.command import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.asr")
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
