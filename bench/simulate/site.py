"""Simulated site: gateways and models, with the product's scheduler and slots."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from bench.server.stub_engines.scheduled_asr import AsrScheduler, run_scheduler
from bench.simulate.costs import TurnCosts
from bench.simulate.recogniser import SimulatedRecogniser
from bench.simulate.servers import LanePool, SharedProcessor
from serving.scheduling.llm_slots import LlmSlots


@dataclass(frozen=True, slots=True)
class SitePlan:
    """Parts of a site, or of a cell of a larger one."""

    gateways: int
    recognisers: int
    "Workers of the recogniser, each with a GPU of its own, or a thread of the shared cores."
    llm_gpus: int = 0
    tts_gpus: int = 0
    "0: the voice is computed on the cores."
    shared_cores: float = 0.0
    """Cores that everything shares, the clients too; 0: each gateway has a core of its own, and
    models have GPUs."""

    @property
    def gpus(self) -> int:
        """GPUs of the plan."""
        return 0 if self.shared_cores else self.recognisers + self.llm_gpus + self.tts_gpus


class Site:
    """The simulated gateways and models that answer the turns. Made by `open_site`."""

    def __init__(self, plan: SitePlan, costs: TurnCosts, calls: int, random: Random) -> None:
        """Creates an idle site. `calls`: open calls, spread over the gateways."""
        self.plan, self.costs, self.random = plan, costs, random
        media = calls * costs.call_ms_per_s / 1000
        self.processor: SharedProcessor | None = None
        if plan.shared_cores:
            clients = calls * costs.client_ms_per_s / 1000
            self.processor = SharedProcessor(plan.shared_cores, media + clients)
            self.gateways = [LanePool(1, self.processor) for _ in range(plan.gateways)]
        else:
            cores = [SharedProcessor(1.0, media / plan.gateways) for _ in range(plan.gateways)]
            self.gateways = [LanePool(1, core) for core in cores]
        self.media_load = media / plan.gateways
        "Part of its core that each gateway needs for the open calls."
        self.recognisers = [
            SimulatedRecogniser(costs, random, self.processor) for _ in range(plan.recognisers)
        ]
        lanes = round(costs.tts_lanes) * max(1, plan.tts_gpus)
        self.voice = LanePool(lanes, self.processor)
        slots = round(costs.llm_slots) * plan.llm_gpus
        self.slots = LlmSlots(slots) if slots else None
        self.answers = 0
        "Answers that the language model writes now."
        self.llm_busy_s = 0.0
        self.asr: AsrScheduler
        self.background: asyncio.TaskGroup
        "Work that goes on after the first sound of an answer."

    def llm_factor(self) -> float:
        """Returns how much longer an answer takes beside those that are being written."""
        if self.slots is None:
            return 1.0
        return 1 + self.costs.llm_growth * self.answers / self.slots.max_requests

    def use(self, seconds: float) -> dict[str, float]:
        """Returns the part of each kind of server that was busy in `seconds`, 0 to 1."""
        plan = self.plan
        gateways = sum(lane.busy_s for lane in self.gateways) / plan.gateways / seconds
        asr = sum(worker.busy_s for worker in self.recognisers) / plan.recognisers / seconds
        used = {
            "gateways": gateways + self.media_load,
            "recognition": asr,
            "voice": self.voice.busy_s / self.voice.lanes / seconds,
        }
        if self.slots is not None:
            used["language model"] = self.llm_busy_s / self.slots.max_requests / seconds
        if self.processor is not None:
            processor = self.processor
            used["cores"] = (processor.busy_s / seconds + processor.calls_load) / processor.cores
        return used


@asynccontextmanager
async def open_site(
    plan: SitePlan, costs: TurnCosts, calls: int, random: Random
) -> AsyncIterator[Site]:
    """Yields a site whose scheduler runs while the body runs."""
    site = Site(plan, costs, calls, random)
    async with run_scheduler(site.recognisers) as site.asr, asyncio.TaskGroup() as background:
        site.background = background
        yield site
