"""`earshot models bench`: times both Whisper engines with the same model on this machine. The
faster one is noted in the models folder, and `auto` takes it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import EarshotError
from core.terminal import ProgressBar
from engines.base import AsrItem, AsrModel
from engines.registry import load
from media.resample import Resampler
from server.models.errors import ModelsError
from server.models.inventory import ModelFolder, find_installed, installed
from serving.placement.benchmarks import ModelBenchmark, device_name, save_benchmark
from serving.placement.choose import WHISPER, WHISPER_TORCH
from serving.placement.hardware import detect_hardware

SENTENCES = (
    "What time is it?",
    "Turn on the kitchen lights and close the garage door.",
    "Add milk, bread and a dozen eggs to my shopping list, then tell me what else is on it.",
)
"Sentences that are spoken by the embedded voice and decoded."
ROUNDS = 5
"""Rounds that are measured. The engines take turns, so that both meet the same load. One more round
before warms them up."""


@dataclass(frozen=True, slots=True)
class EngineComparison:
    """Times of both engines with the same model, in milliseconds per utterance (median)."""

    model: str
    path: str
    checkpoint: str
    "Folder that whisper_torch loaded."
    device: str
    faster_whisper_ms: float
    whisper_torch_ms: float
    faster: str
    "Engine that `auto` takes for the model."


def measure(
    models_dir: Path, name: str, checkpoint: str, progress: ProgressBar
) -> EngineComparison:
    """Measures both engines and saves the result. Blocking; loads both models. `checkpoint`: folder
    or model name for the second engine; empty: the checkpoint whose name matches the model's.
    Raises ModelsError or EarshotError."""
    model = find_installed(models_dir, name)
    if model.kind != "model":
        raise ModelsError(f"{name} is a {model.kind}, not a model of {WHISPER}")
    folder = _find_checkpoint(models_dir, model, checkpoint)
    device = device_name(detect_hardware(os.environ.get("CUDA_VISIBLE_DEVICES")))
    engines: list[AsrModel] = []
    try:
        with progress:
            progress.start(2 * (ROUNDS + 1) * len(SENTENCES))
            clips = [asyncio.run(synthesize(sentence)) for sentence in SENTENCES]
            engines.append(load("asr", WHISPER, {"model": str(model.path)}))
            engines.append(load("asr", WHISPER_TORCH, {"model": str(folder)}))
            first_ms, second_ms = _median_times_ms(engines, clips, progress)
    except (RuntimeError, ValueError) as error:  # errors of the libraries themselves
        raise ModelsError(f"{name}: does not decode: {error}") from error
    finally:
        for engine in engines:
            engine.close()
    save_benchmark(
        models_dir, model.path.name, ModelBenchmark(str(folder), first_ms, second_ms, device)
    )
    faster = WHISPER_TORCH if second_ms < first_ms else WHISPER
    return EngineComparison(
        model.name, str(model.path), str(folder), device, first_ms, second_ms, faster
    )


def as_lines(result: EngineComparison) -> Iterator[str]:
    """Yields the result in lines for people."""
    yield f"{WHISPER}: {result.path}"
    yield f"{WHISPER_TORCH}: {result.checkpoint}"
    times = (
        f"{WHISPER} {result.faster_whisper_ms:.1f} ms,"
        f" {WHISPER_TORCH} {result.whisper_torch_ms:.1f} ms"
    )
    yield f"{times} per utterance, median, on {result.device}"
    yield f"auto takes {result.faster} for {result.model}"


def _find_checkpoint(models_dir: Path, model: ModelFolder, name: str) -> Path:
    """Returns the folder of the checkpoint to compare with. `name`: folder or name of a checkpoint;
    empty: the one whose name matches the model's. Raises ModelsError if none does."""
    if name:
        folder = Path(name).expanduser()
        return folder.absolute() if folder.is_dir() else find_installed(models_dir, name).path
    checkpoints = [
        checkpoint for checkpoint in installed(models_dir) if checkpoint.kind == "checkpoint"
    ]
    for checkpoint in checkpoints:
        if checkpoint.name in (model.name, f"{model.name}.checkpoint", f"whisper-{model.name}"):
            return checkpoint.path
    available = ", ".join(checkpoint.name for checkpoint in checkpoints) or "none"
    raise ModelsError(
        f"the checkpoint of {model.name} is not known; name it: `earshot models bench"
        f" {model.name} FOLDER`; there are: {available}"
    )


def _median_times_ms(
    engines: Sequence[AsrModel], clips: Sequence[Pcm], progress: ProgressBar
) -> list[float]:
    """Returns the median time of one utterance in ms, for each engine."""
    times_by_engine: list[list[float]] = [[] for _ in engines]
    for round_ in range(ROUNDS + 1):
        for times, engine in zip(times_by_engine, engines, strict=True):
            for clip in clips:
                began_s = time.monotonic()
                engine.decode([AsrItem("bench", clip, is_final=True)])
                if round_:
                    times.append(1000 * (time.monotonic() - began_s))
                progress.add()
    return [median(times) for times in times_by_engine]


async def synthesize(sentence: str) -> Pcm:
    """Speaks a sentence with the embedded voice. Raises EarshotError if it cannot speak."""
    tts = load("tts", "espeak", {})
    resampler = Resampler(tts.info.rate_hz, ASR_RATE_HZ)

    async def text() -> AsyncIterator[str]:
        yield sentence

    async with aclosing(tts.speak(text(), language="en")) as frames:
        parts = [resampler.push(frame.pcm) async for frame in frames]
    pcm: Pcm = np.concatenate([*parts, resampler.flush()])
    if not len(pcm):
        raise EarshotError("the embedded voice produced no audio")
    return pcm
