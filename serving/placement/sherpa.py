"""Models of sherpa-onnx in the models folder: how they are found and named, and their memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from core.errors import ConfigError
from engines.asr.sherpa.releases import PREFIX, is_spotter
from serving.placement.recordings import (
    RecordingsBenchmark,
    benchmark_of,
    read_recordings_benchmarks,
)

SHERPA = "sherpa"
"Name of the engine that runs models of sherpa-onnx."
SCHEME = f"{SHERPA}:"
"First part of a model's name where models of other engines may be meant, too."

BASE_MB = 60.0
"Memory in MB of a worker without weights: Python, the library and its runtime."
MEMORY_FACTOR = 1.3
"Memory that weights take, relative to their size on disk: the runtime copies and reorders some."

_WEIGHTS = (".onnx", ".ort")


@dataclass(frozen=True, slots=True)
class SherpaWeights:
    """One model in the models folder."""

    path: Path
    size_mb: float
    "Size of its weights on disk."
    on_recordings: RecordingsBenchmark | None = None
    "Word errors and times on the user's recordings; None: it was not measured with any."

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.path.name

    @property
    def memory_mb(self) -> float:
        """Estimated memory of a worker with the model."""
        return BASE_MB + MEMORY_FACTOR * self.size_mb

    def is_called(self, name: str) -> bool:
        """True if this is the name of its folder, with or without PREFIX and SCHEME."""
        return name.removeprefix(SCHEME).removeprefix(PREFIX) == self.name.removeprefix(PREFIX)


def find_sherpa(models_dir: Path) -> tuple[SherpaWeights, ...]:
    """Returns the models of sherpa-onnx in the models folder, by the names of their files. Whether
    one can be loaded is known when it is described. Keyword spotters are left out."""
    return tuple(model for model in _find_all(models_dir) if not is_spotter(model.name))


def _find_all(models_dir: Path) -> tuple[SherpaWeights, ...]:
    if not models_dir.is_dir():
        return ()
    try:
        folders = sorted(models_dir.iterdir())
    except OSError as error:
        raise ConfigError(f"paths.models_dir {models_dir}: {error.strerror}") from error
    benchmarks = read_recordings_benchmarks(models_dir)
    found = [
        sherpa_at(folder)
        for folder in folders
        if not folder.name.startswith(".") and holds_sherpa(folder)
    ]
    return tuple(
        replace(model, on_recordings=benchmark_of(benchmarks, model.path, model.size_mb))
        for model in found
    )


def holds_sherpa(folder: Path) -> bool:
    """Returns True if a folder has weights with a list of tokens, as only sherpa-onnx's have."""
    try:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    except OSError:  # such as lost+found on a volume, which only root may read
        return False
    return any(name.endswith("tokens.txt") for name in names) and any(
        name.endswith(_WEIGHTS) for name in names
    )


def sherpa_at(folder: Path) -> SherpaWeights:
    """Returns the model in a folder. If there is none, its size is 0 MB, and loading it will report
    the error."""
    files = [path for path in folder.glob("*") if path.suffix in _WEIGHTS and path.is_file()]
    return SherpaWeights(folder, sum(path.stat().st_size for path in files) / 1e6)


def with_folder(
    options: Mapping[str, object], models_dir: Path, kind: Literal["asr", "wake"] = "asr"
) -> Mapping[str, object]:
    """Returns an engine's options with the folder in place of a model's name. If no model is named,
    the only one in the models folder is meant. A name of a model for punctuation becomes a folder,
    too. `kind`: a recogniser, or a keyword spotter. Raises ConfigError."""
    is_wanted = kind == "wake"
    punctuation = str(options.get("punctuation", ""))
    if punctuation and "/" not in punctuation:
        options = {**options, "punctuation": str(models_dir / punctuation)}
    found = [model for model in _find_all(models_dir) if is_spotter(model.name) is is_wanted]
    name = str(options.get("model", ""))
    if "/" in name:
        return options
    matches = [model for model in found if model.is_called(name)] if name else found
    if len(matches) == 1:
        return {**options, "model": str(matches[0].path)}
    names = ", ".join(model.name for model in found) or "none"
    problem = f"no model {name!r} of sherpa-onnx" if name else "name one model of sherpa-onnx"
    raise ConfigError(
        f"{kind}.options.model: {problem} in {models_dir}; there are: {names};"
        f" `earshot models pull {SCHEME}NAME` fetches one"
    )
