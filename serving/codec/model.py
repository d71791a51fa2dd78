"""Codecs in the registry: their worker processes and their queue."""

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

from core.ports import Clock, Metrics
from engines.base.codec import CodecInfo, CodecItem, CodecResult
from engines.codec.settings import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    CodecName,
    codec_name,
    read_info,
)
from engines.runtime.worker.payloads import CONVERT
from engines.runtime.worker.protocol import LoadRequest
from serving.models.catalogue import short_name
from serving.models.model import ModelLoader, ServedModel
from serving.models.registry import ModelRegistry, ModelsOfKind
from serving.placement.offers import LoadableModel
from serving.placement.whisper import CPU
from serving.scheduling.policy import PriorityRule, SchedulingPolicy
from serving.workers.batch_pool import BatchWorkerPool
from serving.workers.batch_process import BatchProcess

BASE_MB = 1150.0
"""Memory in MB of a worker process without weights: 450 for Python, torch and transformers, and 700
for the layers' results while a segment of 10 s is computed."""


class CodecPriority(IntEnum):
    """Priority of a request to a codec; a smaller number is served first."""

    REQUEST = 0
    "A clip of one request."


CODEC_SCHEDULING: SchedulingPolicy[CodecItem] = SchedulingPolicy(
    kind="codec",
    work="audio codec",
    # HTTP clients and proxies wait for a minute.
    rules={CodecPriority.REQUEST: PriorityRule(wait_limit_s=30.0, deadline_s=60.0)},
)

CodecWorkerPool = BatchWorkerPool[CodecInfo, CodecItem, CodecResult]
"The worker process of a loaded codec, with its scheduler."


class ServedCodec(ServedModel[CodecInfo, CodecWorkerPool]):
    """One codec, shared by all requests."""

    async def convert(self, item: CodecItem) -> bytes:
        """Encodes or decodes a clip, and loads the model first if necessary. Returns what
        `CodecResult.data` describes.

        Raises EngineError when the model fails to load, OverloadedError when there is no room for
        it now.
        """
        with self.in_use():
            loaded = self.loaded or await self.load()
            return (await loaded.submit(item, CodecPriority.REQUEST)).data


Codecs = ModelsOfKind[ServedCodec]
"All codecs by name."


def add_codecs(registry: ModelRegistry, models_dir: str, clock: Clock, metrics: Metrics) -> Codecs:
    """Adds the codecs to the registry, and returns them by name. `models_dir`: the folder that is
    searched for them, now and when a name is unknown."""
    folder = Path(models_dir).expanduser()

    async def start(offer: LoadableModel) -> CodecWorkerPool:
        request = LoadRequest("codec", offer.engine, dict(offer.options))
        process: BatchProcess[CodecInfo, CodecItem, CodecResult] = BatchProcess(
            request, CodecInfo, CONVERT, CodecResult, metrics, name=offer.name
        )
        info = _describe(offer)
        silence = bytes(2 * info.rate_hz)  # a second
        warm_up = (CodecItem("encode", silence, info.codebooks[0]), CodecPriority.REQUEST)
        return CodecWorkerPool(process, CODEC_SCHEDULING, warm_up, clock, metrics)

    loader = ModelLoader("codec", _describe, start)
    codecs: Codecs = registry.add(
        "codec",
        lambda: find_codecs(folder),
        lambda offer: ServedCodec(offer, loader, registry),
        is_optional=True,
    )
    return codecs


def find_codecs(models_dir: Path) -> Sequence[LoadableModel]:
    """Returns the codecs in the models folder, by name."""
    folders = [file.parent for file in sorted(models_dir.glob(f"[!.]*/{CONFIG_FILE}"))]
    return [_offer(name, folder) for folder in folders if (name := codec_name(folder))]


def _offer(name: CodecName, path: Path) -> LoadableModel:
    size_mb = (path / WEIGHTS_FILE).stat().st_size / 2**20
    known = short_name(path.name)
    return LoadableModel(
        name=path.name,
        engine=name,
        workers=({"model": str(path), "device": CPU},),
        memory_mb={CPU: BASE_MB + size_mb},
        aliases=(known,) if known != path.name else (),
        size_mb=size_mb,
        why="on the processor",
    )


def _describe(offer: LoadableModel) -> CodecInfo:
    engine: CodecName = "mimi" if offer.engine == "mimi" else "encodec"
    return read_info(engine, Path(offer.options["model"]))
