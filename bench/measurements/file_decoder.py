"""Measures the cost of decoding an upload in a process of its own, compared with a thread.

`python -m bench.measurements.file_decoder FOLDER [--rounds 40]`: for each audio file of the folder
the time from the open file to its last block, both ways in turn; then the memory of the idle
process.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from time import perf_counter
from typing import BinaryIO

import psutil

from bench.server.stub_engines.scheduled_asr import NullMetrics
from core.audio import Pcm
from core.errors import RequestError
from core.tasks import run_in_thread
from media.files.decode import decode
from serving.workers.file_decoder import DecoderProcess, DecoderShare

PAUSE_S = 0.05
"Pause between two files, as between uploads."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.file_decoder", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(arguments)
    asyncio.run(_measure(sorted(options.folder.iterdir()), options.rounds))
    return 0


async def _measure(files: Sequence[Path], rounds: int) -> None:
    process = DecoderProcess(NullMetrics())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(process.run())
        began = perf_counter()
        await process.ready()
        print(f"ready after {perf_counter() - began:.2f} s\n")
        print("| file | thread, ms: least, median | process, ms: least, median |\n|---|---|---|")
        for path in files:
            try:
                print(await _row(path, process.share(1), rounds), flush=True)
            except RequestError:
                continue  # the folder may also hold other files
        await asyncio.sleep(1)
        print(f"\nidle: {_idle_mb(process):.0f} MB")
        running.cancel()


async def _row(path: Path, share: DecoderShare, rounds: int) -> str:
    found: list[list[float]] = [[], []]
    for _ in range(rounds):
        for took_ms, decoder in zip(found, (_in_thread, share.blocks), strict=True):
            await asyncio.sleep(PAUSE_S)
            with path.open("rb", buffering=0) as file:
                began = perf_counter()
                async with aclosing(decoder(file)) as blocks:
                    async for _ in blocks:
                        pass
                took_ms.append(1000 * (perf_counter() - began))
    cells = (f"{min(times):.1f}, {statistics.median(times):.1f}" for times in found)
    return f"| {path.name} | {' | '.join(cells)} |"


async def _in_thread(file: BinaryIO) -> AsyncGenerator[Pcm, None]:
    decoding = decode(file)
    while (pcm := await run_in_thread(next, decoding, None)) is not None:
        yield pcm


def _idle_mb(process: DecoderProcess) -> float:
    """Returns the memory of the process and its spare decoder; shared pages are counted once."""
    host = psutil.Process(process.pid)
    return (
        sum(float(process.memory_full_info().pss) for process in (host, *host.children())) / 2**20
    )


if __name__ == "__main__":
    sys.exit(main())
