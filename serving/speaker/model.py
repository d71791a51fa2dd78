"""Models that recognise speakers, in the registry: their worker processes and their queue."""

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np

from core.audio import ASR_RATE_HZ
from core.ports import Clock, Metrics
from engines.base.speaker import SpeakerItem, SpeakerModelInfo, SpeakerResult
from engines.runtime.worker.payloads import EMBED
from engines.runtime.worker.protocol import LoadRequest
from engines.speaker import ge2e, sherpa
from engines.speaker.ge2e.network import WEIGHTS_FILE
from engines.speaker.sherpa.model_file import find_speaker_file
from serving.models.catalogue import short_name
from serving.models.model import ModelLoader, ServedModel
from serving.models.registry import ModelRegistry, ModelsOfKind
from serving.placement.offers import LoadableModel
from serving.placement.sherpa import BASE_MB as SHERPA_BASE_MB
from serving.placement.sherpa import MEMORY_FACTOR, SCHEME, SHERPA
from serving.placement.whisper import CPU
from serving.scheduling.policy import PriorityRule, SchedulingPolicy
from serving.workers.batch_pool import BatchWorkerPool
from serving.workers.batch_process import BatchProcess

GE2E = "ge2e"
"Name of the engine."

BASE_MB = 60.0
"Memory in MB of a worker process without weights: Python and numpy."

WEIGHTS_FACTOR = 2.0
"""Memory of a loaded network as a multiple of its file: matrices are transposed after they were
read."""


class SpeakerPriority(IntEnum):
    """Priority of a request for a vector; a smaller number is served first."""

    TURN = 0
    "An utterance of a conversation."
    ENROLMENT = 1
    "A recording by which the server learns a voice."
    RECORDING = 2
    "One of the many parts of a recording in which speakers are distinguished."


SPEAKER_SCHEDULING: SchedulingPolicy[SpeakerItem] = SchedulingPolicy(
    kind="speaker",
    work="speaker recognition",
    rules={
        # The answer does not wait for it, so a vector that comes late is of no use.
        SpeakerPriority.TURN: PriorityRule(wait_limit_s=2.0, deadline_s=4.0),
        # HTTP clients and proxies wait for a minute.
        SpeakerPriority.ENROLMENT: PriorityRule(wait_limit_s=15.0, deadline_s=60.0),
        # Each recording has one such request at a time, and may take an hour.
        SpeakerPriority.RECORDING: PriorityRule(wait_limit_s=60.0, deadline_s=300.0),
    },
)

WARM_UP = SpeakerItem(np.zeros(ASR_RATE_HZ, "<i2").tobytes())
"Item that is computed once after the load."

SpeakerWorkerPool = BatchWorkerPool[SpeakerModelInfo, SpeakerItem, SpeakerResult]
"The worker process of a loaded model, with its scheduler."


class ServedSpeakerModel(ServedModel[SpeakerModelInfo, SpeakerWorkerPool]):
    """One model that recognises speakers, shared by all sessions."""

    @property
    def dimensions(self) -> int:
        """Length of its vectors; 0 if it cannot be used."""
        return self.info.dimensions if self.problem is None else 0

    async def compute(self, item: SpeakerItem, priority: SpeakerPriority) -> SpeakerResult:
        """Computes one item, and loads the model first if necessary. See `Scheduler.submit`.

        Raises EngineError when the model fails to load, OverloadedError when there is no room for
        it now.
        """
        with self.in_use():
            loaded = self.loaded or await self.load()
            return await loaded.submit(item, priority)


SpeakerModels = ModelsOfKind[ServedSpeakerModel]
"All models that recognise speakers, by name."


def add_speaker_models(
    registry: ModelRegistry, models_dir: str, clock: Clock, metrics: Metrics
) -> SpeakerModels:
    """Adds the models that recognise speakers to the registry, and returns them by name.
    `models_dir`: the folder that is searched for them, now and when a name is unknown."""
    folder = Path(models_dir).expanduser()

    async def start(offer: LoadableModel) -> SpeakerWorkerPool:
        request = LoadRequest("speaker", offer.engine, dict(offer.options))
        process: BatchProcess[SpeakerModelInfo, SpeakerItem, SpeakerResult] = BatchProcess(
            request, SpeakerModelInfo, EMBED, SpeakerResult, metrics, name=offer.name
        )
        warm_up = (WARM_UP, SpeakerPriority.TURN)
        return SpeakerWorkerPool(process, SPEAKER_SCHEDULING, warm_up, clock, metrics)

    loader = ModelLoader("speaker", _describe, start)
    models: SpeakerModels = registry.add(
        "speaker",
        lambda: find_speaker_models(folder),
        lambda offer: ServedSpeakerModel(offer, loader, registry),
        is_optional=True,
    )
    return models


def find_speaker_models(models_dir: Path) -> Sequence[LoadableModel]:
    """Returns the models that recognise speakers in the models folder: those of GE2E by name, then
    those of sherpa-onnx."""
    ge2e_files = sorted(models_dir.glob(f"[!.]*/{WEIGHTS_FILE}"))
    folders = sorted(models_dir.glob("[!.]*/"))
    sherpa_files = [file for folder in folders if (file := find_speaker_file(folder)) is not None]
    return [*map(_ge2e_offer, ge2e_files), *map(_sherpa_offer, sherpa_files)]


def _ge2e_offer(file: Path) -> LoadableModel:
    path = file.parent
    size_mb = file.stat().st_size / 2**20
    known = short_name(path.name)
    return LoadableModel(
        name=path.name,
        engine=GE2E,
        workers=({"model": str(path)},),
        memory_mb={CPU: BASE_MB + WEIGHTS_FACTOR * size_mb},
        aliases=(known,) if known != path.name else (),
        size_mb=size_mb,
        why="on the processor",
    )


def _sherpa_offer(file: Path) -> LoadableModel:
    path = file.parent
    size_mb = file.stat().st_size / 2**20
    return LoadableModel(
        name=path.name,
        engine=SHERPA,
        workers=({"model": str(path)},),
        memory_mb={CPU: SHERPA_BASE_MB + MEMORY_FACTOR * size_mb},
        aliases=(f"{SCHEME}{path.name}",),
        size_mb=size_mb,
        why="on the processor",
    )


def _describe(offer: LoadableModel) -> SpeakerModelInfo:
    read_info = ge2e.read_info if offer.engine == GE2E else sherpa.read_info
    return read_info(Path(offer.options["model"]))
