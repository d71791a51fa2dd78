"""Compares Earshot with other voice servers: same audio, same wait, same times of the engines.

    python -m bench.peers.voice install
    python -m bench.peers.voice [--rounds 5] [--clips 5] [--wait 200] [--stubs 50,150,80]

Every system runs all the time, in a process of its own; they are called in turn, in changing order.
A round takes some 4 s per clip and system.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.peers.environments import VOICE_PEERS, MissingPeer, folder, install
from bench.peers.voice.systems import TITLES, SystemName, VoiceConditions, VoiceSystem, system
from bench.tools.stats import machine, markdown, percentile
from bench.tools.utterance_audio import BenchUtterance
from bench.voice.clips import clips
from bench.voice.stub_server import parse_stub_delays
from core.errors import EarshotError, RequestError

HEAD = (
    "system",
    "voice to voice, median of rounds, ms",
    "p95 of all turns",
    "answered",
    "too early",
)


@dataclass(slots=True)
class VoiceRounds:
    """Rounds of one system. sent: number of all turns."""

    times_ms: list[list[float]] = field(default_factory=list[list[float]])
    "Latencies of each round, for turns that were answered after their end."
    sent: int = 0
    early: int = 0
    "Turns that were answered before their end: a pause was taken for the end."
    problem: str = ""

    def add(self, times_ms: list[float | None]) -> None:
        """Adds a round. times_ms: latency of each turn, None without an answer."""
        self.sent += len(times_ms)
        self.early += sum(ms is not None and ms < 0 for ms in times_ms)
        answered = [ms for ms in times_ms if ms is not None and ms >= 0]
        if answered:
            self.times_ms.append(answered)


def table(found: Mapping[str, VoiceRounds]) -> str:
    """Returns Markdown, a row per system; (smallest to largest) is over rounds."""
    return markdown(HEAD, [_row(title, rounds) for title, rounds in found.items()])


def _row(title: str, rounds: VoiceRounds) -> list[str]:
    name = f"{title} ({rounds.problem})" if rounds.problem else title
    if not rounds.times_ms:
        return [name, "-", "-", f"0 of {rounds.sent}", str(rounds.early)]
    medians = [median(each) for each in rounds.times_ms]
    every = [ms for each in rounds.times_ms for ms in each]
    return [
        name,
        f"{median(medians):.0f} ({min(medians):.0f} to {max(medians):.0f})",
        f"{percentile(every, 95):.0f}",
        f"{len(every)} of {rounds.sent}",
        str(rounds.early),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.voice", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", nargs="?", choices=("install", "measure"), default="measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clips", type=int, default=5, help="clips per round (5)")
    parser.add_argument(
        "--wait", type=int, default=200, help="silence in ms that ends a turn (200)"
    )
    parser.add_argument(
        "--stubs",
        type=parse_stub_delays,
        default="50,150,80",
        help="delays of the ASR, LLM and TTS stubs in ms (%(default)s)",
    )
    parser.add_argument(
        "--systems", help=f"only these systems, separated by commas: {', '.join(TITLES)}"
    )
    options = parser.parse_args(arguments)
    try:
        if options.what == "install":
            return _install()
        asyncio.run(_measure(options))
    except KeyboardInterrupt:
        return 130
    except EarshotError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def _install() -> int:
    failed = 0
    for kind, requirements in VOICE_PEERS.items():
        try:
            install(kind)
            print(f"{requirements.title}: installed in {folder() / kind}")
        except MissingPeer as error:
            failed = 1
            print(f"{requirements.title}: {error}", file=sys.stderr)
    return failed


async def _measure(options: argparse.Namespace) -> None:
    conditions = VoiceConditions(options.stubs, options.wait)
    utterances = clips([])[: options.clips]
    names = _wanted(options.systems)
    print(
        f"{options.rounds} rounds, {len(utterances)} clips, wait {conditions.wait_ms} ms,"
        f" engines {conditions.stubs} ms; {machine()}\n"
    )
    found = {TITLES[name]: VoiceRounds() for name in names}
    folder().mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        running: list[VoiceSystem] = []
        for name in names:
            place = Path(stack.enter_context(TemporaryDirectory(prefix="earshot-peers-")))
            try:
                running.append(await stack.enter_async_context(system(name, conditions, place)))
            except EarshotError as error:
                found[TITLES[name]].problem = str(error)
        for number in range(options.rounds):
            first = number % max(1, len(running))
            for candidate in running[first:] + running[:first]:
                await _round(candidate, utterances, found[candidate.title])
                print(f"round {number + 1}: {candidate.title}", file=sys.stderr, flush=True)
    print(table(found))


async def _round(
    candidate: VoiceSystem, utterances: Sequence[BenchUtterance], into: VoiceRounds
) -> None:
    """Runs one call: one utterance to warm up, then those that count."""
    try:
        async with candidate.call() as say:
            await say(utterances[-1])
            into.add([await say(utterance) for utterance in utterances])
    except* EarshotError as group:
        into.problem = str(group.exceptions[0])


def _wanted(asked: str | None) -> list[SystemName]:
    if asked is None:
        return list(TITLES)
    if unknown := set(asked.split(",")) - set(TITLES):
        raise RequestError(f"--systems {','.join(sorted(unknown))}: there are {', '.join(TITLES)}")
    return [name for name in TITLES if name in asked.split(",")]


if __name__ == "__main__":
    sys.exit(main())
