"""Compares Earshot with other servers: same audio, same weights, same endpoint wait, in turn.

    python -m bench.peers install
    python -m bench.peers [--rounds 5] [--clips 5] [--models nano,tiny,base]

A round of one model takes about 40 s per system; five rounds of three models and five systems take
an hour at most. Each system is its own process on this machine, and is warmed up first.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measurements.material.random_whisper import WhisperSize, build
from bench.peers.clients import peer
from bench.peers.earshot_client import run_earshot
from bench.peers.environments import PEERS, MissingPeer, folder, install
from bench.peers.results import AsrRounds, table
from bench.peers.rounds import measure
from bench.peers.systems import SystemUnderTest
from bench.tools.clips import COMMANDS, synthesise
from bench.tools.stats import machine
from bench.tools.utterance_audio import BenchUtterance, make_utterance
from core.errors import EarshotError, RequestError

EARSHOT = "earshot"
"Name of Earshot in the tables."

SHORT_WINDOWS = "earshot, short windows (changes accuracy)"
WHISPER_NANO = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "whisper-nano"
SHAPES: Mapping[str, WhisperSize] = {"tiny": "tiny", "base": "base"}
SEED = 1
"Seed of the random weights, the same for all systems."

THREADS = 2
"Threads that each system computes with."

TALKERS, UTTERANCES_EACH = 8, 2

SAME_DECODING: Mapping[str, str] = {
    "beam_size": "1",
    "no_speech_threshold": "1.0",
    "min_confidence": "0.0",
    "max_compression_ratio": "1000.0",
}
"""Options with which Earshot decodes as `run_peer.py` makes the others decode, and like them
accepts any result."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", nargs="?", choices=("install", "measure"), default="measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clips", type=int, default=5, help="utterances of the single speaker (5)")
    parser.add_argument("--models", default="nano,tiny,base")
    parser.add_argument(
        "--systems", help="only these systems, separated by commas: earshot, short, wyoming, ..."
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
    for kind, requirements in PEERS.items():
        try:
            install(kind)
            print(f"{requirements.title}: installed in {folder() / kind}")
        except MissingPeer as error:
            failed = 1
            print(f"{requirements.title}: {error}", file=sys.stderr)
    return failed


async def _measure(options: argparse.Namespace) -> None:
    utterances = [
        make_utterance(text, synthesise(text), seed)
        for seed, text in enumerate(COMMANDS[: options.clips])
    ]
    for name in options.models.split(","):
        model = await asyncio.to_thread(weights, name)
        print(f"\n## {name}; {options.rounds} rounds, {len(utterances)} clips; {machine()}\n")
        found = await _compared(name, model, utterances, options)
        print(table(found, EARSHOT, TALKERS), flush=True)


async def _compared(
    name: str, model: Path, utterances: Sequence[BenchUtterance], options: argparse.Namespace
) -> dict[str, AsrRounds]:
    """Runs all systems at the same time, and measures them one after the other, in changing
    order."""
    found: dict[str, AsrRounds] = {}
    async with AsyncExitStack() as stack:
        systems: list[SystemUnderTest] = []
        for title in _wanted(options):
            found[title] = AsrRounds()
            try:
                system = await stack.enter_async_context(_system(title, name, model))
                await measure(system, utterances, 1, 1)  # warm-up
                systems.append(system)
            except EarshotError as error:
                found[title].problem = str(error)
        for number in range(options.rounds):
            turn = number % max(1, len(systems))
            for system in systems[turn:] + systems[:turn]:
                await _round(system, utterances, found[system.name])
                print(f"round {number + 1}: {system.name}", file=sys.stderr, flush=True)
    return found


async def _round(
    system: SystemUnderTest, utterances: Sequence[BenchUtterance], into: AsrRounds
) -> None:
    plans = ((into.alone, 1, len(utterances)), (into.together, TALKERS, UTTERANCES_EACH))
    for kept, talkers, each in plans:
        try:
            found = await measure(system, utterances, talkers, each)
        except* EarshotError as group:
            into.problem = str(group.exceptions[0])
        else:
            into.add(found, kept)


@asynccontextmanager
async def _system(title: str, name: str, model: Path) -> AsyncGenerator[SystemUnderTest, None]:
    with TemporaryDirectory(prefix="earshot-peers-") as settings_folder:
        if title not in {EARSHOT, SHORT_WINDOWS}:
            kind = next(peer for peer in PEERS if peer == title)
            async with peer(kind, model, THREADS, folder() / f"{kind}.log") as other:
                yield other
            return
        padding = {EARSHOT: "max", SHORT_WINDOWS: "nopad" if name == "nano" else "bucket"}[title]
        settings = {**SAME_DECODING, "padding": f'"{padding}"'}
        async with run_earshot(title, model, settings, Path(settings_folder)) as own:
            yield own


def _wanted(options: argparse.Namespace) -> list[str]:
    every = [EARSHOT, SHORT_WINDOWS, *PEERS]
    if options.systems is None:
        return every
    asked = options.systems.split(",")
    if unknown := set(asked) - {*every, "short"}:
        known = ", ".join((EARSHOT, "short", *PEERS))
        raise RequestError(f"--systems {','.join(sorted(unknown))}: there are {known}")
    return [name for name in every if name in asked or (name == SHORT_WINDOWS and "short" in asked)]


def weights(name: str) -> Path:
    """Returns a folder with the model. Random weights are made once. Raises RequestError."""
    if name == "nano" and WHISPER_NANO.is_dir():
        return WHISPER_NANO
    if name not in SHAPES:
        raise RequestError(f"--models {name}: there are nano (in a checkout), {', '.join(SHAPES)}")
    folder_of_weights = folder() / f"random-{name}-{SEED}"
    if not (folder_of_weights / "preprocessor_config.json").is_file():
        build(folder_of_weights, SHAPES[name], SEED)
    return folder_of_weights


if __name__ == "__main__":
    sys.exit(main())
