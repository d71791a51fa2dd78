"""Compares chat completions with llama.cpp's server alone and with transformers, in turns.

    python -m bench.measurements.chat GGUF --program LLAMA_SERVER
    PYTHON -m bench.measurements.chat GGUF --transformers PYTHON

`--program` measures the engine `llama_cpp` and the same program with the same options alone.
`--transformers` measures the engine `transformers` and the library's own `generate`, called without
a server: by a thread of each caller, and for all callers as one batch. PYTHON is the interpreter of
an environment with torch and transformers; the engine needs them where this runs.
Tokens for each second of processor time compare systems even if the machine does other work.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.client.http import Address
from bench.load import bodies
from bench.load.bodies import LoadKind
from bench.load.clients import LoadAnswer, LoadPlan, LoadReport, check_server, run
from bench.measurements.text_models import processor_s
from bench.server.own_server import ServerStartError, own_server
from bench.tools.stats import machine, markdown, median_and_range, percentile
from engines.llm.llama_cpp.command_line import command, served_name, variables
from engines.llm.llama_cpp.files import find_model
from engines.llm.llama_cpp.settings import NAME as LLAMA_CPP
from engines.llm.llama_cpp.settings import Settings
from engines.llm.server_llm import HOST
from engines.llm.transformers.settings import NAME as TRANSFORMERS
from engines.runtime.external_server.program import http_health, reserve_port

PEER = Path(__file__).parent.parent / "peers" / "run_transformers.py"

START_S, TIMEOUT_S = 600.0, 600.0

POLL_S = 0.1
"Interval of the checks whether llama-server is up."

CONTEXT_TOKENS = 2048

OURS = "Earshot"


def main() -> int:
    """Runs all rounds and prints one table; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, metavar="GGUF")
    peer = parser.add_mutually_exclusive_group(required=True)
    peer.add_argument("--program", type=Path, metavar="LLAMA_SERVER")
    peer.add_argument("--transformers", metavar="PYTHON")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4, 8], metavar="N")
    parser.add_argument("--requests", type=int, default=8, help="requests of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", default="Tell me a story.")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of all systems")
    options = parser.parse_args()
    if not options.model.is_file():
        parser.error(f"{options.model} is no file: give a GGUF file")
    asyncio.run(_main(options))
    return 0


@dataclass(frozen=True, slots=True)
class MeasuredChat:
    """A system that answers chats."""

    pid: int
    answer: Callable[[int, str], Awaitable[LoadReport]]
    "Runs one round of so many callers, whose prompts begin with this text."


@dataclass(frozen=True, slots=True)
class ChatRound:
    """Answers of one system in one round, with their processor time."""

    report: LoadReport
    used_s: float
    "Processor time of the system."

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(answer.tokens for answer in self.report.answered)


async def _main(options: argparse.Namespace) -> None:
    print(f"{machine()}, {options.rounds} rounds, {options.threads} threads\n")
    print(markdown(_HEAD, ()), flush=True)
    async with AsyncExitStack() as stack:
        systems = {OURS: await stack.enter_async_context(_ours(options))}
        if options.program:
            systems["llama-server"] = await stack.enter_async_context(_llama_server(options))
        else:
            peer = await stack.enter_async_context(_transformers(options))
            systems["generate, threads"] = _generate(peer, options, is_batched=False)
            systems["generate, a batch"] = _generate(peer, options, is_batched=True)
        for callers in options.callers:
            found = await _measured(systems, callers, options)
            for row in rows(callers, found):
                print(f"| {' | '.join(row)} |", flush=True)


async def _measured(
    systems: Mapping[str, MeasuredChat], callers: int, options: argparse.Namespace
) -> dict[str, list[ChatRound]]:
    """Runs all rounds of so many callers on all systems in turn."""
    found: dict[str, list[ChatRound]] = {name: [] for name in systems}
    for number in range(options.rounds):
        # The same prompts for all systems, and new ones in each round: no prompt is cached. Who
        # begins alternates, as other work on the machine may grow or shrink during a round.
        prompt = f"{callers} callers, round {number}. {options.prompt}"
        order = list(systems)[:: 1 if number % 2 == 0 else -1]
        for name in order:
            before_s = processor_s(systems[name].pid)
            report = await systems[name].answer(callers, prompt)
            found[name].append(ChatRound(report, processor_s(systems[name].pid) - before_s))
    return found


_HEAD = (
    "callers",
    "system",
    "answered",
    "errors",
    "tokens/s",
    "tokens per processor second",
    "first token p50 ms",
    "p95 ms",
    f"{OURS}: x its tokens/s",
    "x per processor second",
    "first token later, ms",
)


def rows(callers: int, found: Mapping[str, Sequence[ChatRound]]) -> list[list[str]]:
    """Returns a row of the table for each system. The last columns compare Earshot with it, round
    by round."""
    return [
        [str(callers), name, *_figures(rounds), *_comparison(found[OURS], rounds)]
        for name, rounds in found.items()
    ]


def _figures(rounds: Sequence[ChatRound]) -> list[str]:
    answered = [answer for found in rounds for answer in found.report.answered]
    first_ms = [answer.first_ms for answer in answered if answer.first_ms is not None]
    errors: Counter[str] = sum((found.report.errors for found in rounds), Counter())
    per_processor = [found.tokens / found.used_s for found in rounds if found.used_s]
    return [
        str(len(answered)),
        ", ".join(f"{count} x {what}" for what, count in errors.most_common()) or "0",
        median_and_range([found.report.tokens_per_s for found in rounds], 1),
        median_and_range(per_processor, 1),
        *(f"{percentile(first_ms, percent):.1f}" if first_ms else "-" for percent in (50, 95)),
    ]


def _comparison(ours: Sequence[ChatRound], peer: Sequence[ChatRound]) -> list[str]:
    if ours is peer:
        return ["-"] * 3
    pairs = list(zip(ours, peer, strict=True))
    by_wall = [
        a.report.tokens_per_s / b.report.tokens_per_s for a, b in pairs if b.report.tokens_per_s
    ]
    by_processor = [
        (a.tokens / a.used_s) / (b.tokens / b.used_s)
        for a, b in pairs
        if a.used_s and b.used_s and b.tokens
    ]
    later_ms = [
        _first_ms(a.report) - _first_ms(b.report)
        for a, b in pairs
        if a.report.answered and b.report.answered
    ]
    return [
        median_and_range(by_wall, 3),
        median_and_range(by_processor, 3),
        median_and_range(later_ms, 1),
    ]


def _first_ms(report: LoadReport) -> float:
    return median(answer.first_ms or answer.took_ms for answer in report.answered)


# The systems


def _kind(model: str, prompt: str, options: argparse.Namespace) -> LoadKind:
    return bodies.chat(model, prompt=prompt, max_tokens=options.max_tokens)


async def _client(
    address: Address, pid: int, model: str, options: argparse.Namespace
) -> MeasuredChat:
    """Returns a server with OpenAI's API as a system, after its first answer."""

    async def answer(callers: int, prompt: str) -> LoadReport:
        kind = _kind(model, prompt, options)
        return await run(
            LoadPlan(address, kind, callers, options.requests, TIMEOUT_S, is_kept=False)
        )

    await check_server(address, _kind(model, options.prompt, options), TIMEOUT_S)
    return MeasuredChat(pid, answer)


@asynccontextmanager
async def _ours(options: argparse.Namespace) -> AsyncIterator[MeasuredChat]:
    engine, given = TRANSFORMERS, _transformers_options(options)
    if options.program:
        engine, given = LLAMA_CPP, _llama_options(options)
    lines = [f"{name} = {json.dumps(value)}" for name, value in given.items()]
    with TemporaryDirectory(prefix="earshot-chat-") as folder:
        config = Path(folder) / "earshot.toml"
        config.write_text("\n".join(["[llm]", f'engine = "{engine}"', "[llm.options]", *lines, ""]))
        async with own_server(["--config", str(config)], start_timeout_s=START_S) as server:
            yield await _client(server.address, server.pid, engine, options)


def _places(options: argparse.Namespace) -> int:
    """Returns the answers that a system writes at once. Earshot keeps one place for voices."""
    return int(max(options.callers)) + 1


def _llama_options(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "model": str(options.model.absolute()),
        "program": str(options.program.absolute()),
        "threads": options.threads,
        "parallel": _places(options),
        "context_tokens": CONTEXT_TOKENS,
    }


def _transformers_options(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "path": str(options.model.absolute()),
        "threads": options.threads,
        "at_once": _places(options),
        "context_tokens": CONTEXT_TOKENS,
    }


@asynccontextmanager
async def _llama_server(options: argparse.Namespace) -> AsyncIterator[MeasuredChat]:
    """Runs llama-server as the engine does, with the same options."""
    settings = Settings(**_llama_options(options))
    model, key = find_model(settings), secrets.token_urlsafe()
    with reserve_port("llm", LLAMA_CPP, HOST, 0) as port:
        process = await asyncio.create_subprocess_exec(
            *command(settings, options.program.absolute(), model, port),
            env={**os.environ, **variables(key)},
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        url = f"http://{HOST}:{port}"
        async with _ended(process), http_health(f"{url}/health") as is_healthy:
            async with asyncio.timeout(START_S):
                while not await is_healthy():
                    _check_runs(process, options.program.name)
                    await asyncio.sleep(POLL_S)
            yield await _client(Address(url, key), process.pid, served_name(model), options)


@asynccontextmanager
async def _transformers(options: argparse.Namespace) -> AsyncIterator[Process]:
    """Runs the peer's program, which has loaded the model when the body begins."""
    process = await asyncio.create_subprocess_exec(
        *(options.transformers, str(PEER), str(options.model.absolute())),
        *("--threads", str(options.threads)),
        stdin=PIPE,
        stdout=PIPE,
        limit=2**20,
    )
    async with _ended(process):
        async with asyncio.timeout(START_S):
            await _line_of(process)
        yield process


def _generate(process: Process, options: argparse.Namespace, *, is_batched: bool) -> MeasuredChat:
    async def answer(callers: int, prompt: str) -> LoadReport:
        kind = _kind(TRANSFORMERS, prompt, options)
        order = {
            "prompts": [f"{prompt} ({number})" for number in range(options.requests)],
            "callers": callers,
            "max_tokens": options.max_tokens,
            "is_batched": is_batched,
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        found = json.loads(await _line_of(process))
        answers = [
            LoadAnswer(one["took_ms"], first_ms=one["first_ms"], tokens=one["tokens"])
            for one in found["answers"]
        ]
        plan = LoadPlan(Address(), kind, callers, options.requests, TIMEOUT_S, is_kept=False)
        return LoadReport(plan, found["wall_s"], answers)

    return MeasuredChat(process.pid, answer)


async def _line_of(process: Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        await process.wait()
        _check_runs(process, PEER.name)
    return line


def _check_runs(process: Process, name: str) -> None:
    if process.returncode is not None:
        raise ServerStartError(f"{name} ended with code {process.returncode}")


@asynccontextmanager
async def _ended(process: Process) -> AsyncIterator[None]:
    """Ends a process after the body."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


if __name__ == "__main__":
    sys.exit(main())
