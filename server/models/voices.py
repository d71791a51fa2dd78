"""Voices that can be pulled by name, and their files in the models folder. Piper's voices are one
repository with a folder for each voice. Kokoro is one model with all its voices, in the format of
`kokoro-onnx`. Hibari's package has one voice; its other voices are one file each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

PREFIX = f"{PIPER}:"
"Prefix of a Piper voice's name in `earshot models pull`."
_FOLDER = f"{PIPER}--"
"Prefix of a Piper voice's folder."
HIBARI_PREFIX, _HIBARI_FOLDER = f"{HIBARI}:", f"{HIBARI}--"
"The same for hibari's voices."


@dataclass(frozen=True, slots=True)
class VoiceSource:
    """Files to fetch from a repository, and the name of their folder."""

    repository: str
    folder: str
    paths: tuple[str, ...]


def voice_of(wanted: str) -> VoiceSource | None:
    """Parses `piper:en_US-lessac-medium`, `hibari:emma` or `kokoro`; None if it names no voice.
    Raises ModelsError."""
    if wanted == KOKORO:
        return VoiceSource(KOKORO_REPOSITORY, KOKORO, KOKORO_FILES)
    if wanted.startswith(HIBARI_PREFIX):
        return _hibari(wanted.removeprefix(HIBARI_PREFIX))
    if not wanted.startswith(PREFIX):
        return None
    name = wanted.removeprefix(PREFIX)
    parts = PIPER_NAME.fullmatch(name)
    if parts is None:
        raise ModelsError(
            f"{wanted} is not the name of a Piper voice; a name looks like"
            f" {PREFIX}en_US-lessac-medium"
            " (language_COUNTRY-speaker-quality; x_low, low, medium or high)"
        )
    code, language, speaker, quality = parts.groups()
    file = f"{language}/{code}/{speaker}/{quality}/{name}.onnx"
    return VoiceSource(PIPER_REPOSITORY, f"{_FOLDER}{name}", (file, f"{file}.json"))


def name_of(folder: str) -> str | None:
    """Returns the name under which a folder's voice is pulled; None if it holds no voice."""
    if folder == KOKORO:
        return KOKORO
    if folder.removeprefix(_HIBARI_FOLDER) in HIBARI_FILES:
        return HIBARI_PREFIX + folder.removeprefix(_HIBARI_FOLDER)
    is_piper = folder.startswith(_FOLDER) and PIPER_NAME.fullmatch(folder.removeprefix(_FOLDER))
    return PREFIX + folder.removeprefix(_FOLDER) if is_piper else None


def files_of(folder: Path) -> tuple[Path, ...]:
    """Returns the paths of a voice's files, existing or not; the model first."""
    if folder.name == KOKORO:
        return tuple(folder / name for name in KOKORO_FILES)
    if file := HIBARI_FILES.get(folder.name.removeprefix(_HIBARI_FOLDER)):
        return (folder / file,)
    model = folder / f"{folder.name.removeprefix(_FOLDER)}.onnx"
    return model, Path(f"{model}.json")


def is_voice(folder: Path) -> bool:
    """Returns True if the folder is that of a pulled voice and is complete."""
    return name_of(folder.name) is not None and all(file.is_file() for file in files_of(folder))


def with_pulled(engine: str, options: Mapping[str, Any], models_dir: Path) -> Mapping[str, Any]:
    """Adds the paths of pulled weights to an engine's options, if they are named or left out.
    Raises ConfigError for the name of a voice that was not pulled."""
    if engine == KOKORO:
        folder = models_dir / KOKORO
        if options.get("model") or options.get("voices") or not is_voice(folder):
            return options
        model, voices = files_of(folder)
        return {**options, "model": str(model), "voices": str(voices)}
    if engine == HIBARI:
        found = [str(files_of(one)[0]) for one in _pulled(models_dir, _HIBARI_FOLDER)]
        return options if "models" in options or not found else {**options, "models": found}
    if engine != PIPER:
        return options
    name = str(options.get("model", ""))
    if name:
        return {**options, "model": str(_piper(name, models_dir))}
    pulled = _pulled(models_dir)
    return {**options, "model": str(files_of(pulled[0])[0])} if len(pulled) == 1 else options


def setting(folder: Path) -> str:
    """Returns the lines of configuration that select a pulled voice."""
    if folder.name == KOKORO:
        return f'[tts]\nengine = "{KOKORO}"'
    if (name := folder.name.removeprefix(_HIBARI_FOLDER)) in HIBARI_FILES:
        return f'[tts]\nengine = "{HIBARI}"\n\n[assistant]\nvoice = "{name}"'
    name = folder.name.removeprefix(_FOLDER)
    return f'[tts]\nengine = "{PIPER}"\noptions = {{ model = "{name}" }}'


def _piper(model: str, models_dir: Path) -> Path:
    """Returns the file of a named voice; a path is returned as it is."""
    name = model.removeprefix(PREFIX)
    if not PIPER_NAME.fullmatch(name) or Path(model).expanduser().exists():
        return Path(model)
    folder = models_dir / f"{_FOLDER}{name}"
    if not is_voice(folder):
        there = ", ".join(one.name.removeprefix(_FOLDER) for one in _pulled(models_dir)) or "none"
        raise ConfigError(
            f"tts.options.model: no voice {name!r} in {models_dir}; there are: {there};"
            f" `earshot models pull {PREFIX}{name}` fetches it"
        )
    return files_of(folder)[0]


def _hibari(name: str) -> VoiceSource:
    if name not in HIBARI_FILES:
        raise ModelsError(
            f"{name[:64]!r} is no voice of hibari to pull; there are: {', '.join(HIBARI_FILES)}"
        )
    path = f"voices/{HIBARI_FILES[name]}"
    return VoiceSource(HIBARI_REPOSITORY, f"{_HIBARI_FOLDER}{name}", (path,))


def _pulled(models_dir: Path, prefix: str = _FOLDER) -> list[Path]:
    """Lists the folders of an engine's pulled voices."""
    return [one for one in sorted(models_dir.glob(f"{prefix}*")) if is_voice(one)]
