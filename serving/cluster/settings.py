"""Settings of the cluster and of a pool of replicas. They are apart from what uses them, so that
the configuration is read without Ray."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct

PoolKind = Literal["process", "ray"]
"Where the workers of a model run: child processes of this server, or replicas on the cluster."


class PoolSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many replicas one model has on the cluster, and what each of them gets."""

    min_replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description=(
                "Replicas that always run. A new one needs tens of seconds, so keep as many as a"
                " usual hour needs."
            ),
        ),
    ] = 1
    max_replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="Most replicas, for the busiest hour; never fewer than min_replicas.",
        ),
    ] = 1
    cpus: Annotated[
        float,
        Meta(ge=0, le=256, description="Processors that one replica reserves; 0.5: half of one."),
    ] = 1.0
    gpus: Annotated[
        float,
        Meta(
            ge=0,
            le=8,
            description="GPUs that one replica reserves; 0.25: four replicas share one GPU.",
        ),
    ] = 0.0
    upscale_delay_s: Annotated[
        float,
        Meta(ge=0, le=3600, description="Seconds of load before further replicas are started."),
    ] = 5.0
    downscale_delay_s: Annotated[
        float,
        Meta(ge=0, le=86400, description="Seconds of calm before a replica is stopped."),
    ] = 600.0

    @property
    def most_replicas(self) -> int:
        """Largest number of replicas: `max_replicas`, or `min_replicas` if that is larger."""
        return max(self.min_replicas, self.max_replicas)


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """Settings with which Ray Serve runs one model."""

    name: str
    "Name of the application on the cluster, such as `earshot-asr-small`."
    pool: PoolSettings
    concurrency: int = 1
    "Number of calls that one replica computes at once."
    nice: int = 0
    "Niceness of the replicas' processes."
    environment: tuple[tuple[str, str], ...] = ()
    "Further environment variables of the replicas."
    has_queue: bool = True
    """True: a replica holds some more calls than it computes. False for an engine that refuses
    more."""
