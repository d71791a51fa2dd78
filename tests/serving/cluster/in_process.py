"""Replicas inside this process without Ray: the class that Ray Serve would deploy, called as it
would call it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from core.errors import ConfigError, EngineMissing
from engines.runtime.worker.replica import EngineReplica
from serving.cluster.deployment import RayCluster, ReplicaHandle
from serving.cluster.settings import ReplicaPlan


class InProcessHandle(ReplicaHandle):
    """Calls one replica in this process."""

    def __init__(self, replica: EngineReplica) -> None:
        super().__init__(replica, ())
        self._replica = replica

    async def describe(self) -> bytes:
        return await self._replica.describe()

    async def compute(self, request: bytes, limit_s: float, session: str = "") -> bytes:
        return await self._replica.compute(request, limit_s)

    async def stream(self, request: bytes, limit_s: float) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._replica.stream(request, limit_s)) as replies:
            async for reply in replies:
                yield reply

    async def broadcast(self, request: bytes, limit_s: float) -> None:
        await self._replica.compute(request, limit_s)


class InProcessCluster(RayCluster):
    """Deploys each engine as one replica in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._replicas: list[EngineReplica] = []

    async def deploy(self, plan: ReplicaPlan, load: bytes, *, is_sticky: bool) -> ReplicaHandle:
        try:
            replica = await asyncio.to_thread(EngineReplica, load, plan.nice)
        except ConfigError as error:
            raise EngineMissing("cluster", plan.name, f"does not load: {error}") from error
        self._replicas.append(replica)
        return InProcessHandle(replica)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for replica in self._replicas:
                await asyncio.to_thread(replica.close)
