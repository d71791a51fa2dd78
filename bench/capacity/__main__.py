"""Number of sessions per core, compared with minimal servers on the same libraries.

    python -m bench.capacity [webrtc] [websocket] [limit] [cycles]

Server and clients are each pinned to one core. All servers of a comparison run all the time; they
are called one after the other, in changing order. See docs/bench.md.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from uvloop import new_event_loop

from bench.capacity import rounds, session_limit
from bench.capacity.cpu_affinity import cores, on_core
from bench.tools.stats import machine
from core.errors import EarshotError

PARTS = ("webrtc", "websocket", "limit", "cycles")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns exit code 1 when a measurement failed, or the server violated its session limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "parts", nargs="*", choices=(*PARTS, []), help="parts to measure; default: all"
    )
    parser.add_argument(
        "--calls",
        type=_numbers,
        default=[10, 20, 30],
        help="numbers of simultaneous calls, separated by commas (10,20,30)",
    )
    parser.add_argument(
        "--sockets",
        type=_numbers,
        default=[20, 50],
        help="numbers of simultaneous WebSockets, separated by commas (20,50)",
    )
    parser.add_argument("--systems", type=_names, help="only these systems, separated by commas")
    parser.add_argument("--seconds", type=float, default=10, help="seconds of one run (10)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument(
        "--limit", type=int, default=32, help="maximum number of sessions, at least 2 (32)"
    )
    options = parser.parse_args(arguments)
    if min(options.seconds, options.rounds, options.cycles, options.limit - 1) <= 0:
        parser.error("--seconds, --rounds and --cycles must be more than 0, --limit more than 1")
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_main(options))
    except KeyboardInterrupt:
        return 130
    except EarshotError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


async def _main(options: argparse.Namespace) -> None:
    placed = cores()
    plan = rounds.CapacityPlan(placed, options.seconds, options.rounds, options.systems)
    for part in options.parts or PARTS:
        print(f"\n### {part}; {machine()}\n", flush=True)
        with on_core(placed.load):
            match part:
                case "webrtc":
                    found = await rounds.webrtc(plan, options.calls)
                case "websocket":
                    found = await rounds.websocket(plan, options.sockets)
                case "limit":
                    found = await session_limit.limit(placed, options.limit)
                case _:
                    found = await session_limit.cycles(placed, options.cycles)
        print(found, flush=True)


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more each")
    return numbers


def _names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    sys.exit(main())
