"""Settings of the engine `indri`, and the files that it needs."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from core.errors import ConfigError, EngineMissing
from engines.base import Gender

PUBLISHED: Mapping[str, Gender] = {
    "spkr_67": "male",
    "spkr_63": "male",
    "spkr_74": "male",
    "spkr_76": "male",
    "spkr_53": "female",
    "spkr_60": "female",
    "spkr_62": "male",
    "spkr_66": "male",
    "spkr_68": "male",
    "spkr_69": "male",
    "spkr_70": "male",
    "spkr_75": "male",
    "spkr_77": "male",
}
"Gender of the thirteen voices that the makers of Indri 0.1 recommend, the default first."


def choose_voices(speakers: Collection[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the voices, the default first. `speakers`: those of the checkpoint;
    `wanted`: those of the settings. Raises ConfigError for a speaker that does not exist."""
    for name in wanted:
        if name not in speakers:
            known = ", ".join(speakers)
            raise ConfigError(f"tts.options.voices: no speaker {name!r}; there are: {known}")
    published = tuple(name for name in PUBLISHED if name in speakers)
    return tuple(wanted) or published or tuple(speakers)


NAME = "indri"
CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE = "config.json", "tokenizer.json", "model.safetensors"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `indri`."""

    path: Annotated[str, Meta(min_length=1)]
    "Folder of the language model: config.json, tokenizer.json and model.safetensors."
    codec: Annotated[str, Meta(min_length=1)]
    "Folder of Mimi, the audio codec: config.json and model.safetensors."
    device: Annotated[str, Meta(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    "Number type of the language model."
    threads: Annotated[int, Meta(ge=0, le=256)] = 0
    "Threads on a processor; 0: torch decides."
    slots: Annotated[int, Meta(ge=1, le=64)] = 4
    """Clauses that are spoken at the same time; further ones wait. A slot of the 124 M model takes
    75 MB in float32."""
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.5
    "Sampling temperature; 0: always the most likely code."
    top_k: Annotated[int, Meta(ge=0, le=2048)] = 15
    "Number of most likely codes to choose from; 0: all."
    max_ids: Annotated[int, Meta(ge=8, le=8192)] = 1024
    "Most codes of one clause. A hundred are one second."
    languages: Annotated[tuple[str, ...], Meta(min_length=1)] = ("en", "hi")
    "ISO 639-1 codes of the languages that the checkpoint speaks."
    voices: tuple[str, ...] = ()
    """Names of the voices, such as `spkr_63`; the first is the default. (): the published ones that
    the checkpoint has, or all its speakers if it has none of them."""
    load_timeout_s: Annotated[float, Meta(gt=0)] = 600.0
    first_audio_timeout_s: Annotated[float, Meta(gt=0)] = 120.0
    "Longest wait for the first sound of a clause, the wait for a slot included."
    audio_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    "Longest wait between two parts of the sound. A slower process counts as hung."

    @property
    def folder(self) -> Path:
        """Folder of the language model."""
        return Path(self.path).expanduser()


def read_vocabulary(folder: Path) -> int:
    """Returns the number of ids of the language model. Raises EngineMissing if a file is missing,
    or if config.json has no such number."""
    for name in (CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise EngineMissing("tts", NAME, f"no {name} in {folder}")
    try:
        config: object = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except ValueError as exc:
        raise EngineMissing("tts", NAME, f"{folder / CONFIG_FILE} is not JSON") from exc
    size = config.get("vocab_size") if isinstance(config, dict) else None
    if not isinstance(size, int):
        raise EngineMissing("tts", NAME, f"{folder / CONFIG_FILE} has no number `vocab_size`")
    return size
