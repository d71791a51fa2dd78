"""`python -m bench.measurements.text_models MODELS --peer PYTHON`: embeddings and reranking beside
sentence-transformers behind FastAPI, in alternating rounds.

MODELS is a folder with the folders `embedder` and `reranker`. PYTHON is the interpreter of an
environment with sentence-transformers, fastapi and uvicorn. Requests for each second of the
server's processor time compare systems even if the machine does other work.
"""

import argparse
import asyncio
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil

from bench.client.http import Address
from bench.client.realtime import CannotConnect
from bench.load import bodies
from bench.load.clients import LoadPlan, LoadReport, check_server, run
from bench.server.own_server import own_server
from bench.tools.stats import machine, markdown, percentile

PEER = Path(__file__).parent.parent / "peers" / "run_sentence_transformers.py"
START_S, TIMEOUT_S = 300, 300.0


def main() -> int:
    """Runs all rounds and prints one table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    asyncio.run(_main(parser.parse_args()))
    return 0


async def _main(options: argparse.Namespace) -> None:
    print(f"{machine()}, {options.rounds} rounds\n")
    loads = [
        ("2 words", bodies.embeddings("embedder", words=2, inputs=1), options.clients, True),
        (
            "2 words, fresh",
            bodies.embeddings("embedder", words=2, inputs=1),
            options.clients,
            False,
        ),
        ("2 words, alone", bodies.embeddings("embedder", words=2, inputs=1), 1, True),
        ("126 words, alone", bodies.embeddings("embedder", words=126, inputs=1), 1, True),
        ("100 documents", bodies.rerank("reranker", words=30, documents=100), 1, True),
    ]
    rows: list[list[str]] = []
    async with _ours(options) as ours, _peer(options) as peer:
        servers = {"Earshot": ours} | ({"sentence-transformers": peer} if peer else {})
        for title, kind, clients, is_kept in loads:
            requests = options.requests if clients > 1 else (10 if "documents" in title else 100)
            found: dict[str, list[tuple[LoadReport, float]]] = {name: [] for name in servers}
            for _ in range(options.rounds):
                for name, (address, pid) in servers.items():
                    await check_server(address, kind, TIMEOUT_S)
                    before_s = _processor_s(pid)
                    plan = LoadPlan(address, kind, clients, requests, TIMEOUT_S, is_kept)
                    report = await run(plan)
                    found[name].append((report, _processor_s(pid) - before_s))
            rows += [_row(title, name, reports) for name, reports in found.items()]
            print(markdown(_HEAD, rows[-len(servers) :]), flush=True)
    for words in (2, 126) if options.peer else ():
        print(f"the library in a loop, {words} words: {await _loop_ms(options, words)} ms")


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
    took_ms = [one.took_ms for report, _ in found for one in report.answered]
    per_core = [len(report.answered) / used_s for report, used_s in found if used_s]
    return [
        title,
        name,
        str(len(took_ms)),
        str(sum(report.errors.total() for report, _ in found)),
        f"{median(report.requests_per_s for report, _ in found):.1f}",
        f"{median(per_core):.1f}",
        f"{percentile(took_ms, 50):.1f}",
        f"{percentile(took_ms, 95):.1f}",
    ]


def _processor_s(pid: int) -> float:
    """Returns the processor time of a process and its living children."""
    process = psutil.Process(pid)
    used_s = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            times = one.cpu_times()
            used_s += times.user + times.system
    return used_s


@asynccontextmanager
async def _ours(options: argparse.Namespace) -> AsyncIterator[tuple[Address, int]]:
    with TemporaryDirectory(prefix="earshot-text-") as folder:
        config = Path(folder) / "earshot.toml"
        config.write_text(f'[paths]\nmodels_dir = "{options.models.absolute()}"\n')
        async with own_server(["--config", str(config)]) as server:
            yield server.address, server.pid


@asynccontextmanager
async def _peer(options: argparse.Namespace) -> AsyncIterator[tuple[Address, int] | None]:
    if not options.peer:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *_peer_command(options), "--reranker", str(options.models / "reranker"), "--port", str(port)
    )
    try:
        address = Address(f"http://127.0.0.1:{port}")
        kind = bodies.embeddings("embedder", words=2, inputs=1)
        async with asyncio.timeout(START_S):
            while True:
                try:
                    await check_server(address, kind, TIMEOUT_S)
                    break
                except CannotConnect:
                    await asyncio.sleep(0.2)
        yield address, process.pid
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def _peer_command(options: argparse.Namespace) -> list[str]:
    embedder = str(options.models / "embedder")
    return [options.peer, str(PEER), "--embedder", embedder, "--threads", str(options.threads)]


async def _loop_ms(options: argparse.Namespace, words: int) -> str:
    process = await asyncio.create_subprocess_exec(
        *_peer_command(options), "--loop", str(words), stdout=PIPE
    )
    output, _ = await process.communicate()
    return output.decode().strip()


if __name__ == "__main__":
    sys.exit(main())
