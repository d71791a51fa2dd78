"""Environments of the other systems, one per system, with pinned releases."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.errors import EarshotError

PeerKind = Literal["wyoming", "whisper-live", "bare"]
"Kind of a compared recogniser, by its protocol."

VoiceKind = Literal["pipecat", "speech-to-speech"]
"Name of a compared voice server."

INSTALL_TIMEOUT_S = 900
"Longest time for installing a system's packages."


class MissingPeer(EarshotError):
    """An environment is missing or could not be made."""

    code = "not_installed"


@dataclass(frozen=True, slots=True)
class PeerRequirements:
    """Packages that pip installs into one environment."""

    title: str
    packages: Sequence[str]
    alone: Sequence[str] = ()
    "Packages that are installed without their dependencies."


PEERS: Mapping[PeerKind, PeerRequirements] = {
    "wyoming": PeerRequirements("wyoming-faster-whisper 3.8.1", ("wyoming-faster-whisper==3.8.1",)),
    "whisper-live": PeerRequirements(
        "whisper-live 0.10.0, batching on",
        (
            "faster-whisper==1.2.0",
            "fastapi",
            "numpy<2.5",
            "python-multipart",
            "prometheus-client",
            "requests",
            "scipy",
            "torch==2.13.0",
            "uvicorn",
            "websockets",
        ),
        # Its dependencies OpenVINO, torchaudio, librosa, PyAudio and cuBLAS are not used here.
        alone=("whisper-live==0.10.0",),
    ),
    "bare": PeerRequirements("faster-whisper 1.2.1, in-process", ("faster-whisper==1.2.1",)),
}

VOICE_PEERS: Mapping[VoiceKind, PeerRequirements] = {
    "pipecat": PeerRequirements("pipecat 1.14.0", ("pipecat-ai[silero,webrtc,websocket]==1.14.0",)),
    "speech-to-speech": PeerRequirements(
        "speech-to-speech 1.1.0",
        (
            "PyYAML<7",
            "anyio<5",
            "fastapi",
            "httpx",
            "huggingface-hub",
            "jsonschema",
            "librosa==0.11.0",
            "lingua-language-detector",
            "nltk==3.10.3",
            "numpy",
            "onnxruntime",
            "pillow",
            "openai==2.28.0",
            "packaging",
            "pydantic",
            "rich",
            "scipy",
            "sounddevice",
            "soundfile",
            "soxr",
            "torch==2.13.0",
            "transformers>=5.18,<6",
            "uvicorn",
            "websockets",
        ),
        # Its dependencies include the runtimes of its default models. It would download Silero's
        # weights, which the package silero-vad contains.
        alone=("speech-to-speech==1.1.0", "silero-vad", "torchaudio"),
    ),
}
"Systems that hold a conversation: see `bench.peers.voice`."


def folder() -> Path:
    """Returns the folder for environments and random weights, which are kept between runs."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "earshot-bench"


def python_of(kind: PeerKind | VoiceKind) -> Path:
    """Returns the environment's interpreter. Raises MissingPeer."""
    if not _mark(kind).is_file() or _mark(kind).read_text() != _wanted(kind):
        module = "bench.peers.voice" if kind in VOICE_PEERS else "bench.peers"
        raise MissingPeer(f"{kind} is not installed: python -m {module} install")
    return folder() / kind / "bin" / "python"


def install(kind: PeerKind | VoiceKind) -> None:
    """Makes an environment, unless it exists. Raises MissingPeer with the end of pip's output."""
    if _mark(kind).is_file() and _mark(kind).read_text() == _wanted(kind):
        return
    place = folder() / kind
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    needed = _needed(kind)
    _run([*pip, *needed.packages])
    if needed.alone:
        _run([*pip, "--no-deps", *needed.alone])
    _mark(kind).write_text(_wanted(kind))


def _needed(kind: PeerKind | VoiceKind) -> PeerRequirements:
    every = (*PEERS.items(), *VOICE_PEERS.items())
    return next(needed for peer, needed in every if peer == kind)


def _mark(kind: PeerKind | VoiceKind) -> Path:
    return folder() / kind / "earshot-installed"


def _wanted(kind: PeerKind | VoiceKind) -> str:
    needed = _needed(kind)
    return "\n".join((*needed.packages, *needed.alone))


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise MissingPeer(f"{command[-1]}: took longer than {INSTALL_TIMEOUT_S} s") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise MissingPeer(f"{command[-1]}: {' '.join(last) or 'failed'}")
