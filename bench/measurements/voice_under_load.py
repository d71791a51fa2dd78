"""Measures how much later a voice answers while other clients ask for embeddings and chats.

    python -m bench.measurements.voice_under_load --config FILE --embedder NAME

FILE has the settings of the server that is started: its models folder must hold the model NAME.
Rounds of spoken turns without and with the load alternate. Exit codes: 0 the 95th percentile with
the load is at most `MAX_RATIO` of that without; 1 it is more, or a turn was not answered.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.client.http import Address
from bench.client.realtime import SessionRequest
from bench.load import bodies
from bench.load.clients import LoadPlan, LoadReport, check_server, run
from bench.server.own_server import own_server
from bench.tools.stats import machine, markdown, percentile, spread
from bench.tools.utterance_audio import BenchUtterance
from bench.voice import measure
from bench.voice.clips import clips
from bench.voice.measure import VoicePlan, VoiceTurn
from bench.voice.summary import answered_reports, count_early_answers, voice_to_voice

MAX_RATIO = 1.5

TIMEOUT_S = 300.0

MOST_REQUESTS = 10_000_000
"More than any load answers before the turns are over."


def main() -> int:
    """Measures and prints two tables; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="recordings to play")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--embedder", required=True, metavar="NAME")
    parser.add_argument("--embedding-clients", type=int, default=50, metavar="N")
    parser.add_argument("--chat", default="assistant", metavar="NAME", help="model of the chats")
    parser.add_argument("--chats", type=int, default=4, metavar="N")
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="of each round")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--transport", choices=("webrtc", "ws"), default="webrtc")
    return asyncio.run(_main(parser.parse_args()))


async def _main(options: argparse.Namespace) -> int:
    print(f"{machine()}, {options.rounds} rounds of {options.turns} turns\n")
    utterances = clips(options.files)
    alone: list[VoiceTurn] = []
    beside: list[VoiceTurn] = []
    reports: list[LoadReport] = []
    async with own_server(["--config", str(options.config)]) as server:
        loads = _loads(options, server.address)
        for load in loads:
            await check_server(load.address, load.kind, TIMEOUT_S)
        plan = VoicePlan(server.address, options.transport, SessionRequest(), options.turns)
        for _ in range(options.rounds):
            alone += await measure.run(plan, utterances, _ignore)
            turns, round_reports = await _run_with_load(plan, utterances, loads)
            beside += turns
            reports += round_reports
    print(_voice_table(alone, beside))
    print(f"\n{_load_table(reports)}")
    ratio = _ratio(alone, beside)
    is_answered = all(len(answered_reports(turns)) == len(turns) for turns in (alone, beside))
    print(f"\np95 with the load: {ratio:.2f} x that without; target at most {MAX_RATIO}")
    return 0 if is_answered and ratio <= MAX_RATIO else 1


def _loads(options: argparse.Namespace, address: Address) -> list[LoadPlan]:
    kinds = (
        (bodies.embeddings(options.embedder, words=8, inputs=1), options.embedding_clients),
        (bodies.chat(options.chat, prompt="Tell me a story.", max_tokens=64), options.chats),
    )
    return [
        LoadPlan(address, kind, clients, MOST_REQUESTS, TIMEOUT_S, is_kept=True)
        for kind, clients in kinds
        if clients
    ]


async def _run_with_load(
    plan: VoicePlan, utterances: Sequence[BenchUtterance], loads: Sequence[LoadPlan]
) -> tuple[list[VoiceTurn], list[LoadReport]]:
    """Runs the turns while all loads run, and ends these then."""
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run(load, is_over)) for load in loads]
        turns = await measure.run(plan, utterances, _ignore)
        is_over.set()
    return turns, [task.result() for task in running]


def _ignore(_: VoiceTurn) -> None:
    """Shows no progress."""


def _ratio(alone: Sequence[VoiceTurn], beside: Sequence[VoiceTurn]) -> float:
    """Returns p95 of the turns with the load by that of the turns without; infinite if there are
    no answers to compare."""
    pair = [voice_to_voice(turns) for turns in (beside, alone)]
    if not all(pair):
        return float("inf")
    with_load_ms, without_ms = (percentile(times_ms, 95) for times_ms in pair)
    return with_load_ms / without_ms


def _voice_table(alone: Sequence[VoiceTurn], beside: Sequence[VoiceTurn]) -> str:
    rows = [
        [
            title,
            *spread(voice_to_voice(turns)),
            str(count_early_answers(turns)),
            str(len(turns) - len(answered_reports(turns))),
        ]
        for title, turns in (("alone", alone), ("with the load", beside))
    ]
    head = [
        "voice to voice, ms",
        "p50",
        "p95",
        "min",
        "max",
        "turns",
        "answered early",
        "not answered",
    ]
    return markdown(head, rows)


def _load_table(reports: Sequence[LoadReport]) -> str:
    """Returns a row for each kind of load, over all rounds."""
    rows: list[list[str]] = []
    for kind in dict.fromkeys(report.plan.kind.name for report in reports):
        rounds = [report for report in reports if report.plan.kind.name == kind]
        errors: Counter[str] = sum((report.errors for report in rounds), Counter())
        took_ms = [answer.took_ms for report in rounds for answer in report.answered]
        wall_s = sum(report.wall_s for report in rounds)
        rows.append(
            [
                f"{rounds[0].plan.clients} x {kind}",
                f"{len(took_ms) / wall_s:.1f}",
                *(
                    f"{percentile(took_ms, percent):.0f}" if took_ms else "-"
                    for percent in (50, 95)
                ),
                ", ".join(f"{count} x {what}" for what, count in errors.most_common()) or "0",
            ]
        )
    return markdown(["load", "requests/s", "p50 ms", "p95 ms", "errors"], rows)


if __name__ == "__main__":
    sys.exit(main())
