"""Models for embeddings, also of images, and for reranking in the registry: their worker processes,
and the queue that all requests share."""

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from core.ports import Clock, Metrics
from engines.base.text import (
    ClipItem,
    ClipResult,
    EmbedItem,
    EmbedResult,
    RerankItem,
    RerankResult,
    TextModelInfo,
)
from engines.runtime.image_text.folder import read_image_text_folder
from engines.runtime.text_encoder.folder import TextModelKind, read_folder, read_model_kind
from engines.runtime.worker.payloads import EMBED, RERANK
from engines.runtime.worker.protocol import LoadRequest
from serving.models.catalogue import short_name
from serving.models.model import ModelLoader, ServedModel
from serving.models.registry import ModelRegistry, ModelsOfKind
from serving.placement.offers import LoadableModel, on_cluster
from serving.placement.whisper import CPU
from serving.scheduling.policy import PriorityRule, SchedulingPolicy
from serving.workers.batch_pool import BatchEngine, BatchEngineSource, BatchWorkerPool
from serving.workers.batch_process import BatchProcess

ENGINE = "onnx"
"Name of the engine that runs the models of all these kinds."

BASE_MB = 90.0
"Memory in MB of a worker process without weights: Python, numpy, onnxruntime and the tokenizer."

WEIGHTS_FACTOR = 1.5
"""Memory of a loaded network as a multiple of its file. onnxruntime keeps matrices in a second
form, in which it computes faster."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


MAX_WAITING_TEXTS = 4096
"""Largest number of waiting requests of one model: more than for sound, because a short text takes
about a millisecond. The HTTP APIs usually have lower limits."""


class TextPriority(IntEnum):
    """Priority of a request for embeddings or scores; a smaller number is served first."""

    SINGLE = 0
    "All of a small request: a person waits for it, as in a search."
    BULK = 1
    "A part of a large request."


def _policy(kind: TextModelKind, work: str) -> SchedulingPolicy[Any]:
    return SchedulingPolicy(
        kind=kind,
        work=work,
        max_waiting=MAX_WAITING_TEXTS,
        rules={
            TextPriority.SINGLE: PriorityRule(wait_limit_s=15.0, deadline_s=60.0),
            # HTTP clients and proxies wait for a minute.
            TextPriority.BULK: PriorityRule(wait_limit_s=60.0, deadline_s=300.0, is_bulk=True),
        },
    )


POLICIES: dict[TextModelKind, SchedulingPolicy[Any]] = {
    "embed": _policy("embed", "embedding"),
    "rerank": _policy("rerank", "reranking"),
    "clip": _policy("clip", "embedding"),
}
"Scheduling policy of each kind of text model."


class TextWorkerPool(BatchWorkerPool[TextModelInfo, ItemT, ResultT]):
    """The worker of a loaded model, with its scheduler."""

    def __init__(
        self,
        kind: TextModelKind,
        offer: LoadableModel,
        warm_up_item: ItemT,
        result: type[ResultT],
        clock: Clock,
        metrics: Metrics,
        elsewhere: BatchEngineSource | None = None,
    ) -> None:
        """Prepares the worker; `run` starts it. `warm_up_item`: computed once after the load.
        `elsewhere`: prepares it; None: it is a child process."""
        method = RERANK if kind == "rerank" else EMBED
        load = LoadRequest(kind, offer.engine, dict(offer.options))
        process: BatchEngine[TextModelInfo, ItemT, ResultT]
        if elsewhere is None:
            process = BatchProcess(load, TextModelInfo, method, result, metrics, name=offer.name)
        else:
            process = elsewhere.batch_engine(load, TextModelInfo, method, result, name=offer.name)
        super().__init__(
            process, POLICIES[kind], (warm_up_item, TextPriority.SINGLE), clock, metrics
        )


class ServedTextModel(
    ServedModel[TextModelInfo, TextWorkerPool[ItemT, ResultT]], Generic[ItemT, ResultT]
):
    """One model for embeddings or reranking, shared by all requests."""

    @property
    def dimensions(self) -> int:
        """Length of its vectors; 0 for reranking, or if it cannot be used."""
        return self.info.dimensions if self.kind != "rerank" and self.problem is None else 0

    async def compute(self, item: ItemT, priority: TextPriority) -> ResultT:
        """Computes one item, and loads the model first if necessary. See `Scheduler.submit`.

        Raises EngineError when the model fails to load, OverloadedError when there is no room for
        it now.
        """
        with self.in_use():
            loaded = self.loaded or await self.load()
            return await loaded.submit(item, priority)

    def admit(self, priority: TextPriority) -> None:
        """Checks that work of many requests is accepted now. Raises OverloadedError."""
        if self.loaded is not None:
            self.loaded.admit(priority)


Embedder = ServedTextModel[EmbedItem, EmbedResult]
Embedders = ModelsOfKind[Embedder]
"All models for embeddings by name."

Rerankers = ModelsOfKind[ServedTextModel[RerankItem, RerankResult]]
"All models for reranking by name."


class ServedClip(ServedTextModel[ClipItem, ClipResult]):
    """One model for embeddings of texts and images, shared by all requests."""


Clips = ModelsOfKind[ServedClip]


EMBED_WARM_UP = EmbedItem(("warm",))
"Item that is computed once after the load of a model for embeddings."

RERANK_WARM_UP = RerankItem("warm", ("up",))
"The same for a model for reranking."

CLIP_WARM_UP = ClipItem(("warm",))
"The same for a model for embeddings of texts and images."


def add_text_models(
    registry: ModelRegistry,
    models_dir: str,
    clock: Clock,
    metrics: Metrics,
    elsewhere: BatchEngineSource | None = None,
) -> tuple[Embedders, Rerankers, Clips]:
    """Adds the models for embeddings, for reranking, and for embeddings of texts and images to the
    registry, and returns them by name. `models_dir`: the folder that is searched for them, now and
    when a name is unknown. `elsewhere`: runs them on other machines, so that they take no memory of
    this one; None: child processes run them."""

    folder = Path(models_dir).expanduser()

    async def start_embedder(offer: LoadableModel) -> TextWorkerPool[EmbedItem, EmbedResult]:
        return TextWorkerPool("embed", offer, EMBED_WARM_UP, EmbedResult, clock, metrics, elsewhere)

    async def start_reranker(offer: LoadableModel) -> TextWorkerPool[RerankItem, RerankResult]:
        return TextWorkerPool(
            "rerank", offer, RERANK_WARM_UP, RerankResult, clock, metrics, elsewhere
        )

    async def start_clip(offer: LoadableModel) -> TextWorkerPool[ClipItem, ClipResult]:
        return TextWorkerPool("clip", offer, CLIP_WARM_UP, ClipResult, clock, metrics, elsewhere)

    def find_offers(kind: TextModelKind) -> Sequence[LoadableModel]:
        offers = find_text_models(folder, kind)
        return offers if elsewhere is None else [on_cluster(offer) for offer in offers]

    embed_loader = ModelLoader("embed", _describe, start_embedder)
    rerank_loader = ModelLoader("rerank", _describe, start_reranker)
    clip_loader = ModelLoader("clip", _describe, start_clip)
    embedders: Embedders = registry.add(
        "embed",
        lambda: find_offers("embed"),
        lambda offer: ServedTextModel(offer, embed_loader, registry),
        is_optional=True,
    )
    rerankers: Rerankers = registry.add(
        "rerank",
        lambda: find_offers("rerank"),
        lambda offer: ServedTextModel(offer, rerank_loader, registry),
        is_optional=True,
    )
    clips: Clips = registry.add(
        "clip",
        lambda: find_offers("clip"),
        lambda offer: ServedClip(offer, clip_loader, registry),
        is_optional=True,
    )
    return embedders, rerankers, clips


def find_text_models(models_dir: Path, kind: TextModelKind) -> Sequence[LoadableModel]:
    """Returns the models of one kind in the models folder, by name."""
    if not models_dir.is_dir():
        return ()
    return [
        _offer(path)
        for path in sorted(models_dir.iterdir())
        if path.is_dir() and not path.name.startswith(".") and read_model_kind(path) == kind
    ]


def _offer(path: Path) -> LoadableModel:
    size_mb = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 2**20
    organisation, _, repository = path.name.rpartition("--")
    aliases = [f"{organisation}/{repository}", repository] if organisation else []
    if (known := short_name(path.name)) != path.name:
        aliases.append(known)  # a name of the user's catalogue
    return LoadableModel(
        name=path.name,
        engine=ENGINE,
        workers=({"model": str(path)},),
        memory_mb={CPU: BASE_MB + WEIGHTS_FACTOR * size_mb},
        aliases=tuple(aliases),
        size_mb=size_mb,
        why="on the processor",
    )


def _describe(offer: LoadableModel) -> TextModelInfo:
    path = Path(offer.options["model"])
    return read_info(path, read_model_kind(path))


def read_info(path: Path, kind: TextModelKind | None) -> TextModelInfo:
    """Reads the properties of a model from its folder. `kind`: see `read_model_kind`. Raises
    EngineError, which names the file, if one is missing or says something that is not supported."""
    return read_image_text_folder(path).info if kind == "clip" else read_folder(path).info
