"""Lists the contents of the models folder."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from core.errors import EarshotError, EngineError
from engines.asr.sherpa import Settings, describe
from engines.asr.sherpa.punctuation import holds_punctuation, read_punctuation_file
from engines.asr.sherpa.releases import PREFIX
from engines.codec.settings import codec_name
from engines.runtime.model_files.gguf_file import UnreadableGgufError
from engines.runtime.model_files.gguf_folder import check_parts, model_files, part_files
from engines.runtime.text_encoder.folder import TextModelKind, read_model_kind
from engines.speaker.ge2e.network import WEIGHTS_FILE
from engines.speaker.sherpa.model_file import find_speaker_file, read_speaker_file
from server.models.download import sha256
from server.models.errors import ModelsError
from server.models.voices import files_of, voice_name
from serving.models.catalogue import entries, find_entry, short_name
from serving.placement.choose import WHISPER_FILES
from serving.placement.ct2_header import read_weights_file
from serving.placement.sherpa import SCHEME, holds_sherpa
from serving.text.model import read_info

FolderKind = Literal[
    "model",
    "voice",
    "embed",
    "rerank",
    "clip",
    "endpoint",
    "llm",
    "speaker",
    "codec",
    "sherpa",
    "punctuation",
    "checkpoint",
    "partial",
    "broken",
]
"""Content of a folder. model: a Whisper. embed, rerank: a model for embeddings or reranking.
clip: one that takes images, too. endpoint: a model for turn detection. llm: a language model as a
GGUF file. speaker: a model that recognises speakers. codec: sound to codes and back. sherpa: a
recogniser of sherpa-onnx. punctuation: a model that adds marks to its words. partial: an
interrupted download. broken: files are missing or invalid."""

USABLE_KINDS: tuple[FolderKind, ...] = (
    "model",
    "embed",
    "rerank",
    "clip",
    "endpoint",
    "llm",
    "speaker",
    "codec",
    "sherpa",
    "punctuation",
)
"Kinds of models that are complete."

PREFERENCE: tuple[FolderKind, ...] = (
    *("model", "voice", "embed", "rerank", "clip", "endpoint", "llm", "speaker", "codec", "sherpa"),
    *("punctuation", "checkpoint", "broken", "partial"),
)
"Kinds in the order of preference if a name fits several folders."

CHECKPOINT_PATTERNS = ("*.safetensors", "pytorch_model*.bin", "*.pt")
"File patterns of weights that must be converted."

PURPOSES: dict[TextModelKind, str] = {
    "embed": "for embeddings",
    "rerank": "for reranking",
    "clip": "for embeddings of texts and images",
}
"Purpose of a kind of models, for people."

FOR_SPEAKERS = "for who speaks"
"Purpose of a model that recognises speakers, for people."

PARTIAL = re.compile(r"\.(.+)\.partial")
"Name pattern of an interrupted download: a hidden folder."


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One folder of the models directory, or one GGUF file that lies in it."""

    name: str
    "Short name, by which the model or voice is pulled."
    path: Path
    kind: FolderKind
    size_bytes: int
    "Size of all files in it."
    weight_type: str = ""
    """Number type of the weights in the file. On a CPU they are computed in int8, see
    asr.options.compute_type."""
    languages: str = ""
    "Languages in words, for people; empty if unknown."
    problem: str = ""
    "Reason why a broken folder cannot be used; empty for other kinds."


class _WhisperConfig(msgspec.Struct):
    """Part of a Whisper model's config.json that holds its languages."""

    lang_ids: list[int] = []
    "Token of each language; empty for a model that knows only English."


def partial_folder(models_dir: Path, folder: str) -> Path:
    """Returns the hidden folder into which a model is downloaded or converted."""
    return models_dir / f".{folder}.partial"


def holds_checkpoint(folder: Path) -> bool:
    """Returns True if the folder has weights that must be converted."""
    return any(next(folder.glob(pattern), None) for pattern in CHECKPOINT_PATTERNS)


def installed(models_dir: Path) -> tuple[ModelFolder, ...]:
    """Lists all models, checkpoints and partial downloads, by kind and name. Reads only headers."""
    if not models_dir.is_dir():
        return ()
    folders = [_classify(folder) for folder in models_dir.iterdir() if folder.is_dir()]
    folders += [_gguf_model(file.stem, file, file) for file in model_files(models_dir)]
    return tuple(
        sorted(
            (folder for folder in folders if folder), key=lambda folder: (folder.kind, folder.name)
        )
    )


def find_installed(models_dir: Path, name: str) -> ModelFolder:
    """Finds a model by its folder's name, else by its short name or an alias. If several folders
    match, a usable model comes first. Raises ModelsError that lists the existing names."""
    folders = installed(models_dir)
    entry = find_entry(name)
    names = {name, entry.name} if entry else {name}
    matches = [folder for folder in folders if folder.path.name == name or folder.name in names]
    if matches:
        return min(
            matches, key=lambda folder: (folder.path.name != name, PREFERENCE.index(folder.kind))
        )
    available = ", ".join(folder.name for folder in folders) or "nothing"
    raise ModelsError(f"there is no model {name!r} in {models_dir}; there is: {available}")


def remove(model: ModelFolder) -> None:
    """Removes a model's folder or file. Raises OSError."""
    # The target of a link is outside, and not ours to remove.
    if model.path.is_symlink() or model.path.is_file():
        for path in part_files(model.path):
            path.unlink()
        return
    hidden_path = model.path.with_name(f".{model.path.name}.going.{os.getpid()}")
    model.path.rename(hidden_path)  # a half removed model must not be loaded
    shutil.rmtree(hidden_path)


def turn_detector_file(folder: Path) -> Path | None:
    """Returns the weights of the turn detector that was pulled into a folder; None if it has
    none."""
    entry = find_entry(short_name(folder.name))
    if entry is None or entry.kind != "endpoint":
        return None
    file = folder / entry.file
    return file if file.is_file() else None


def turn_detector(models_dir: Path) -> Path | None:
    """Returns the weights of the turn detector in the models folder; None if there are none."""
    folders = (models_dir / entry.folder for entry in entries() if entry.kind == "endpoint")
    return next((file for folder in folders if (file := turn_detector_file(folder))), None)


def find_language_model(models_dir: Path, name: str) -> Path | None:
    """Returns the folder or file of a language model in the models folder; None if no model there
    has this name."""
    folders = [folder for folder in installed(models_dir) if folder.kind == "llm"]
    entry = find_entry(name)
    names = {name, entry.name} if entry else {name}
    matches = (folder for folder in folders if {folder.name, folder.path.name} & names)
    return next((folder.path for folder in matches), None)


def _classify(folder: Path) -> ModelFolder | None:
    """Returns what a folder holds; None if it holds nothing of ours."""
    size_bytes = sum(path.stat().st_size for path in _files(folder))
    if partial := PARTIAL.fullmatch(folder.name):
        name = voice_name(partial[1]) or short_name(partial[1])
        return ModelFolder(name, folder, "partial", size_bytes)
    if folder.name.startswith("."):
        return None
    if (voice := voice_name(folder.name)) is not None:
        return _voice_folder(voice, folder, size_bytes)
    name = short_name(folder.name)
    if (folder / "model.bin").is_file():
        return _model_folder(name, folder, size_bytes)
    if turn_detector_file(folder) is not None:
        return ModelFolder(name, folder, "endpoint", size_bytes, languages="for turn detection")
    if (folder / WEIGHTS_FILE).is_file():
        return ModelFolder(name, folder, "speaker", size_bytes, languages=FOR_SPEAKERS)
    if codec_name(folder) is not None:
        return ModelFolder(name, folder, "codec", size_bytes, languages="sound to codes and back")
    if find_speaker_file(folder) is not None:
        return _speaker_folder(folder, size_bytes)
    if holds_punctuation(folder):
        return _punctuation_folder(folder, size_bytes)
    if holds_sherpa(folder):
        return _sherpa_folder(folder, size_bytes)
    if files := model_files(folder):
        return _gguf_model(name, folder, files[0])
    if (kind := read_model_kind(folder)) is not None:
        return _text_model_folder(name, folder, kind, size_bytes)
    return ModelFolder(name, folder, "checkpoint", size_bytes) if holds_checkpoint(folder) else None


def _voice_folder(name: str, folder: Path, size_bytes: int) -> ModelFolder:
    missing = [file.name for file in files_of(folder) if not file.is_file()]
    if missing:
        problem = f"has no {', '.join(missing)}"
        return ModelFolder(name, folder, "broken", size_bytes, problem=problem)
    return ModelFolder(name, folder, "voice", size_bytes, languages="a voice")


def _model_folder(name: str, folder: Path, size_bytes: int) -> ModelFolder:
    missing = [file for file in WHISPER_FILES if not (folder / file).is_file()]
    if missing:
        problem = f"has no {', '.join(missing)}"
        return ModelFolder(name, folder, "broken", size_bytes, problem=problem)
    try:
        weights = read_weights_file(folder / "model.bin")
        config = msgspec.json.decode((folder / "config.json").read_bytes(), type=_WhisperConfig)
    except msgspec.DecodeError as error:
        return ModelFolder(
            name, folder, "broken", size_bytes, problem=f"has a bad config.json: {error}"
        )
    except (EarshotError, OSError) as error:
        return ModelFolder(name, folder, "broken", size_bytes, problem=str(error))
    if weights.spec != "WhisperSpec":
        problem = f"is a {weights.spec}, not a Whisper"
        return ModelFolder(name, folder, "broken", size_bytes, weights.weight_type, problem=problem)
    entry = find_entry(name)
    count = len(config.lang_ids)
    languages = entry.languages if entry else f"{count} languages" if count else "English"
    return ModelFolder(name, folder, "model", size_bytes, weights.weight_type, languages)


def _sherpa_folder(folder: Path, size_bytes: int) -> ModelFolder:
    name = f"{SCHEME}{folder.name.removeprefix(PREFIX)}"
    try:
        info = describe(Settings(model=str(folder)))
    except EarshotError as error:
        return ModelFolder(name, folder, "broken", size_bytes, problem=str(error))
    return ModelFolder(name, folder, "sherpa", size_bytes, languages=" ".join(info.languages))


def _speaker_folder(folder: Path, size_bytes: int) -> ModelFolder:
    name = f"{SCHEME}{folder.name}"
    try:
        read_speaker_file(folder)
    except EarshotError as error:
        return ModelFolder(name, folder, "broken", size_bytes, problem=str(error))
    return ModelFolder(name, folder, "speaker", size_bytes, languages=FOR_SPEAKERS)


def _punctuation_folder(folder: Path, size_bytes: int) -> ModelFolder:
    name = f"{SCHEME}{folder.name.removeprefix(PREFIX)}"
    try:
        read_punctuation_file(folder)
    except EarshotError as error:
        return ModelFolder(name, folder, "broken", size_bytes, problem=str(error))
    return ModelFolder(name, folder, "punctuation", size_bytes, languages="for punctuation")


def _text_model_folder(
    name: str, folder: Path, kind: TextModelKind, size_bytes: int
) -> ModelFolder:
    try:
        read_info(folder, kind)
    except EngineError as error:
        return ModelFolder(name, folder, "broken", size_bytes, problem=error.detail)
    return ModelFolder(name, folder, kind, size_bytes, languages=PURPOSES[kind])


def _gguf_model(name: str, path: Path, file: Path) -> ModelFolder:
    """Returns a language model. `file`: its only GGUF file, or the first of several."""
    paths = part_files(path) if path.is_file() else _files(path)
    size_bytes = sum(part.stat().st_size for part in paths if part.is_file())
    try:
        header = check_parts(file)
    except UnreadableGgufError as error:
        return ModelFolder(name, path, "broken", size_bytes, problem=str(error))
    return ModelFolder(name, path, "llm", size_bytes, header.weight_type, "a language model")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


# Each model's folder has a file `source.json` with the origin and checksums of the other files.

RECORD_FILE = "source.json"


class SourceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Origin and checksums of a model's files."""

    source: str
    "Repository on a hub, or the folder that was converted."
    revision: str = ""
    "Commit of the repository."
    quantization: str = ""
    "Number type chosen when it was converted here; empty if it was not."
    files: dict[str, str] = {}
    "Path within the folder -> sha256."


def write_record(folder: Path, record: SourceRecord) -> None:
    """Writes the record with the checksum of every file in the folder."""
    files = {
        path.relative_to(folder).as_posix(): sha256(path)
        for path in sorted(_files(folder))
        if path != folder / RECORD_FILE
    }
    complete_record = msgspec.structs.replace(record, files=files)
    data = msgspec.json.format(msgspec.json.encode(complete_record), indent=2)
    (folder / RECORD_FILE).write_bytes(data + b"\n")


def read_record(folder: Path) -> SourceRecord | None:
    """Reads the record of a folder; None if there is none. Raises ModelsError if it cannot be
    read."""
    path = folder / RECORD_FILE
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=SourceRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelsError(f"{path}: {error}") from error
