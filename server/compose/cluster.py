"""Connection to the cluster that runs models, made from the configuration, the environment that Ray
reads, and the workers there."""

from collections.abc import Mapping, MutableMapping
from pathlib import Path

from core.errors import ConfigError
from core.ports import Clock, Metrics
from engines.base import WorkerProfile
from server.compose.choices import describe
from server.config import Config
from serving.cluster.asr import AsrReplicaPool
from serving.cluster.deployment import RayCluster
from serving.cluster.settings import PoolSettings
from serving.model_host.source import WorkerSource
from serving.placement.offers import LoadableModel
from serving.workers.engine_process import EngineProcess, InfoT

TOKEN_FILE = "cluster-token"  # noqa: S105
"Name of the file with the cluster's token in the state folder."

MIN_TOKEN_CHARS = 32
"Shortest token. Whoever has it can run programs on every machine of the cluster."


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
    }


class ClusterWorkers:
    """Recognisers on the cluster, and all other workers where they are without it (a
    `WorkerSource`)."""

    def __init__(
        self, cluster: RayCluster, settings: PoolSettings, others: WorkerSource, metrics: Metrics
    ) -> None:
        self._cluster, self._settings = cluster, settings
        self._others, self._metrics = others, metrics

    def recogniser(self, offer: LoadableModel, clock: Clock) -> AsrReplicaPool:
        """Returns a pool of replicas; its `run` deploys it."""
        return AsrReplicaPool(
            self._cluster,
            self._settings,
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
    ) -> EngineProcess[InfoT]:
        """Returns the process of a voice or a language model, which is not on the cluster."""
        return self._others.process(kind, engine, options, info_type, profile, max_calls)
