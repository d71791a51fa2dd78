"""Compares recognition over Wyoming with wyoming-faster-whisper, by one client, in turn.

    python -m bench.peers install
    python -m bench.measurements.wyoming [--rounds 5] [--clips 5] [--clients 1,4] [--models nano]

Both get the same audio and have the same weights (int8, greedy, two threads) and windows of 30 s.
Speech is sent as it is spoken, and `audio-stop` 500 ms after its last sample. The time from there
to the `transcript` is measured. A round of five clips takes a minute and a half.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers.__main__ import SAME_DECODING, THREADS, weights
from bench.peers.clients import PeerSystem, peer
from bench.peers.earshot_client import recogniser_settings
from bench.peers.environments import folder
from bench.peers.rounds import AsrRound, measure
from bench.peers.systems import AsrClient, PeerProcess, SystemUnderTest, UtteranceResult, free_port
from bench.server.own_server import own_server
from bench.tools.clips import COMMANDS, synthesise
from bench.tools.stats import machine, markdown, median_and_range
from bench.tools.utterance_audio import WAIT_MS, BenchUtterance, make_utterance
from core.errors import EarshotError

EARSHOT, PEER = "earshot", "wyoming-faster-whisper"


@dataclass(frozen=True, slots=True)
class TranscriptLog:
    """A `SystemUnderTest` that records its transcripts."""

    name: str
    peer: PeerSystem
    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    "Reference text -> the recognised texts."

    @property
    def pid(self) -> int:
        return self.peer.pid

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[AsrClient, None]:
        async with self.peer.client() as client:
            yield _LoggingClient(client, self.texts)


@dataclass(frozen=True, slots=True)
class _LoggingClient:
    client: AsrClient
    texts: dict[str, list[str]]

    async def say(self, utterance: BenchUtterance) -> UtteranceResult:
        """See `AsrClient`."""
        final = await self.client.say(utterance)
        self.texts.setdefault(utterance.text, []).append(final.text)
        return final


Rounds = Mapping[tuple[str, int], Sequence[AsrRound]]
"System and number of clients -> its rounds."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.wyoming", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clips", type=int, default=5, help="utterances of each client (5)")
    parser.add_argument(
        "--clients",
        default="1,4",
        help="numbers of simultaneous clients, separated by commas (1,4)",
    )
    parser.add_argument(
        "--models", default="nano", help="models, separated by commas: nano, tiny, base (nano)"
    )
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_measure(options))
    except KeyboardInterrupt:
        return 130
    except EarshotError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


async def _measure(options: argparse.Namespace) -> None:
    utterances = [
        make_utterance(text, synthesise(text), seed)
        for seed, text in enumerate(COMMANDS[: options.clips])
    ]
    client_counts = [int(count) for count in options.clients.split(",")]
    for name in options.models.split(","):
        model = await asyncio.to_thread(weights, name)
        print(f"\n## {name}; {options.rounds} rounds, {len(utterances)} clips; {machine()}\n")
        async with AsyncExitStack() as stack:
            systems = [
                TranscriptLog(EARSHOT, await stack.enter_async_context(run_earshot(model))),
                TranscriptLog(
                    PEER,
                    await stack.enter_async_context(
                        peer("wyoming", model, THREADS, folder() / "wyoming.log")
                    ),
                ),
            ]
            found = await _rounds(systems, utterances, client_counts, options.rounds)
        print(table(found, client_counts))
        print(f"\n{agreement(*(system.texts for system in systems))}", flush=True)


async def _rounds(
    systems: Sequence[SystemUnderTest],
    utterances: Sequence[BenchUtterance],
    client_counts: Sequence[int],
    rounds: int,
) -> Rounds:
    """Measures one system after the other; the first one changes from round to round."""
    found: dict[tuple[str, int], list[AsrRound]] = {}
    for system in systems:
        await measure(system, utterances, 1, 1)  # warm-up
    for number in range(rounds):
        turn = number % len(systems)
        for clients in client_counts:
            for system in (*systems[turn:], *systems[:turn]):
                round_ = await measure(system, utterances, clients, len(utterances))
                found.setdefault((system.name, clients), []).append(round_)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


@asynccontextmanager
async def run_earshot(model: Path) -> AsyncGenerator[PeerSystem, None]:
    """Runs Earshot's Wyoming door, as a peer with this protocol. Raises ServerStartError."""
    with TemporaryDirectory(prefix="earshot-wyoming-") as place:
        file = Path(place) / "earshot.toml"
        file.write_text(recogniser_settings(model, {**SAME_DECODING, "padding": '"max"'}))
        port = free_port()
        async with own_server(["--config", str(file)], wyoming_port=port) as server:
            yield PeerSystem("wyoming", PeerProcess(port, server.pid))


def table(found: Rounds, client_counts: Sequence[int]) -> str:
    """Returns Markdown: a row per system and number of clients, with medians over rounds and
    ranges."""
    rows = []
    for clients in client_counts:
        for name in (EARSHOT, PEER):
            rounds = [round_ for round_ in found.get((name, clients), ()) if round_.times_ms]
            answered = sum(len(round_.times_ms) for round_ in rounds)
            lost = sum(len(round_.lost) for round_ in found.get((name, clients), ()))
            rows.append(
                [
                    name,
                    str(clients),
                    median_and_range([round_.p50 - WAIT_MS for round_ in rounds]),
                    median_and_range([round_.p95 - WAIT_MS for round_ in rounds]),
                    median_and_range([round_.cpu_ms for round_ in rounds]),
                    f"{answered} of {answered + lost}",
                ]
            )
    head = ["server", "clients", "end of audio to transcript, p50, ms", "p95, ms"]
    return markdown([*head, "CPU ms per utterance", "answered"], rows)


def agreement(own: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]]) -> str:
    """Returns in how many clips both recognised the same text, and the differences."""
    lines, same = [], 0
    for reference in own.keys() & theirs.keys():
        a, b = ({_plain(text) for text in texts[reference]} for texts in (own, theirs))
        same += a == b
        if a != b:
            lines.append(f"- {reference!r}: {EARSHOT} {sorted(a)}, {PEER} {sorted(b)}")
    right = [
        sum(_plain(text) == _plain(reference) for reference, all_ in texts.items() for text in all_)
        for texts in (own, theirs)
    ]
    counts = [sum(map(len, texts.values())) for texts in (own, theirs)]
    counts_text = ", ".join(
        f"{name} {n} of {of}" for name, n, of in zip((EARSHOT, PEER), right, counts, strict=True)
    )
    head = (
        f"Same text in {same} of {len(own)} clips. "
        f"Equal to the reference text, warm-up included: {counts_text}."
    )
    return "\n".join([head, *sorted(lines)])


def _plain(text: str) -> str:
    kept = "".join(
        character for character in text.lower() if character.isalnum() or character.isspace()
    )
    return " ".join(kept.split())


if __name__ == "__main__":
    sys.exit(main())
