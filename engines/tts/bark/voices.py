"""Speaker prompts of a checkpoint: tokens of a recording, after which the model goes on in its
voice."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from core.errors import ConfigError, EngineError, EngineMissing
from engines.tts.bark.layout import COARSE_CODEBOOKS, BarkLayout, read_json
from engines.tts.bark.settings import NAME

TABLE_FILE = "speaker_embeddings_path.json"
"Table of the prompts in separate arrays, as transformers' processor writes it."

PROMPTS_FOLDER = "speaker_embeddings"
"Folder of the prompts, among them those in one .npz file each."

PARTS = ("semantic_prompt", "coarse_prompt", "fine_prompt")

NO_PROMPT = "default"
"Name of the voice without a prompt: every clause may sound like another person."

NEWEST = "v2_"
"Start of the names of the newer prompts, which are the better ones."

Tokens: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SpeakerPrompt:
    """Tokens of one recording, in all three forms."""

    semantic: Tokens
    "Shape (ids,)."
    coarse: Tokens
    "Codes of the first codebooks, shape (COARSE_CODEBOOKS, frames)."
    fine: Tokens
    "Codes of all codebooks, shape (codebooks, frames)."


def read_prompts(folder: Path, layout: BarkLayout) -> dict[str, SpeakerPrompt]:
    """Returns the prompts of a checkpoint by name. Raises EngineMissing for a file that is missing
    or no array, EngineError for tokens that the checkpoint does not have."""
    return {name: checked(name, arrays, layout) for name, arrays in _arrays(folder)}


def checked(name: str, arrays: Mapping[str, Any], layout: BarkLayout) -> SpeakerPrompt:
    """Returns a prompt of these arrays. Raises EngineError if they are not those of a prompt."""
    shapes = {
        "semantic_prompt": (None, layout.semantic_ids),
        "coarse_prompt": (COARSE_CODEBOOKS, layout.codebook_size),
        "fine_prompt": (layout.codebooks, layout.codebook_size),
    }
    found = []
    for part, (rows, codes) in shapes.items():
        tokens = np.asarray(arrays[part]) if part in arrays else np.zeros(0)
        is_whole = np.issubdtype(tokens.dtype, np.integer)
        is_shaped = tokens.ndim == 1 if rows is None else tokens.ndim == 2 and len(tokens) == rows
        if not (is_whole and is_shaped and tokens.size):
            shape = "(ids,)" if rows is None else f"({rows}, frames)"
            why = f"{part} has the shape {tokens.shape}; allowed: {shape}, whole numbers"
            raise EngineError("tts", NAME, f"speaker prompt {name}: {why}")
        if not 0 <= tokens.min() <= tokens.max() < codes:
            why = f"{part} has a token outside 0 to {codes - 1}"
            raise EngineError("tts", NAME, f"speaker prompt {name}: {why}")
        found.append(tokens.astype(np.int64))
    return SpeakerPrompt(*found)


def voices_by_language(
    prompts: Mapping[str, SpeakerPrompt], languages: Sequence[str], wanted: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Returns the names of the voices by language, the default first. A prompt's language is in its
    name; a language without prompts has the voice NO_PROMPT. `wanted`: names in the settings.
    Raises ConfigError for a prompt that does not exist."""
    for name in wanted:
        if name not in prompts:
            known = ", ".join(prompts) or "none"
            raise ConfigError(f"tts.options.voices: no speaker prompt {name!r}; there are: {known}")
    names = list(wanted) or sorted(prompts, key=lambda name: not name.startswith(NEWEST))
    found = {}
    for language in languages:
        own = [n for n in names if n.removeprefix(NEWEST).startswith(f"{language}_")]
        found[language] = tuple(own) or (NO_PROMPT,)
    return found


def _arrays(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the name and the arrays of each prompt."""
    if (folder / TABLE_FILE).is_file():
        for name, files in read_json(folder, TABLE_FILE).items():
            # Beside the prompts, the table has the name of the repository.
            if isinstance(files, dict):
                arrays = {
                    part: _load(_inside(folder, str(files[part])))
                    for part in PARTS
                    if part in files
                }
                yield _voice_name(name), arrays
    prompts = folder / PROMPTS_FOLDER
    for path in sorted(prompts.rglob("*.npz")):
        yield _voice_name(str(path.relative_to(prompts).with_suffix(""))), _load(path)


def _voice_name(name: str) -> str:
    """Returns the name of a prompt as a voice: `v2/en_speaker_6` becomes `v2_en_speaker_6`."""
    return name.replace(os.sep, "/").replace("/", "_")


def _inside(folder: Path, name: str) -> Path:
    path = Path(os.path.normpath(folder / name))
    if not path.is_relative_to(Path(os.path.normpath(folder))):
        raise EngineError("tts", NAME, f"{TABLE_FILE}: {name} is outside the folder")
    return path


def _load(path: Path) -> Any:
    """Returns an array, or the arrays of an .npz file by name."""
    try:
        found = np.load(path, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else dict(found)
    except (OSError, ValueError, BadZipFile) as exc:
        raise EngineMissing("tts", NAME, f"no array in {path}: {exc}") from exc
