"""Section `[cluster]`: the cluster of machines with Ray Serve that runs models."""

from typing import Annotated

from msgspec import Meta

from server.config.types import Section
from serving.cluster.settings import PoolSettings


class ClusterConfig(Section, frozen=True):
    """Settings of the cluster. It is used if a section such as asr has pool = "ray"."""

    address: Annotated[
        str,
        Meta(
            pattern=r"^(\[[0-9A-Fa-f:]+\]|[0-9A-Za-z.-]+):[0-9]{1,5}$",
            title="address and port like '10.0.0.5:6399'",
            description=(
                "Address of the cluster's head, as `earshot cluster start` prints it. A node of the"
                " cluster must run on this machine, too."
            ),
        ),
    ] = "127.0.0.1:6399"
    token_file: Annotated[
        str,
        Meta(
            description=(
                "File with the cluster's token. Every machine of the cluster has the same. If"
                " empty: cluster-token in the state folder, which `earshot cluster start` makes."
            )
        ),
    ] = ""
    asr: Annotated[
        PoolSettings,
        Meta(description="Replicas of each recogniser."),
    ] = PoolSettings()
    llm: Annotated[
        PoolSettings,
        Meta(description="Replicas of the language model."),
    ] = PoolSettings()
    tts: Annotated[
        PoolSettings,
        Meta(description="Replicas of each voice engine."),
    ] = PoolSettings()
    models: Annotated[
        PoolSettings,
        Meta(description="Replicas of each model for embeddings or reranking."),
    ] = PoolSettings()
