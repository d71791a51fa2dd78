"""Reads the file of a model that recognises speakers without loading it, and checks everything for
which sherpa-onnx would end its process: another kind of network, missing notes, wrong values."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.audio import ASR_RATE_HZ
from core.errors import ConfigError, EngineMissing
from engines.runtime.model_files.onnx_file import OnnxNotes, read_notes

NAME = "sherpa"
"Name of the engine in errors."

SUFFIX = ".onnx"

GENERAL_NOTES = ("output_dim", "sample_rate", "normalize_samples", "language")
NEMO_NOTES = (
    *("output_dim", "feat_dim", "sample_rate", "window_size_ms", "window_stride_ms", "language"),
)


@dataclass(frozen=True, slots=True)
class SpeakerFramework:
    """A framework in which models were trained, as the library tells them apart."""

    notes: tuple[str, ...]
    "Notes that the library reads without a default."
    normalisation: str
    "Its only value of the note `feature_normalize_type`, apart from an empty one."
    inputs: int
    outputs: int
    "Fewest outputs. The vector is the last of these."


FRAMEWORKS: Mapping[str, SpeakerFramework] = {
    "wespeaker": SpeakerFramework(GENERAL_NOTES, "global-mean", inputs=1, outputs=1),
    "3d-speaker": SpeakerFramework(GENERAL_NOTES, "global-mean", inputs=1, outputs=1),
    "nemo": SpeakerFramework(NEMO_NOTES, "per_feature", inputs=2, outputs=2),
}
"Frameworks by the value of the note `framework`."

NUMBERS = ("output_dim", "feat_dim", "window_size_ms", "window_stride_ms")
"Notes that are whole numbers from 1 on."


@dataclass(frozen=True, slots=True)
class SpeakerFile:
    """The file of a model that the library will accept, as far as its notes tell."""

    path: Path
    dimensions: int
    "Length of a vector."


def find_speaker_file(folder: Path) -> Path | None:
    """Returns the file of a model that recognises speakers; None if the folder holds another model
    or none. Such a folder has one file of weights with a framework in its notes, and no tokens."""
    try:
        paths = list(folder.iterdir()) if folder.is_dir() else []
    except OSError:  # such as lost+found on a volume, which only root may read
        return None
    weights = [path for path in paths if path.suffix == SUFFIX and path.is_file()]
    if len(weights) != 1 or any(path.name.endswith("tokens.txt") for path in paths):
        return None
    try:
        notes = read_notes(weights[0])
    except (OSError, ValueError):
        return None
    return weights[0] if "framework" in notes.metadata else None


def read_speaker_file(folder: Path) -> SpeakerFile:
    """Returns the model in a folder.

    Raises EngineMissing if there is none, ConfigError if the library would refuse it.
    """
    if not folder.is_dir():
        raise EngineMissing("speaker", NAME, f"there is no folder {folder}")
    files = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    if len(files) != 1:
        raise EngineMissing("speaker", NAME, f"{folder} holds {len(files)} {SUFFIX} files, not 1")
    (file,) = files
    try:
        notes = read_notes(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is no ONNX file, or damaged: {error}") from error
    if problem := _problem(notes):
        raise ConfigError(f"{file} is no model that recognises speakers: {problem}")
    return SpeakerFile(file, int(notes.metadata["output_dim"]))


def _problem(notes: OnnxNotes) -> str:
    """Returns why the library would refuse a network, or end its process at its first use; empty if
    it would not."""
    found = notes.metadata.get("framework", "")
    framework = FRAMEWORKS.get(found)
    if framework is None:
        return f"its note framework is {found!r}, not {', '.join(FRAMEWORKS)}"
    missing = [key for key in framework.notes if key not in notes.metadata]
    if missing:
        return f"it lacks the notes {', '.join(missing)}"
    for key in NUMBERS:
        text = notes.metadata.get(key, "1")
        if not text.isdecimal() or int(text) < 1:
            return f"its note {key} is {text!r}, not a number from 1"
    if (rate := notes.metadata["sample_rate"]) != str(ASR_RATE_HZ):
        return f"its sample_rate is {rate}, not {ASR_RATE_HZ}"
    if notes.metadata.get("normalize_samples", "1") not in ("0", "1"):
        return "its note normalize_samples is neither 0 nor 1"
    kind = notes.metadata.get("feature_normalize_type", "")
    if kind not in ("", framework.normalisation):
        return f"its feature_normalize_type is {kind!r}, not {framework.normalisation!r}"
    if len(notes.inputs) != framework.inputs:
        return f"it has {len(notes.inputs)} inputs, not {framework.inputs}"
    if len(notes.outputs) < framework.outputs:
        return f"it has {len(notes.outputs)} outputs, not {framework.outputs}"
    is_vector_first = framework.outputs == 1
    if is_vector_first and notes.last_size not in (None, int(notes.metadata["output_dim"])):
        return f"its vectors have {notes.last_size} numbers, not {notes.metadata['output_dim']}"
    return ""
