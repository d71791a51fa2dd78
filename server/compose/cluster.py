"""Connection to the cluster that runs models, made from the configuration, the environment that Ray
reads, and the workers there."""

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from msgspec import convert

from core.errors import ConfigError
from core.ports import Clock, Metrics
from engines.base import WorkerProfile
from engines.llm.hybrid import Settings as HybridSettings
from engines.registry import EngineKind, worker_profile
from engines.runtime.worker.protocol import LoadRequest
from server.compose.choices import HYBRID, describe
from server.config import Config
from serving.asr.model import LoadedRecogniser
from serving.cluster.asr import AsrReplicaPool
from serving.cluster.deployment import RayCluster
from serving.cluster.engine import ReplicatedBatchEngine, ReplicatedEngine
from serving.cluster.settings import PoolKind, ReplicaPlan
from serving.model_host.source import WorkerSource
from serving.placement.choose import EngineSelection
from serving.placement.offers import LoadableModel
from serving.workers.engine_process import InfoT, ResultT, StreamEngine

RAY = "ray"
"Value of the settings `pool` for the cluster."

STREAMS = 4
"""Clauses or answers that one replica without a limit of its own generates at once. More calls make
the cluster start another replica."""

TOKEN_FILE = "cluster-token"  # noqa: S105
"Name of the file with the cluster's token in the state folder."

MIN_TOKEN_CHARS = 32
"Shortest token. Whoever has it can run programs on every machine of the cluster."


def uses_cluster(config: Config) -> bool:
    """Returns True if some kind of model runs on the cluster."""
    sections = config.asr, config.llm, config.tts, config.models
    return any(section.pool == RAY for section in sections)


def check_pools(config: Config, choices: Mapping[EngineKind, EngineSelection]) -> None:
    """Raises ConfigError if a chosen voice or language model shall run on the cluster but cannot,
    because it has no worker."""
    sections: tuple[tuple[EngineKind, PoolKind], ...] = (
        ("llm", config.llm.pool),
        ("tts", config.tts.pool),
    )
    for kind, pool in sections:
        name, options = choices[kind].name, choices[kind].options
        if kind == "llm" and name == HYBRID:
            model = convert(dict(options), HybridSettings).model
            name, options = model.engine, model.options
        if pool == RAY and worker_profile(kind, name, options) is None:
            raise ConfigError(
                f"{kind}.pool: the engine {name} has no worker process, so it cannot run on the"
                f' cluster; allowed with it: "process"'
            )


def cluster_of(config: Config, environ: MutableMapping[str, str]) -> RayCluster:
    """Returns the cluster of the configuration, not connected yet. Sets the variables that Ray
    reads when it is imported. Raises ConfigError for a missing or short token."""
    environ.update(ray_environment(read_token_file(config)))
    return RayCluster(config.cluster.address)


def token_file(config: Config) -> Path:
    """Returns the path of the file with the cluster's token."""
    return Path(config.cluster.token_file or Path(config.paths.state_dir) / TOKEN_FILE).expanduser()


def read_token_file(config: Config) -> Path:
    """Returns the path of the file with the cluster's token, once its content was checked. Raises
    ConfigError."""
    file = token_file(config)
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cluster.token_file: cannot read {file}: {error}; `earshot cluster start` makes it,"
            " and every other machine needs a copy"
        ) from error
    if len(token) < MIN_TOKEN_CHARS:
        raise ConfigError(
            f"cluster.token_file: the token in {file} has {len(token)} characters; at least"
            f" {MIN_TOKEN_CHARS} are needed"
        )
    return file


def ray_environment(file: Path) -> Mapping[str, str]:
    """Returns the environment variables of Ray's programs and of servers that connect to them.
    `file`: the file with the token; the token itself is in no variable."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(file),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Calls go straight to the replicas, in half the time.
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        # That mode would open a port for HTTP in each replica, and nobody calls it.
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",
        "RAY_SERVE_ENABLE_HA_PROXY": "0",
        # Else gRPC writes a line to standard error for each program that the server starts.
        "GRPC_VERBOSITY": "ERROR",
    }


class ClusterWorkers:
    """Workers of the kinds of models that the configuration puts on the cluster, and all other
    workers where they are without it (a `WorkerSource` and a `BatchEngineSource`)."""

    def __init__(
        self, cluster: RayCluster, config: Config, others: WorkerSource, metrics: Metrics
    ) -> None:
        """`cluster`: its connection. `others`: prepares the workers that are not there."""
        self._cluster, self._config = cluster, config
        self._others, self._metrics = others, metrics

    def recogniser(self, offer: LoadableModel, clock: Clock) -> LoadedRecogniser:
        """Returns a recogniser; its `run` deploys or starts it."""
        if self._config.asr.pool != RAY:
            return self._others.recogniser(offer, clock)
        return AsrReplicaPool(
            self._cluster,
            self._config.cluster.asr,
            offer,
            clock,
            self._metrics,
            is_incremental=describe(offer).is_incremental,
        )

    def process(
        self,
        kind: str,
        engine: str,
        options: Mapping[str, object],
        info_type: type[InfoT],
        profile: WorkerProfile,
        max_calls: int | None = None,
    ) -> StreamEngine[InfoT]:
        """Returns the engine of a voice or a language model; its `running` deploys or starts it.
        `max_calls`: most calls at once of one replica."""
        section = self._config.tts if kind == "tts" else self._config.llm
        if section.pool != RAY:
            return self._others.process(kind, engine, options, info_type, profile, max_calls)
        cluster = self._config.cluster
        plan = ReplicaPlan(
            f"earshot-{kind}-{engine}",
            cluster.tts if kind == "tts" else cluster.llm,
            concurrency=max_calls or STREAMS,
            nice=profile.nice,
            environment=tuple(sorted(profile.environment.items())),
            has_queue=max_calls is None,
        )
        return ReplicatedEngine(
            self._cluster,
            plan,
            LoadRequest(kind, engine, dict(options)),
            info_type,
            self._metrics,
            name=engine,
            profile=profile,
        )

    def batch_engine(
        self,
        load: LoadRequest,
        info: type[InfoT],
        method: str,
        result: type[ResultT],
        *,
        name: str,
    ) -> ReplicatedBatchEngine[InfoT, Any, ResultT]:
        """Returns a model for embeddings or reranking; its `run` deploys it."""
        plan = ReplicaPlan(f"earshot-{load.kind}-{name}", self._config.cluster.models)
        return ReplicatedBatchEngine(
            self._cluster, plan, load, info, method, result, self._metrics, name=name
        )
