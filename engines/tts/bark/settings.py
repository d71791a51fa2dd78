"""Settings of the engine `bark`."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

NAME = "bark"

LANGUAGES = ("en", "de", "es", "fr", "hi", "it", "ja", "ko", "pl", "pt", "ru", "tr", "zh")
"ISO 639-1 codes of the languages that the published checkpoints speak."


class StageSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the pool of one stage."""

    device: Annotated[str, Meta(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    batch: Annotated[int, Meta(ge=1, le=64)] = 4
    "Clauses that one worker computes together; further ones wait."
    workers: Annotated[int, Meta(ge=1, le=16)] = 1
    "Number of threads that compute batches at the same time. They share the weights."


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `bark`."""

    path: Annotated[str, Meta(min_length=1)]
    "Folder of the checkpoint, as transformers writes a `BarkModel`, with tokenizer.json."
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    "Number type of the three token models. The codec computes in float32."
    threads: Annotated[int, Meta(ge=0, le=256)] = 0
    "Threads on a processor of each computation; 0: torch decides."
    semantic: StageSettings = StageSettings()
    coarse: StageSettings = StageSettings()
    fine: StageSettings = StageSettings()
    codec: StageSettings = StageSettings()
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    "Sampling temperature of all stages; 0: the most likely token; None: the checkpoint's values."
    min_stop_chance: Annotated[float, Meta(gt=0, le=1)] = 0.2
    "Probability of the end of speech above which a clause ends; 1: only where sampling ends it."
    max_semantic_ids: Annotated[int, Meta(ge=1, le=768)] = 768
    "Most semantic tokens of one clause. Fifty are a second."
    languages: Annotated[tuple[str, ...], Meta(min_length=1)] = LANGUAGES
    "ISO 639-1 codes of the languages that the checkpoint speaks."
    voices: tuple[str, ...] = ()
    "Names of the speaker prompts to offer, the preferred ones first; (): all of the folder."
    load_timeout_s: Annotated[float, Meta(gt=0)] = 600.0
    first_audio_timeout_s: Annotated[float, Meta(gt=0)] = 300.0
    """Longest time without a message of the process before the sound of a clause, which comes in
    one piece. A clause of 10 s takes minutes on a small machine."""
    audio_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    "Longest wait between two parts of the sound of one clause."

    @property
    def folder(self) -> Path:
        """Folder of the checkpoint."""
        return Path(self.path).expanduser()
