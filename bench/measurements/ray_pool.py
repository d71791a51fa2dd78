"""Compares turns through a pool on Ray with those through child processes, and kills replicas.

    python -m bench.measurements.ray_pool [FILE ...] [--model FOLDER] [--kills 50]

Needs the extra `scale`. A cluster of this one machine is started, and two servers that differ in
`asr.pool` alone, each with two workers or replicas. Rounds of turns with each alternate, with one
client and with several. Then, while several clients talk to the pool on Ray, one replica after the
other is killed (SIGKILL) while utterances are on their way to it. FILE: recordings; without any,
commands that eSpeak speaks. Exit codes: 0 all targets are met; 1 one is not.

Words: a turn is answered with its words if its transcript is that of another turn of the same clip
without a kill.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from bench.client.http import Address
from bench.client.realtime import SessionRequest
from bench.server.own_cluster import OwnCluster, own_cluster
from bench.server.own_server import own_server
from bench.tools.stats import machine, markdown, percentile, spread
from bench.tools.utterance_audio import BenchUtterance
from bench.voice import measure
from bench.voice.clips import clips
from bench.voice.measure import VoicePlan, VoiceTurn
from bench.voice.summary import voice_to_voice

REPLICAS = 2
"Workers of each pool."

MORE_P50_MS = 8.0
"Largest difference of the medians."

MORE_P95 = 1.3
"Largest ratio of the 95th percentiles."

MORE_AFTER_KILL_MS = 1500.0
"Largest difference of the 95th percentiles of turns with and without a kill."

START_S = 300.0
"Longest start of a server: Ray loads the replicas one after the other where processors are few."

KILL_EVERY_S = (3.0, 6.0)
"Shortest and longest time between two kills."


@dataclass(frozen=True, slots=True)
class Pools:
    """A server of each kind."""

    process: Address
    ray: Address


class TurnSpans:
    """Turns with the times between which they ran."""

    def __init__(self) -> None:
        self.turns: list[VoiceTurn] = []
        self._spans: list[tuple[float, float]] = []
        "Monotonic times of the start and end of each turn."
        self._ended: dict[int, float] = {}
        "End of the last turn of each client."
        self._began = 0.0

    def begin(self) -> None:
        """Notes that all clients begin."""
        self._ended.clear()
        self._began = time.monotonic()

    def add(self, turn: VoiceTurn) -> None:
        """Adds a turn that has ended now."""
        now = time.monotonic()
        self.turns.append(turn)
        self._spans.append((self._ended.get(turn.client, self._began), now))
        self._ended[turn.client] = now

    def around(self, times: Sequence[float]) -> list[VoiceTurn]:
        """Returns the turns during which one of these times was."""
        return [
            turn
            for turn, (begin, end) in zip(self.turns, self._spans, strict=True)
            if any(begin <= each <= end for each in times)
        ]


def main() -> int:
    """Measures and prints the tables; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="recordings to play")
    parser.add_argument("--engine", default="pocketsphinx", help="recogniser")
    parser.add_argument("--model", metavar="FOLDER", help="its weights, if it needs some")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8], metavar="N")
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="of a client and round")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--kill-clients", type=int, default=4, metavar="N")
    return asyncio.run(_main(parser.parse_args()))


async def _main(options: argparse.Namespace) -> int:
    print(f"{machine()}, {REPLICAS} workers or replicas of {options.engine}\n", flush=True)
    utterances = clips(options.files)
    with TemporaryDirectory(prefix="earshot-bench-") as folder:
        files = {pool: _settings(options, Path(folder), pool) for pool in ("process", "ray")}
        async with (
            own_cluster() as cluster,
            own_server(["--config", str(files["process"])], start_timeout_s=START_S) as process,
            own_server(
                ["--config", str(files["ray"])], environ=cluster.environ, start_timeout_s=START_S
            ) as ray,
        ):
            pools = Pools(process.address, ray.address)
            is_met = await _compare(options, pools, utterances)
            if options.kills:
                is_met &= await _kill(options, pools, utterances, cluster)
    return 0 if is_met else 1


def _settings(options: argparse.Namespace, folder: Path, pool: str) -> Path:
    """Writes the configuration of a server and returns its path."""
    lines = ["[asr]", f'engine = "{options.engine}"', f'pool = "{pool}"', f"workers = {REPLICAS}"]
    if options.model:
        lines += ["[asr.options]", f'model = "{options.model}"']
    for kind in ("llm", "tts"):
        lines += [f"[{kind}]", f'engine = "bench.server.stub_engines.{kind}"']
        lines += [f"[{kind}.options]", "delay_ms = 50"]
    lines += ["[cluster.asr]", f"min_replicas = {REPLICAS}", "cpus = 0.5"]
    file = folder / f"{pool}.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


async def _compare(
    options: argparse.Namespace, pools: Pools, utterances: Sequence[BenchUtterance]
) -> bool:
    """Runs rounds with both pools in turn, and prints a table. Returns True if Ray's turns are
    about as quick."""
    rows: list[list[str]] = []
    is_met = True
    for clients in options.clients:
        found: dict[str, list[VoiceTurn]] = {"process": [], "ray": []}
        for _ in range(options.rounds):
            for pool, address in (("process", pools.process), ("ray", pools.ray)):
                plan = VoicePlan(address, "ws", SessionRequest(), options.turns, clients)
                found[pool] += await measure.run(plan, utterances, _ignore)
        times = {pool: voice_to_voice(turns) for pool, turns in found.items()}
        rows += [
            [f"{clients}", pool, *spread(times[pool]), f"{_lost(turns)}"]
            for pool, turns in found.items()
        ]
        more_ms = percentile(times["ray"], 50) - percentile(times["process"], 50)
        ratio = percentile(times["ray"], 95) / percentile(times["process"], 95)
        is_met &= more_ms <= MORE_P50_MS and ratio <= MORE_P95 and not _lost(found["ray"])
        rows.append([f"{clients}", "difference", f"{more_ms:+.0f}", f"{ratio:.2f} x", *[""] * 4])
    head = ["clients", "voice to voice, ms", "p50", "p95", "min", "max", "turns", "not answered"]
    print(markdown(head, rows))
    target = f"at most {MORE_P50_MS:+.0f} ms p50 and {MORE_P95} x p95"
    print(f"\ntarget: {target}: {'met' if is_met else 'not met'}\n", flush=True)
    return is_met


async def _kill(
    options: argparse.Namespace,
    pools: Pools,
    utterances: Sequence[BenchUtterance],
    cluster: OwnCluster,
) -> bool:
    """Kills replicas while clients talk, and prints a table. Returns True if every turn was
    answered with its words, and soon enough."""
    clients = options.kill_clients
    calm_plan = VoicePlan(pools.ray, "ws", SessionRequest(), options.turns, clients)
    calm = await measure.run(calm_plan, utterances, _ignore)
    spans = TurnSpans()
    async with asyncio.TaskGroup() as tasks:
        killer = tasks.create_task(_kill_again_and_again(cluster, options.kills))
        while not killer.done():
            spans.begin()
            await measure.run(calm_plan, utterances, spans.add)
        kills = killer.result()
    hit = spans.around(kills)
    known: dict[str, set[str]] = {}
    for turn in calm:
        known.setdefault(turn.clip, set()).add(turn.report.transcript)
    wrong = [
        turn
        for turn in spans.turns
        if turn.report.status != "answered"
        or turn.report.transcript not in known.get(turn.clip, {turn.report.transcript})
    ]
    times = {"without kills": voice_to_voice(calm), "with a kill": voice_to_voice(hit)}
    head = [f"{clients} clients, voice to voice, ms", "p50", "p95", "min", "max", "turns"]
    print(markdown(head, [[name, *spread(ms)] for name, ms in times.items()]))
    more_ms = percentile(times["with a kill"], 95) - percentile(times["without kills"], 95)
    print(
        f"\n{len(kills)} kills during {len(spans.turns)} turns; without their words:"
        f" {len(wrong)}; p95 {more_ms:+.0f} ms"
    )
    for turn in wrong:
        print(f"  {turn.clip!r}: {turn.report.status}, {turn.report.transcript!r}")
    is_met = not wrong and more_ms <= MORE_AFTER_KILL_MS
    print(
        f"target: every turn with its words, p95 at most {MORE_AFTER_KILL_MS:+.0f} ms:"
        f" {'met' if is_met else 'not met'}"
    )
    return is_met


async def _kill_again_and_again(cluster: OwnCluster, kills: int) -> list[float]:
    """Kills a replica now and then while all are there; returns the monotonic times."""
    chance = random.Random(0)
    done: list[float] = []
    while len(done) < kills:
        await asyncio.sleep(chance.uniform(*KILL_EVERY_S))
        replicas = await asyncio.to_thread(cluster.replicas)
        if len(replicas) < REPLICAS:
            continue  # the last one is being replaced; killing the other one, too, is another test
        with suppress(psutil.Error):
            chance.choice(replicas).kill()
            done.append(time.monotonic())
    return done


def _lost(turns: Sequence[VoiceTurn]) -> int:
    return sum(turn.report.status != "answered" for turn in turns)


def _ignore(_: VoiceTurn) -> None:
    """Shows no progress."""


if __name__ == "__main__":
    sys.exit(main())
