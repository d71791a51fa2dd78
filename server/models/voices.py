"""Voices that can be pulled by name, and their files in the models folder. Piper's voices are one
repository with a folder for each voice. Kokoro is one model with all its voices, in the format of
`kokoro-onnx`. Hibari's package has one voice; its other voices are one file each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from server.models.errors import ModelsError

PIPER, KOKORO, HIBARI = "piper", "kokoro", "hibari"

PIPER_REPOSITORY = "rhasspy/piper-voices"
KOKORO_REPOSITORY = "fastrtc/kokoro-onnx"
KOKORO_FILES = ("kokoro-v1.0.onnx", "voices-v1.0.bin")
HIBARI_REPOSITORY = "maureesewilliams/hibari"
HIBARI_FILES: Mapping[str, str] = {
    "emma": "bf_emma.int8.onnx",
    "fable": "bm_fable.int8.onnx",
    "fenrir": "am_fenrir_v2.int8.onnx",
    "kore": "af_kore.int8.onnx",
}
"Voice of hibari -> its file. The package finds the voice by the name of the file."

PIPER_NAME = re.compile(r"(([a-z]{2,3})_[A-Z]{2})-([A-Za-z0-9_]+)-(x_low|low|medium|high)")
"Pattern of `en_US-lessac-medium`: language and country, speaker, quality."

PIPER_PREFIX = f"{PIPER}:"
"Prefix of a Piper voice's name in `earshot models pull`."
_PIPER_FOLDER = f"{PIPER}--"
"Prefix of a Piper voice's folder."
HIBARI_PREFIX, _HIBARI_FOLDER = f"{HIBARI}:", f"{HIBARI}--"
"Prefixes of the name and of the folder of a voice of hibari."


@dataclass(frozen=True, slots=True)
class VoiceSource:
    """Files to fetch from a repository, and the name of their folder."""

    repository: str
    folder: str
    "Name of the folder in the models directory."
    paths: tuple[str, ...]
    "Paths of the files within the repository."


def voice_of(identifier: str) -> VoiceSource | None:
    """Parses `piper:en_US-lessac-medium`, `hibari:emma` or `kokoro`; None if it names no voice.
    Raises ModelsError."""
    if identifier == KOKORO:
        return VoiceSource(KOKORO_REPOSITORY, KOKORO, KOKORO_FILES)
    if identifier.startswith(HIBARI_PREFIX):
        return _hibari_source(identifier.removeprefix(HIBARI_PREFIX))
    if not identifier.startswith(PIPER_PREFIX):
        return None
    name = identifier.removeprefix(PIPER_PREFIX)
    parts = PIPER_NAME.fullmatch(name)
    if parts is None:
        raise ModelsError(
            f"{identifier} is not the name of a Piper voice; a name looks like"
            f" {PIPER_PREFIX}en_US-lessac-medium"
            " (language_COUNTRY-speaker-quality; x_low, low, medium or high)"
        )
    code, language, speaker, quality = parts.groups()
    file = f"{language}/{code}/{speaker}/{quality}/{name}.onnx"
    return VoiceSource(PIPER_REPOSITORY, f"{_PIPER_FOLDER}{name}", (file, f"{file}.json"))


def voice_name(folder: str) -> str | None:
    """Returns the name by which the voice in a folder is pulled; None if the folder's name is not
    that of a voice. `folder`: name of the folder."""
    if folder == KOKORO:
        return KOKORO
    if folder.removeprefix(_HIBARI_FOLDER) in HIBARI_FILES:
        return HIBARI_PREFIX + folder.removeprefix(_HIBARI_FOLDER)
    is_piper = folder.startswith(_PIPER_FOLDER) and PIPER_NAME.fullmatch(
        folder.removeprefix(_PIPER_FOLDER)
    )
    return PIPER_PREFIX + folder.removeprefix(_PIPER_FOLDER) if is_piper else None


def files_of(folder: Path) -> tuple[Path, ...]:
    """Returns the paths of a voice's files, existing or not; the model first."""
    if folder.name == KOKORO:
        return tuple(folder / name for name in KOKORO_FILES)
    if file := HIBARI_FILES.get(folder.name.removeprefix(_HIBARI_FOLDER)):
        return (folder / file,)
    model = folder / f"{folder.name.removeprefix(_PIPER_FOLDER)}.onnx"
    return model, Path(f"{model}.json")


def is_voice(folder: Path) -> bool:
    """Returns True if the folder holds a complete voice that was pulled."""
    return voice_name(folder.name) is not None and all(file.is_file() for file in files_of(folder))


def with_pulled(
    engine: str, options: Mapping[str, object], models_dir: Path
) -> Mapping[str, object]:
    """Adds the paths of pulled weights to an engine's options, if they are named or left out.
    Raises ConfigError for the name of a voice that was not pulled."""
    if engine == KOKORO:
        folder = models_dir / KOKORO
        if options.get("model") or options.get("voices") or not is_voice(folder):
            return options
        model, voices = files_of(folder)
        return {**options, "model": str(model), "voices": str(voices)}
    if engine == HIBARI:
        files = [
            str(files_of(folder_)[0]) for folder_ in _pulled_folders(models_dir, _HIBARI_FOLDER)
        ]
        return options if "models" in options or not files else {**options, "models": files}
    if engine != PIPER:
        return options
    name = str(options.get("model", ""))
    if name:
        return {**options, "model": str(_piper_file(name, models_dir))}
    pulled = _pulled_folders(models_dir)
    return {**options, "model": str(files_of(pulled[0])[0])} if len(pulled) == 1 else options


def config_lines(folder: Path) -> str:
    """Returns the lines of configuration that select a pulled voice."""
    if folder.name == KOKORO:
        return f'[tts]\nengine = "{KOKORO}"'
    if (name := folder.name.removeprefix(_HIBARI_FOLDER)) in HIBARI_FILES:
        return f'[tts]\nengine = "{HIBARI}"\n\n[assistant]\nvoice = "{name}"'
    name = folder.name.removeprefix(_PIPER_FOLDER)
    return f'[tts]\nengine = "{PIPER}"\noptions = {{ model = "{name}" }}'


def _piper_file(model: str, models_dir: Path) -> Path:
    """Returns the file of a named voice; a path is returned as it is."""
    name = model.removeprefix(PIPER_PREFIX)
    if not PIPER_NAME.fullmatch(name) or Path(model).expanduser().exists():
        return Path(model)
    folder = models_dir / f"{_PIPER_FOLDER}{name}"
    if not is_voice(folder):
        available = (
            ", ".join(
                voice_folder.name.removeprefix(_PIPER_FOLDER)
                for voice_folder in _pulled_folders(models_dir)
            )
            or "none"
        )
        raise ConfigError(
            f"tts.options.model: no voice {name!r} in {models_dir}; there are: {available};"
            f" `earshot models pull {PIPER_PREFIX}{name}` fetches it"
        )
    return files_of(folder)[0]


def _hibari_source(name: str) -> VoiceSource:
    if name not in HIBARI_FILES:
        raise ModelsError(
            f"{name[:64]!r} is no voice of hibari to pull; there are: {', '.join(HIBARI_FILES)}"
        )
    path = f"voices/{HIBARI_FILES[name]}"
    return VoiceSource(HIBARI_REPOSITORY, f"{_HIBARI_FOLDER}{name}", (path,))


def _pulled_folders(models_dir: Path, prefix: str = _PIPER_FOLDER) -> list[Path]:
    """Lists the folders of an engine's pulled voices."""
    return [folder for folder in sorted(models_dir.glob(f"{prefix}*")) if is_voice(folder)]
