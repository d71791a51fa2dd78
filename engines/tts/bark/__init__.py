"""Engine for Bark: text becomes semantic tokens, these coarse codes of sound, these whole frames.

The checkpoints `suno/bark-small` and `suno/bark` have this form. Each stage is a pool with its own
batch, device, number of threads and times. It runs in a worker with torch.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from core.errors import EngineError
from engines.base import TtsInfo, WorkerProfile
from engines.base.voice import StageTime
from engines.runtime.model_files.huggingface import ENVIRONMENT
from engines.tts.bark.layout import (
    TOKENIZER_FILE,
    BarkLayout,
    Sampling,
    read_layout,
)
from engines.tts.bark.settings import NAME, Settings
from engines.tts.bark.voices import read_prompts, voices_by_language
from engines.tts.shared.synthesis_thread import VOICE_NICE

if TYPE_CHECKING:
    from engines.tts.bark.engine import BarkTts
    from engines.tts.bark.networks import BarkNetworks
    from engines.tts.bark.stages import BarkStages

__all__ = ["EXTRA", "REQUIRES", "Settings", "create", "worker_profile"]

EXTRA = "torch"
REQUIRES = {"torch": "torch", "transformers": "transformers"}

MAX_CLAUSE_S = 20.0
"""Longest segment of the codec in seconds. No clause is longer, so the codec decodes each one as a
whole."""


def worker_profile(settings: Settings) -> WorkerProfile:
    """Returns the environment, time limits and niceness of the worker process."""
    return WorkerProfile(
        ENVIRONMENT,
        settings.load_timeout_s,
        settings.first_audio_timeout_s,
        settings.audio_timeout_s,
        nice=VOICE_NICE,
    )


def create(settings: Settings) -> "BarkTts":
    """Loads the networks of all stages, which takes seconds. Raises EngineMissing for missing
    files, EngineError for files of another model, ConfigError for an unknown voice."""
    from tokenizers import Tokenizer

    layout = with_temperature(read_layout(settings.folder), settings.temperature)
    prompts = read_prompts(settings.folder, layout)
    voices = voices_by_language(prompts, settings.languages, settings.voices)
    tokenizer = Tokenizer.from_file(str(settings.folder / TOKENIZER_FILE))

    from engines.tts.bark.engine import BarkTts
    from engines.tts.bark.networks import load_networks

    times: list[StageTime] = []
    networks = load_networks(settings, layout.codebook_size)
    stages = create_stages(networks, layout, settings, times.append)
    info = TtsInfo(NAME, stages.codec_info.rate_hz, voices)
    return BarkTts(info, stages, tokenizer, prompts, times)


def with_temperature(layout: BarkLayout, temperature: float | None) -> BarkLayout:
    """Returns the layout with another temperature of all stages; None keeps the checkpoint's."""
    if temperature is None:
        return layout
    return replace(
        layout,
        semantic=Sampling(temperature, layout.semantic.top_k),
        coarse=Sampling(temperature, layout.coarse.top_k),
        fine=Sampling(temperature),
    )


def create_stages(
    networks: "BarkNetworks",
    layout: BarkLayout,
    settings: Settings,
    on_time: Callable[[StageTime], None],
) -> "BarkStages":
    """Starts the pools. The threads of a pool share its network. Raises EngineError for a codec
    with other codebooks."""
    import torch

    from engines.codec.encodec.network import EncodecNetwork
    from engines.codec.settings import Settings as CodecSettings
    from engines.codec.settings import codec_info
    from engines.codec.torch_layers.segmented_codec import SegmentedCodec
    from engines.tts.bark import token_checks as stage
    from engines.tts.bark.networks import device_of
    from engines.tts.bark.sequence_worker import SequenceWorker
    from engines.tts.bark.stage_pool import StagePool
    from engines.tts.bark.stage_tokens import coarse_order, semantic_order
    from engines.tts.bark.stages import BarkStages
    from engines.tts.bark.window_workers import CodecWorker, FineWorker
    from engines.tts.token_model.torch_backend import TorchBackend

    if settings.threads:
        torch.set_num_threads(settings.threads)
    info = codec_info("encodec", networks.codec.config.to_dict(), settings.folder.name)
    if layout.codebooks not in info.codebooks:
        found = ", ".join(map(str, info.codebooks))
        raise EngineError("tts", NAME, f"the codec has {found} codebooks, not {layout.codebooks}")
    codec_settings = CodecSettings(
        model=settings.path, device=device_of(settings.codec.device), segment_s=MAX_CLAUSE_S
    )
    codec = EncodecNetwork(networks.codec)
    semantic, coarse, fine = settings.semantic, settings.coarse, settings.fine

    def codec_worker() -> CodecWorker:
        return CodecWorker(SegmentedCodec(codec, info, codec_settings), settings.codec.batch)

    def sequences(stage_name: str) -> SequenceWorker:
        is_semantic = stage_name == stage.SEMANTIC
        network = networks.semantic if is_semantic else networks.coarse
        order = partial(semantic_order if is_semantic else coarse_order, layout)
        slots = semantic.batch if is_semantic else coarse.batch
        backend = TorchBackend(network, order, slots, name=f"tts.{NAME} {stage_name}")
        return SequenceWorker(backend, stop=layout.semantic_stop if is_semantic else None)

    return BarkStages(
        layout,
        settings,
        info,
        StagePool(
            stage.SEMANTIC, [sequences(stage.SEMANTIC) for _ in range(semantic.workers)], on_time
        ),
        StagePool(stage.COARSE, [sequences(stage.COARSE) for _ in range(coarse.workers)], on_time),
        StagePool(
            stage.FINE,
            [FineWorker(networks.fine, layout, fine.batch) for _ in range(fine.workers)],
            on_time,
        ),
        StagePool(stage.CODEC, [codec_worker() for _ in range(settings.codec.workers)], on_time),
    )
