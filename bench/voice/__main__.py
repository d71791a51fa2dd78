"""`python -m bench.voice`: the same as `earshot bench voice`."""

import argparse
import sys

from bench.voice.command import add_arguments, main

if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="python -m bench.voice")
    add_arguments(_parser)
    sys.exit(main(_parser.parse_args()))
