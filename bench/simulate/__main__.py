"""Simulates many callers with the product's own scheduler, in virtual time.

    python -m bench simulate                                # the tables of docs/simulation.md
    python -m bench simulate --validate --model FOLDER CLIP...        # measured beside simulated
    python -m bench simulate --measure FILE --model FOLDER CLIP...    # costs of this machine

Exit codes: 0 done; 1 an error of the simulated p95 above 20 %, or a measurement that failed;
2 wrong arguments.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec.json import encode
from msgspec.json import format as pretty

from bench.simulate.costs import GPU_COSTS, read_costs, write_costs
from bench.simulate.measure import measure_costs, sources
from bench.simulate.report import tables
from bench.simulate.validate import ALLOWED_ERROR, compare, table
from bench.tools.stats import machine
from bench.voice.clips import clips
from core.errors import EarshotError, RequestError

SEEDS = 3
"Runs at each capacity; the range of their p95 shows how sure it is."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the arguments ask for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench simulate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("clips", nargs="*", type=Path, metavar="CLIP", help="recordings to speak")
    parser.add_argument("--measure", type=Path, metavar="FILE", help="write this machine's costs")
    parser.add_argument(
        "--validate", action="store_true", help="measure callers, and simulate them"
    )
    parser.add_argument("--model", type=_folder, metavar="FOLDER", help="converted Whisper model")
    parser.add_argument("--callers", type=_numbers, default=[5, 10, 20, 40], metavar="N,N")
    parser.add_argument("--turns", type=int, default=80, help="turns of each number of callers")
    parser.add_argument("--costs", type=Path, metavar="FILE", help="costs to use")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.turns < 1:
        parser.error("--turns must be 1 or more")
    if (options.measure or options.validate) and not (options.model and options.clips):
        parser.error("--measure and --validate need --model FOLDER and recordings")
    try:
        if options.measure or options.validate:
            return asyncio.run(_measure(options))
        return _simulate(options)
    except KeyboardInterrupt:
        return 130
    except EarshotError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2 if isinstance(error, RequestError) else 1


def _simulate(options: argparse.Namespace) -> int:
    seeds = range(options.seed, options.seed + SEEDS)
    found = tables(read_costs(options.costs or GPU_COSTS), seeds)
    if options.json:
        print(pretty(encode([one.json() for one in found])).decode())
    else:
        for one in found:
            print(f"{one.markdown()}\n", flush=True)
    return 0


async def _measure(options: argparse.Namespace) -> int:
    utterances, measured_on = clips(options.clips), machine()
    if options.costs:
        costs = read_costs(options.costs)
    else:
        costs = await measure_costs(options.model, utterances, max(8, options.turns // 4))
    if options.measure:
        command = f"python -m bench simulate --measure, {datetime.now(UTC).date()}, {measured_on}"
        write_costs(options.measure, costs, sources(f"{command}, {options.model.name}"))
    if not options.validate:
        return 0
    print(f"{measured_on}\n{costs}\n", flush=True)
    cores = len(os.sched_getaffinity(0))
    compared = await compare(
        options.model, utterances, costs, options.callers, options.turns, cores
    )
    print(table(compared))
    return 0 if all(abs(load.error) <= ALLOWED_ERROR for load in compared) else 1


def _folder(text: str) -> Path:
    folder = Path(text).resolve()
    if not (folder / "model.bin").is_file():
        raise argparse.ArgumentTypeError(f"{text} has no model.bin")
    return folder


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more each")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
