"""ASR models on the cluster, with the queue that all requests of this gateway share."""

from core.ports import Clock, Metrics
from engines.base import AsrInfo, AsrItem, AsrResult
from engines.runtime.worker.protocol import LoadRequest
from serving.asr.model import warmup_item
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.cluster.deployment import RayCluster
from serving.cluster.engine import ReplicatedRecogniser
from serving.cluster.settings import PoolSettings, ReplicaPlan
from serving.placement.offers import LoadableModel
from serving.scheduling.scheduler import Scheduler


class AsrReplicaPool(Scheduler[AsrItem, AsrResult]):
    """Replicas of an ASR model (a `LoadedRecogniser`), with their scheduler.

    There is a lane for each call that all replicas can compute. While fewer replicas run, calls
    wait on the cluster, and so show it that it needs more. The measured times of calls have that
    wait in them, so admission follows the replicas that there are.
    """

    def __init__(
        self,
        cluster: RayCluster,
        settings: PoolSettings,
        offer: LoadableModel,
        clock: Clock,
        metrics: Metrics,
        *,
        is_incremental: bool,
    ) -> None:
        """Prepares the pool; `run` deploys it. `is_incremental`: the model keeps the state of an
        utterance, so its calls go to one replica."""
        plan = ReplicaPlan(f"earshot-asr-{offer.name}", settings, concurrency=offer.lanes)
        self._engine = ReplicatedRecogniser(
            cluster,
            plan,
            LoadRequest("asr", offer.engine, dict(offer.options)),
            metrics,
            name=offer.name,
            is_sticky=is_incremental,
        )
        lanes = settings.most_replicas * offer.lanes
        super().__init__([self._engine], ASR_SCHEDULING, clock, metrics, lanes=lanes)

    @property
    def is_ready(self) -> bool:
        """True if the model is deployed."""
        return self._engine.is_ready

    async def ready(self) -> AsrInfo:
        """Waits until the first replica has loaded the model, and returns its properties."""
        await super().ready()
        return await self._engine.ready()

    async def warm_up(self) -> None:
        """Recognises a second of sound. Raises EngineError if the model cannot."""
        await self.submit(warmup_item(await self.ready()), DecodePriority.FINAL)

    def resident_mb(self) -> float:
        """Returns 0: the replicas are no processes of this server."""
        return 0.0
