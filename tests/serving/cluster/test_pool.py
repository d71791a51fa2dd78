"""A pool of recognisers: in child processes, as replicas in this process, and as Ray Serve deploys
it in its local testing mode."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from core.errors import EngineCrashed, EngineMissing
from engines.runtime.worker.protocol import LoadRequest
from server.compose.choices import describe
from serving.asr.model import AsrWorkerPool, LoadedRecogniser
from serving.cluster.asr import AsrReplicaPool
from serving.cluster.deployment import RayCluster, ReplicaHandle, ReplicaLost
from serving.cluster.engine import TRIES, ReplicatedRecogniser
from serving.cluster.settings import PoolSettings, ReplicaPlan
from serving.placement.offers import LoadableModel
from tests.pipeline.fakes import Counts, LoopClock
from tests.serving.cluster import scenarios
from tests.serving.cluster.in_process import InProcessCluster

pytestmark = pytest.mark.live

LIMIT_S = 60
OFFER = LoadableModel("pocketsphinx", "pocketsphinx", ({},), {"cpu": 150.0})


def on_ray() -> AsrReplicaPool:
    pytest.importorskip("ray", reason="Ray is not installed: the extra scale")
    return _replica_pool(RayCluster(is_local=True))


def in_this_process() -> AsrReplicaPool:
    return _replica_pool(InProcessCluster())


def _replica_pool(cluster: RayCluster) -> AsrReplicaPool:
    incremental = describe(OFFER).is_incremental
    return AsrReplicaPool(
        cluster, PoolSettings(), OFFER, LoopClock(), Counts(), is_incremental=incremental
    )


def in_a_process() -> AsrWorkerPool:
    return AsrWorkerPool(OFFER, LoopClock(), Counts())


@asynccontextmanager
async def running(pool: AsrReplicaPool | AsrWorkerPool) -> AsyncIterator[None]:
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(pool.run())
        await pool.ready()
        yield
        task.cancel()


@pytest.mark.parametrize("create", [in_a_process, in_this_process, on_ray])
@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.utterances_at_once_keep_their_words,
        scenarios.works_after_a_cancelled_utterance,
    ],
)
def test_contract_of_a_pool(
    create: Callable[[], AsrReplicaPool | AsrWorkerPool],
    scenario: Callable[[LoadedRecogniser], Awaitable[None]],
) -> None:
    async def main() -> None:
        pool = create()
        async with running(pool):
            assert pool.is_ready
            await scenario(pool)

    asyncio.run(main())


class FailingHandle(ReplicaHandle):
    """A handle whose first calls lose their replica."""

    def __init__(self, handle: ReplicaHandle, losses: int) -> None:
        super().__init__(handle._handle, handle._lost)
        self._real, self.losses = handle, losses

    async def compute(self, request: bytes, limit_s: float, session: str = "") -> bytes:
        if self.losses:
            self.losses -= 1
            raise ReplicaLost("the actor died")
        return await self._real.compute(request, limit_s, session)


@pytest.mark.parametrize("losses", [1, TRIES])
def test_a_lost_replica_costs_no_words_until_too_many_are_lost(losses: int) -> None:
    async def main() -> None:
        pool = in_this_process()
        async with running(pool):
            engine = pool._engine
            assert engine._handle is not None
            engine._handle = FailingHandle(engine._handle, losses)
            if losses < TRIES:
                assert "kitchen" in await scenarios.words_of(pool, "utt")
            else:
                with pytest.raises(EngineCrashed, match="lost"):
                    await scenarios.words_of(pool, "utt")

    asyncio.run(main())


def test_an_engine_that_does_not_load_is_missing() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: the extra scale")

    async def main() -> None:
        engine = ReplicatedRecogniser(
            RayCluster(is_local=True),
            ReplicaPlan("earshot-asr-wrong", PoolSettings()),
            LoadRequest("asr", "nothing_of_this_name", {}),
            Counts(),
            name="wrong",
            is_sticky=False,
        )
        with pytest.raises(EngineMissing, match="does not load"):
            await engine.run()
        with pytest.raises(EngineMissing, match="does not load"):
            await engine.ready()

    asyncio.run(main())
