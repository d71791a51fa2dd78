"""`python -m bench.pull`: fetch a Whisper that fits this machine, if the hub can be reached.

Exit code 0 whatever happens: without a download the server hears through its embedded engine.
"""

import argparse
import logging
import os
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil

HUB = "https://huggingface.co"
REACH_TIMEOUT_S = (
    3.0  # somebody waits for `make run`; a hub that is there answers in well under 1 s
)
STALL_TIMEOUT_S = 15  # without one byte for so long, a download is given up
FILES = ["config.json", "model.bin", "preprocessor_config.json", "tokenizer.json", "vocabulary.*"]
NEEDED = ("config.json", "model.bin", "tokenizer.json")


@dataclass(frozen=True, slots=True)
class Model:
    """A Whisper in CTranslate2's format on the hub."""

    name: str
    repository: str
    size_mb: int

    def folder(self, models: Path) -> Path:
        return models / f"faster-whisper-{self.name}"


TINY = Model("tiny", "Systran/faster-whisper-tiny", 78)
BASE = Model("base", "Systran/faster-whisper-base", 148)
SMALL = Model("small", "Systran/faster-whisper-small", 486)
TURBO = Model("large-v3-turbo", "mobiuslabsgmbh/faster-whisper-large-v3-turbo", 1620)
MODELS = {model.name: model for model in (TINY, BASE, SMALL, TURBO)}


def choose(cores: int, memory_gb: float, vram_gb: float) -> Model:
    """The best Whisper that keeps up with live speech: a first partial well under a second."""
    if vram_gb >= 6:  # turbo's weights take 1.6 GB in float16; the voice and others want room too
        return TURBO
    if cores >= 8 and memory_gb >= 8:
        return SMALL
    if cores >= 4 and memory_gb >= 4:
        return BASE
    return TINY


def installed(models: Path) -> Path | None:
    """The folder of a Whisper that is already there, or None."""
    if not models.is_dir():
        return None
    for config in sorted(models.glob("*/config.json")):
        folder = config.parent
        if not folder.name.startswith(".") and all((folder / name).is_file() for name in NEEDED):
            return folder
    return None


def gpu_memory_gb() -> float:
    """Memory of the largest NVIDIA GPU; 0.0 without one."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        return max((int(line) / 1024 for line in listed.stdout.split()), default=0.0)
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0.0


def unreachable(url: str) -> str | None:
    """Why the hub does not answer within REACH_TIMEOUT_S; None if it does."""
    answer: list[str | None] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(url, timeout=REACH_TIMEOUT_S):  # noqa: S310  (hub or mirror)
                answer.append(None)
        except urllib.error.HTTPError as error:
            answer.append(f"HTTP status {error.code}")
        except (OSError, ValueError) as error:
            answer.append(str(getattr(error, "reason", error)))

    # The socket's timeout does not cover name resolution, which can hang: the thread does.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_TIMEOUT_S)
    return answer[0] if answer else f"no answer within {REACH_TIMEOUT_S:g} s"


def download(model: Model, models: Path, hub: str) -> Path:
    """Fetch into a hidden folder and rename it at the end: what has its final name is whole.

    An interrupted download goes on where it stopped. Raises OSError with a reason.
    """
    os.environ.setdefault("HF_ENDPOINT", hub)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # one host to reach instead of two
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", str(STALL_TIMEOUT_S))
    # Imported now because it reads the variables above when it is imported.
    from huggingface_hub import snapshot_download

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    partial = models / f".{model.folder(models).name}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    snapshot_download(model.repository, local_dir=partial, allow_patterns=FILES)
    missing = [name for name in NEEDED if not (partial / name).is_file()]
    if missing:
        raise OSError(f"{model.repository} has no {', '.join(missing)}")
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    return partial.rename(model.folder(models))


def pull(models: Path, wanted: Model | None, hub: str) -> str:
    """Fetch `wanted`, or what fits the machine. Returns the one line that says what happened."""
    there = wanted.folder(models) if wanted else installed(models)
    if there is not None and all((there / name).is_file() for name in NEEDED):
        return f"Speech recognition: {there} is there, nothing to fetch."
    memory_gb = psutil.virtual_memory().total / 2**30
    model = wanted or choose(os.cpu_count() or 1, memory_gb, gpu_memory_gb())
    otherwise = "the embedded speech recognition works without"
    if reason := unreachable(f"{hub}/api/models/{model.repository}"):
        return f"Whisper {model.name} not fetched: {hub}: {reason}; {otherwise}."
    print(
        f"Fetching Whisper {model.name} ({model.size_mb} MB); Ctrl-C or PULL=0 skips.", flush=True
    )
    try:
        folder = download(model, models, hub)
    except KeyboardInterrupt:
        return f"Whisper {model.name} not fetched: interrupted; {otherwise}."
    except (OSError, ValueError, RuntimeError, LookupError, TypeError) as error:
        # The hub's own errors are the first three; a mirror that talks nonsense causes the rest.
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"Whisper {model.name} not fetched: {first_line}; {otherwise}."
    return f"Speech recognition: fetched {folder}."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pull", description=__doc__)
    parser.add_argument(
        "--models",
        type=Path,
        default=Path(os.environ.get("EARSHOT_MODELS_DIR", "models")),
        help="where weights live (default: EARSHOT_MODELS_DIR, else ./models)",
    )
    parser.add_argument("--model", choices=sorted(MODELS), help="default: what fits this machine")
    options = parser.parse_args()
    hub = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
    print(pull(options.models, MODELS.get(options.model or ""), hub))
    return 0


if __name__ == "__main__":
    sys.exit(main())
