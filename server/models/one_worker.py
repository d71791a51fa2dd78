"""Runs a recogniser in one worker process, without a server, to measure it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from core.errors import EngineError, expected_failure
from core.ports import Clock, Metrics
from serving.asr.model import AsrWorkerPool
from serving.placement.offers import LoadableModel


@asynccontextmanager
async def run_one_worker(
    offer: LoadableModel, clock: Clock, metrics: Metrics
) -> AsyncGenerator[AsrWorkerPool, None]:
    """Starts one worker with the model, as the server would; it ends with the context. Raises
    EngineError if the model does not load or decode."""
    pool = AsrWorkerPool(replace(offer, workers=offer.workers[:1]), clock, metrics)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(pool.run(), name="one-worker")
            yield pool
            running.cancel()
    except ExceptionGroup as group:
        # The worker and the call that waits for it fail with the same error.
        error = expected_failure(group)
        if error is None:
            raise
        raise EngineError("asr", offer.name, str(error)) from group
