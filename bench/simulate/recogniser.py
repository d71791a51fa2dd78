"""Simulated recogniser: takes the time that the costs say, and returns a word."""

import asyncio
from collections.abc import Sequence
from math import exp
from random import Random

from bench.simulate.costs import TurnCosts
from bench.simulate.servers import SimulatedServer
from core.audio import ASR_RATE_HZ
from core.errors import EngineCrashed
from engines.base import AsrInfo, AsrItem, AsrResult


class SimulatedRecogniser:
    """`BatchWorker` for the product's scheduler. Its time passes in the event loop."""

    def __init__(self, costs: TurnCosts, random: Random, server: SimulatedServer | None) -> None:
        """Creates a worker. `server`: processor that does its work; None: it has its own GPU."""
        self._costs, self._random, self._server = costs, random, server
        self._info = AsrInfo(
            "simulated", "simulated", ("en",), round(costs.asr_max_batch), is_incremental=False
        )
        self._is_up = asyncio.Event()
        self._is_up.set()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.busy_s = 0.0

    @property
    def is_ready(self) -> bool:
        return self._is_up.is_set()

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def ready(self) -> AsrInfo:
        await self._is_up.wait()
        return self._info

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Takes the time of one call. Raises EngineCrashed if the worker is lost meanwhile."""
        seconds = self.call_s([len(item.pcm) / ASR_RATE_HZ for item in items])
        began_s = asyncio.get_running_loop().time()
        work = asyncio.ensure_future(self._compute(seconds))
        try:
            await asyncio.wait((work, self._lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_lost = not work.done()
            work.cancel()
            self.busy_s += asyncio.get_running_loop().time() - began_s
        if is_lost:
            raise EngineCrashed("asr", "simulated", "its machine is lost")
        return [AsrResult("word", 1.0, "en") for _ in items]

    def forget(self, utterance: str) -> None: ...

    def call_s(self, lengths_s: Sequence[float]) -> float:
        """Returns the time of a call with sounds of these lengths, in seconds."""
        costs = self._costs
        lone_ms = costs.asr_fixed_ms + costs.asr_ms_per_s * sum(lengths_s) / len(lengths_s)
        batch = 1 + costs.asr_marginal * (len(lengths_s) - 1)
        # The mean of the factor is 1.
        spread = exp(self._random.gauss(-(costs.asr_spread**2) / 2, costs.asr_spread))
        return lone_ms * batch * spread / 1000

    def lose(self) -> None:
        """Loses the worker and its present call."""
        self._is_up.clear()
        self._lost.set_result(None)

    def restore(self) -> None:
        """Brings a lost worker back."""
        self._lost = asyncio.get_running_loop().create_future()
        self._is_up.set()

    async def _compute(self, seconds: float) -> None:
        await (asyncio.sleep(seconds) if self._server is None else self._server.work(seconds))
