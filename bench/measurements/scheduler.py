"""Compares the recognition scheduler with a lock, and measures the event loop's lag under load.

    python -m bench.measurements.scheduler --rounds 5 --talkers 8 --uploads 2

The first table uses a stub model that sleeps in real time, with the same cost per call whatever its
size; each round runs both ways one after the other. The second uses a real worker process with
whisper-nano.
"""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench.measurements.loop_lag import LoopLagResult, full_load
from bench.server.stub_engines.scheduled_asr import (
    CALL_S,
    TOGETHER,
    SharingResult,
    measure_lock,
    measure_scheduler,
)
from bench.tools.stats import machine, markdown, percentile

WHISPER_NANO = Path(__file__).parents[2] / "tests" / "fixtures" / "whisper-nano"
"Model in a checkout; an installed Earshot has no model of its own."

REQUESTS = 80
"Number of requests of one round."


async def compare(rounds: int) -> list[tuple[SharingResult, SharingResult]]:
    """Runs lock and scheduler in each round."""
    return [
        (await measure_lock(REQUESTS), await measure_scheduler(REQUESTS)) for _ in range(rounds)
    ]


def stub_table(rounds: Sequence[tuple[SharingResult, SharingResult]]) -> str:
    """Returns Markdown: median (range), then the ratios that have a target."""

    def row(name: str, found: Sequence[SharingResult]) -> list[str]:
        return [
            name,
            _spread([result.alone_ms for result in found]),
            _spread([result.together_p95_ms for result in found]),
            _spread([result.per_s for result in found]),
        ]

    head = ["", "one alone, ms", f"{TOGETHER} at once, p95, ms", "requests / s"]
    lock_results, scheduler_results = [lock for lock, _ in rounds], [own for _, own in rounds]
    slower = [own.together_p95_ms / own.alone_ms for own in scheduler_results]
    faster = [own.per_s / lock.per_s for lock, own in rounds]
    return (
        markdown(head, [row("lock", lock_results), row("scheduler", scheduler_results)])
        + f"\n\n{TOGETHER} at once / one alone: {_spread(slower, 2)} (target: at most 2)"
        + f"\nthroughput, scheduler / lock: {_spread(faster, 1)} (target: at least 4)"
    )


def lag_table(load: LoopLagResult) -> str:
    """Returns Markdown: the event loop's lag, and the work that was done meanwhile."""

    def row(name: str, values: Sequence[float]) -> list[str]:
        if not values:
            return [name, "-", "-", "-", "-", "0"]
        percents = [f"{percentile(values, percent):.1f}" for percent in (50, 95, 99)]
        return [name, *percents, f"{max(values):.1f}", str(len(values))]

    rows = [
        row("loop lag, idle", load.idle_lags_ms),
        row("loop lag, full load", load.lags_ms),
        row("the loop's own work in 5 ms", load.own_ms),
        row("final, request to result", load.finals_ms),
    ]
    return (
        markdown(["ms", "p50", "p95", "p99", "most", "n"], rows)
        + f"\n\n{load.partials} partials, {load.dropped} dropped; {load.uploads} windows of uploads"
        + "\nloop lag p99: target at most 10"
    )


def _spread(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = (f"{v:.{digits}f}" for v in (min(values), median(values), max(values)))
    return f"{middle} ({low}-{high})"


def _run(options: argparse.Namespace) -> LoopLagResult:
    work = full_load(
        options.model, options.workers, options.talkers, options.uploads, options.seconds
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns the event loop's factory, the same as the server's."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds of the stub model, 5 s each (%(default)s)"
    )
    parser.add_argument(
        "--model", type=Path, default=WHISPER_NANO, help="folder of a converted Whisper model"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--talkers", type=int, default=8)
    parser.add_argument("--uploads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    print(f"{machine()}\n\nA call of the stub model: {CALL_S * 1000:.0f} ms\n")
    print(stub_table(asyncio.run(compare(options.rounds))), flush=True)
    if not options.model.exists():
        parser.error(f"no model in {options.model}: give one with --model FOLDER")
    who = f"{options.talkers} talkers, {options.uploads} uploads, {options.workers} worker(s)"
    print(f"\n{options.model.name}, {who}, {options.seconds:.0f} s\n")
    print(lag_table(_run(options)))


if __name__ == "__main__":
    main()
