"""Lag of the event loop while a recogniser works: live speakers and uploads on a real worker."""

import asyncio
import gc
import os
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from bench.client.microphone import RATE_HZ
from bench.server.stub_engines.scheduled_asr import AsrScheduler, NullMetrics, run_scheduler
from bench.tools.clips import COMMANDS, synthesise
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from core.errors import OverloadedError
from engines.base import AsrItem
from media.resample import Resampler
from serving.asr.scheduling import DecodePriority
from serving.workers.process import ProcessWorker

PROBE_S = 0.005
"A quarter of a frame: a longer lag is audible."

IDLE_S = 3.0
"Time before the load in which the lag of the idle machine is measured."

PARTIAL_MS = 200
"Audio between two partials of a speaker."

PAUSE_S = 0.5
"Pause between two utterances of a speaker."

WINDOW_MS = 30_000.0
"Audio that an upload sends at once: about a megabyte."


@dataclass(slots=True)
class LoopLagResult:
    """Measured values, in milliseconds."""

    idle_lags_ms: list[float] = field(default_factory=list)
    "Lags before the load began, caused by other work on this machine."
    lags_ms: list[float] = field(default_factory=list)
    own_ms: list[float] = field(default_factory=list)
    """The loop's own work between two probes, which is the part of the lag that other processes did
    not cause."""
    finals_ms: list[float] = field(default_factory=list)
    partials: int = 0
    dropped: int = 0
    "Number of partials that the scheduler refused or replaced by a newer one."
    uploads: int = 0


async def full_load(
    model: Path, workers: int, talkers: int, uploads: int, seconds: float
) -> LoopLagResult:
    """Runs speakers in real time, one question after the other, and uploads without a pause."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    settings = {"model": str(model), "cpu_threads": threads}
    pool = [
        ProcessWorker("asr", "faster_whisper", settings, NullMetrics(), index)
        for index in range(workers)
    ]
    clips = [_at_16k(synthesise(text)) for text in COMMANDS]
    load = LoopLagResult()
    async with run_scheduler(pool) as scheduler:
        infos = [await worker.ready() for worker in pool]
        window_ms = min(WINDOW_MS, infos[0].window_ms or WINDOW_MS)
        window = np.resize(np.concatenate(clips), ms_to_samples(window_ms, ASR_RATE_HZ))
        gc.collect()
        gc.freeze()  # as the server does after its start
        tasks = [_talk(scheduler, clips[n % len(clips) :] + clips, n, load) for n in range(talkers)]
        tasks += [_upload(scheduler, window, n, load) for n in range(uploads)]
        try:
            await _run_for(IDLE_S, [probe_loop(load.idle_lags_ms, [])])
            await _run_for(seconds, [probe_loop(load.lags_ms, load.own_ms), *tasks])
        finally:
            gc.unfreeze()
    return load


async def _run_for(seconds: float, coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all work until the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            for coroutine in coroutines:
                tasks.create_task(coroutine)


async def probe_loop(lags_ms: list[float], own_ms: list[float]) -> None:
    """Adds the lag of the running event loop, and its own work, each PROBE_S, until it is
    cancelled."""
    while True:
        began_s, spent_s = perf_counter(), thread_time()
        await asyncio.sleep(PROBE_S)
        lags_ms.append(max(0.0, perf_counter() - began_s - PROBE_S) * 1000)
        own_ms.append((thread_time() - spent_s) * 1000)


async def _talk(
    scheduler: AsrScheduler, clips: Sequence[Pcm], number: int, load: LoopLagResult
) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(number * PAUSE_S / 4)  # the speakers must not begin at the same moment
    for turn in range(1_000_000):
        clip, name = clips[turn % len(clips)], f"talker {number}, turn {turn}"
        step = ms_to_samples(PARTIAL_MS, ASR_RATE_HZ)
        async with asyncio.TaskGroup() as partials:
            for end in range(step, len(clip), step):
                await asyncio.sleep(PARTIAL_MS / 1000)
                partials.create_task(_partial(scheduler, AsrItem(name, clip[:end], False), load))
        began = loop.time()
        await scheduler.submit(AsrItem(name, clip, is_final=True), DecodePriority.FINAL)
        load.finals_ms.append((loop.time() - began) * 1000)
        await asyncio.sleep(PAUSE_S)


async def _partial(scheduler: AsrScheduler, item: AsrItem, load: LoopLagResult) -> None:
    try:
        await scheduler.submit(item, DecodePriority.PARTIAL)
        load.partials += 1
    except OverloadedError:
        load.dropped += 1


async def _upload(scheduler: AsrScheduler, window: Pcm, number: int, load: LoopLagResult) -> None:
    while True:
        item = AsrItem(f"upload {number}.{load.uploads}", window, is_final=True)
        await scheduler.submit(item, DecodePriority.BATCH)
        load.uploads += 1


def _at_16k(pcm: Pcm) -> Pcm:
    resampler = Resampler(RATE_HZ, ASR_RATE_HZ)
    return np.concatenate([resampler.push(pcm), resampler.flush()])
