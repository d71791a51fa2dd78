"""Compares embeddings and reranking with sentence-transformers behind FastAPI and with infinity.

    python -m bench.measurements.text_models EMBEDDER --peer PYTHON --infinity PYTHON

EMBEDDER is the folder of a model for embeddings. Each PYTHON is the interpreter of an environment:
with sentence-transformers, fastapi and uvicorn; with infinity-emb. `--infinity-onnx` names a copy
of the model with a file `model_optimized.onnx`, for infinity's engine of onnxruntime, which takes
no other name in a folder of this machine. infinity gets the loads of embeddings only. Without
`--reranker` the cross-encoder has random weights in the shape of MiniLM-L6. The systems take turns.
Requests for each second of the server's processor time compare systems even if the machine does
other work.
"""

import argparse
import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil

from bench.client.http import Address
from bench.load import bodies
from bench.load.bodies import LoadKind
from bench.load.clients import LoadPlan, LoadReport, check_server, run
from bench.measurements.material import random_cross_encoder
from bench.server.own_server import ServerStartError, own_server
from bench.tools.stats import machine, markdown, percentile
from engines.runtime.text_encoder.encoder import DEFAULT_THREADS

PROGRAMS = Path(__file__).parent.parent / "peers"
PEER = PROGRAMS / "run_sentence_transformers.py"
INFINITY = PROGRAMS / "run_infinity.py"
START_S, TIMEOUT_S = 300.0, 300.0

EMBEDDER, RERANKER = "embedder", "reranker"
"Names of the models, which both servers get from one folder."

LONG_WORDS = 126
"Words of a text that has 128 tokens with the two special ones."


def main() -> int:
    """Runs all rounds and prints one table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("embedder", type=Path, metavar="EMBEDDER")
    parser.add_argument("--reranker", type=Path, metavar="FOLDER")
    parser.add_argument("--peer", metavar="PYTHON", help="of sentence-transformers")
    parser.add_argument("--infinity", metavar="PYTHON")
    parser.add_argument("--infinity-onnx", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--alone", type=int, default=100, help="requests of one caller alone")
    parser.add_argument("--rankings", type=int, default=10, help="requests to rank 100 documents")
    threads = min(os.cpu_count() or 1, DEFAULT_THREADS)
    parser.add_argument(
        "--threads", type=int, default=threads, help="of the peer; default: as many as Earshot has"
    )
    options = parser.parse_args()
    if not (options.embedder / "config.json").is_file():
        parser.error(f"{options.embedder} has no config.json: give the folder of a model")
    asyncio.run(_main(options))
    return 0


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """A server that takes the loads."""

    address: Address
    pid: int
    has_reranker: bool = True


@dataclass(frozen=True, slots=True)
class PeerProgram:
    """The server of another project."""

    title: str
    command: Sequence[str]
    "All of it but the option `--port`."
    has_reranker: bool


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """One load of the table."""

    title: str
    kind: LoadKind
    clients: int
    requests: int
    is_kept: bool = True


def _loads(options: argparse.Namespace) -> list[MeasuredLoad]:
    two, many = (bodies.embeddings(EMBEDDER, words=words, inputs=1) for words in (2, LONG_WORDS))
    ranking = bodies.rerank(RERANKER, words=30, documents=100)
    crowd, requests = options.clients, options.requests
    return [
        MeasuredLoad(f"2 words, {crowd} clients, kept", two, crowd, requests),
        MeasuredLoad(f"2 words, {crowd} clients, fresh", two, crowd, requests, is_kept=False),
        MeasuredLoad("2 words, alone", two, 1, options.alone),
        MeasuredLoad(f"{LONG_WORDS} words, alone", many, 1, options.alone),
        MeasuredLoad("100 documents of 30 words", ranking, 1, options.rankings),
    ]


async def _main(options: argparse.Namespace) -> None:
    print(f"{machine()}, {options.rounds} rounds, {options.threads} threads\n")
    print(markdown(_HEAD, ()), flush=True)
    async with AsyncExitStack() as stack:
        models = Path(stack.enter_context(TemporaryDirectory(prefix="earshot-text-")))
        _lay_out(models, options)
        servers = {"Earshot": await stack.enter_async_context(_ours(models, options))}
        for peer in _peers(models, options):
            servers[peer.title] = await stack.enter_async_context(_running(peer))
        for load in _loads(options):
            able = {
                name: server
                for name, server in servers.items()
                if server.has_reranker or load.kind.name != "rerank"
            }
            for row in await _measured(load, able, options.rounds):
                print(f"| {' | '.join(row)} |", flush=True)
        await stack.aclose()
        for words in (2, LONG_WORDS) if options.peer else ():
            took_ms = await _loop_ms(options, words)
            print(f"\nsentence-transformers called in a loop, {words} words: {took_ms} ms")


async def _measured(
    load: MeasuredLoad, servers: Mapping[str, MeasuredServer], rounds: int
) -> list[list[str]]:
    """Runs one load on all servers in turn; returns a row for each."""
    found: dict[str, list[tuple[LoadReport, float]]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            await check_server(server.address, load.kind, TIMEOUT_S)
            before_s = processor_s(server.pid)
            report = await run(
                LoadPlan(
                    server.address, load.kind, load.clients, load.requests, TIMEOUT_S, load.is_kept
                )
            )
            found[name].append((report, processor_s(server.pid) - before_s))
    return [_row(load.title, name, reports) for name, reports in found.items()]


def _lay_out(models: Path, options: argparse.Namespace) -> None:
    """Makes a models folder of the two models."""
    (models / EMBEDDER).symlink_to(options.embedder.resolve())
    if options.reranker:
        (models / RERANKER).symlink_to(options.reranker.resolve())
    else:
        random_cross_encoder.build(models / RERANKER, options.embedder)


_HEAD = (
    "load",
    "system",
    "answered",
    "errors",
    "requests/s",
    "requests per processor second",
    "p50 ms",
    "p95 ms",
)


def _row(title: str, name: str, found: Sequence[tuple[LoadReport, float]]) -> list[str]:
    took_ms = [answer.took_ms for report, _ in found for answer in report.answered]
    errors: Counter[str] = sum((report.errors for report, _ in found), Counter())
    per_core = [len(report.answered) / used_s for report, used_s in found if used_s]
    return [
        title,
        name,
        str(len(took_ms)),
        ", ".join(f"{count} x {what}" for what, count in errors.most_common()) or "0",
        f"{median(report.requests_per_s for report, _ in found):.1f}",
        f"{median(per_core):.1f}",
        *(f"{percentile(took_ms, percent):.1f}" if took_ms else "-" for percent in (50, 95)),
    ]


def processor_s(pid: int) -> float:
    """Returns the processor time of a process and its living children."""
    process = psutil.Process(pid)
    used_s = 0.0
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            times = member.cpu_times()
            used_s += times.user + times.system
    return used_s


@asynccontextmanager
async def _ours(models: Path, options: argparse.Namespace) -> AsyncIterator[MeasuredServer]:
    config = models / ".earshot.toml"
    config.write_text(
        f'[paths]\nmodels_dir = "{models}"\n[limits]\nembeddings = {2 * options.clients}\n'
    )
    async with own_server(["--config", str(config)]) as server:
        yield MeasuredServer(server.address, server.pid)


def _peers(models: Path, options: argparse.Namespace) -> Sequence[PeerProgram]:
    """Returns the servers of other projects that the options name."""
    peers = []
    if options.peer:
        command = _peer_command(models / EMBEDDER, options)
        command += ["--reranker", str(models / RERANKER)]
        peers.append(PeerProgram("sentence-transformers", command, has_reranker=True))
    if options.infinity:
        engines = {"torch": options.embedder, "optimum": options.infinity_onnx}
        for engine, folder in engines.items():
            if folder is not None:
                command = [options.infinity, str(INFINITY), "--embedder", str(folder.resolve())]
                command += ["--name", EMBEDDER, "--engine", engine]
                command += ["--threads", str(options.threads)]
                peers.append(PeerProgram(f"infinity ({engine})", command, has_reranker=False))
    return peers


@asynccontextmanager
async def _running(peer: PeerProgram) -> AsyncIterator[MeasuredServer]:
    """Runs a peer's server while the body runs. Raises ServerStartError, TimeoutError."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(*peer.command, "--port", str(port))
    try:
        address = Address(f"http://127.0.0.1:{port}")
        async with asyncio.timeout(START_S):
            while not await _accepts(port):
                if process.returncode is not None:
                    raise ServerStartError(f"{peer.title} ended with code {process.returncode}")
                await asyncio.sleep(0.2)
        yield MeasuredServer(address, process.pid, peer.has_reranker)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _accepts(port: int) -> bool:
    """Returns True if a server listens on this port."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    return True


def _peer_command(embedder: Path, options: argparse.Namespace) -> list[str]:
    threads = str(options.threads)
    return [options.peer, str(PEER), "--embedder", str(embedder), "--threads", threads]


async def _loop_ms(options: argparse.Namespace, words: int) -> str:
    process = await asyncio.create_subprocess_exec(
        *_peer_command(options.embedder, options),
        *("--loop", str(words), "--calls", str(options.alone)),
        stdout=PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise ServerStartError(f"{PEER.name} --loop ended with code {process.returncode}")
    return output.decode().split()[-1]


if __name__ == "__main__":
    sys.exit(main())
