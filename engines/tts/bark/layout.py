"""Ids and lengths of a Bark checkpoint, from its config.json and generation_config.json.

Text becomes semantic ids (50 per second), these become ids of the first two codebooks of EnCodec
(75 frames per second), and these become frames of eight codebooks.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from core.errors import EngineError, EngineMissing
from engines.tts.bark.settings import NAME

CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
TOKENIZER_FILE, WEIGHTS_FILE = "tokenizer.json", "model.safetensors"

COARSE_CODEBOOKS = 2
"Codebooks that the coarse stage writes in turn."

NumberT = TypeVar("NumberT", int, float)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a stage chooses its tokens."""

    temperature: float = 0.0
    "0: always the most likely token."
    top_k: int = 0
    "Number of most likely tokens to choose from; 0: all."


@dataclass(frozen=True, slots=True, kw_only=True)
class BarkLayout:
    """Ids and lengths of one checkpoint. The defaults are those of the published ones."""

    text_offset: int = 10_048
    "Offset of the text's ids: it is added to the ids of the tokenizer."
    text_pad: int = 129_595
    "Id that fills up a short text."
    semantic_infer: int = 129_599
    "Marker between the text and its semantic ids."
    semantic_ids: int = 10_000
    "Number of semantic ids, which begin at 0. Coarse ids come after them."
    semantic_stop: int = 10_000
    "End of the semantic ids. It also fills up a short speaker prompt."
    text_ids: int = 256
    "Places of the text, and of the speaker prompt that is added to it."
    max_semantic_ids: int = 768
    semantic_rate_hz: float = 49.9
    coarse_pad: int = 12_048
    "Id that fills up semantic ids which are fewer than `coarse_input_ids`."
    coarse_infer: int = 12_050
    "Marker between semantic and coarse ids."
    coarse_input_ids: int = 256
    "Semantic ids that the coarse stage sees at once."
    coarse_history_ids: int = 630
    "Coarse ids before a window that the coarse stage sees."
    coarse_window_ids: int = 60
    "Coarse ids that are written before the semantic ids move on."
    frame_rate_hz: float = 75.0
    "Frames per second of sound."
    fine_window_frames: int = 1024
    "Frames that the fine stage sees at once."
    fine_history_frames: int = 512
    """Largest number of frames of a speaker prompt before the first window. It is also the step
    between windows."""
    codebooks: int = 8
    "Codebooks of a whole frame."
    codebook_size: int = 1024
    semantic: Sampling = Sampling()
    coarse: Sampling = Sampling()
    fine: Sampling = Sampling()

    @property
    def coarse_per_semantic(self) -> float:
        """Number of coarse ids for one semantic id."""
        return self.frame_rate_hz / self.semantic_rate_hz * COARSE_CODEBOOKS

    @property
    def semantic_history_ids(self) -> int:
        """Semantic ids before a window that the coarse stage sees."""
        return int(self.coarse_history_ids / self.coarse_per_semantic)

    def coarse_ids_of(self, semantic_ids: int) -> int:
        """Returns how many coarse ids are made of `semantic_ids` semantic ids. They are whole
        frames."""
        frames = int(semantic_ids * self.coarse_per_semantic / COARSE_CODEBOOKS)
        return frames * COARSE_CODEBOOKS


def read_json(folder: Path, name: str) -> Mapping[str, Any]:
    """Returns a JSON object of the checkpoint. Raises EngineMissing if there is none."""
    try:
        found: object = json.loads((folder / name).read_text(encoding="utf-8"))
    except OSError as exc:
        raise EngineMissing("tts", NAME, f"no {name} in {folder}") from exc
    except ValueError as exc:
        raise EngineMissing("tts", NAME, f"{folder / name} is not JSON") from exc
    if not isinstance(found, dict):
        raise EngineMissing("tts", NAME, f"{folder / name} is no JSON object")
    return found


def read_layout(folder: Path) -> BarkLayout:
    """Reads and checks the layout. Raises EngineMissing for a missing file, EngineError for a model
    of another form."""
    for name in (TOKENIZER_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise EngineMissing("tts", NAME, f"no {name} in {folder}")
    config = read_json(folder, CONFIG_FILE)
    if (kind := config.get("model_type")) != NAME:
        raise EngineError("tts", NAME, f"{folder} holds a model of type {kind!r}, not {NAME!r}")
    layout = layout_of(read_json(folder, GENERATION_FILE))
    if problem := misfit(layout, config):
        raise EngineError("tts", NAME, f"{folder}: {problem}")
    return layout


def layout_of(generation: Mapping[str, Any]) -> BarkLayout:
    """Returns the layout of a generation_config.json. What is not there has the published value."""
    usual = BarkLayout()
    semantic = _table(generation, "semantic_config")
    coarse = _table(generation, "coarse_acoustics_config")
    fine = _table(generation, "fine_acoustics_config")
    return BarkLayout(
        text_offset=_number(semantic, "text_encoding_offset", usual.text_offset),
        text_pad=_number(semantic, "text_pad_token", usual.text_pad),
        semantic_infer=_number(semantic, "semantic_infer_token", usual.semantic_infer),
        semantic_ids=_number(semantic, "semantic_vocab_size", usual.semantic_ids),
        semantic_stop=_number(semantic, "eos_token_id", usual.semantic_stop),
        text_ids=_number(semantic, "max_input_semantic_length", usual.text_ids),
        max_semantic_ids=_number(semantic, "max_new_tokens", usual.max_semantic_ids),
        semantic_rate_hz=_number(semantic, "semantic_rate_hz", usual.semantic_rate_hz),
        coarse_pad=_number(coarse, "coarse_semantic_pad_token", usual.coarse_pad),
        coarse_infer=_number(coarse, "coarse_infer_token", usual.coarse_infer),
        coarse_input_ids=_number(coarse, "max_coarse_input_length", usual.coarse_input_ids),
        coarse_history_ids=_number(coarse, "max_coarse_history", usual.coarse_history_ids),
        coarse_window_ids=_number(coarse, "sliding_window_len", usual.coarse_window_ids),
        frame_rate_hz=_number(coarse, "coarse_rate_hz", usual.frame_rate_hz),
        fine_window_frames=_number(fine, "max_fine_input_length", usual.fine_window_frames),
        fine_history_frames=_number(fine, "max_fine_history_length", usual.fine_history_frames),
        codebooks=_number(fine, "n_fine_codebooks", usual.codebooks),
        codebook_size=_number(generation, "codebook_size", usual.codebook_size),
        semantic=_sampling(semantic),
        coarse=_sampling(coarse),
        # The fine stage samples only if its temperature is not 1, whatever `do_sample` says.
        fine=Sampling(0.0 if (warmth := _number(fine, "temperature", 1.0)) == 1 else warmth),
    )


def misfit(layout: BarkLayout, config: Mapping[str, Any]) -> str:
    """Returns why the networks of a config.json cannot have this layout; "" if they can."""
    semantic = _table(config, "semantic_config")
    coarse = _table(config, "coarse_acoustics_config")
    fine = _table(config, "fine_acoustics_config")
    coarse_end = layout.semantic_ids + COARSE_CODEBOOKS * layout.codebook_size
    coarse_places = layout.coarse_input_ids + layout.coarse_history_ids + layout.coarse_window_ids
    # The last id of a sequence is never read, so the marker between the parts takes its place.
    least = (
        ("semantic_config", semantic, "block_size", layout.text_ids + layout.max_semantic_ids),
        ("semantic_config", semantic, "input_vocab_size", layout.semantic_infer + 1),
        ("semantic_config", semantic, "output_vocab_size", layout.semantic_stop + 1),
        ("coarse_acoustics_config", coarse, "block_size", coarse_places),
        ("coarse_acoustics_config", coarse, "input_vocab_size", layout.coarse_infer + 1),
        ("coarse_acoustics_config", coarse, "output_vocab_size", coarse_end),
        ("fine_acoustics_config", fine, "block_size", layout.fine_window_frames),
        ("fine_acoustics_config", fine, "input_vocab_size", layout.codebook_size + 1),
        ("fine_acoustics_config", fine, "output_vocab_size", layout.codebook_size),
        ("fine_acoustics_config", fine, "n_codes_total", layout.codebooks),
    )
    usual = {"block_size": 1024, "n_codes_total": 8}
    for part, table, name, needed in least:
        found = _number(table, name, usual.get(name, 10_048))
        if found < needed:
            return f"{CONFIG_FILE}: {part}.{name} is {found}; needed: {needed} or more"
    if layout.coarse_window_ids % COARSE_CODEBOOKS or layout.coarse_history_ids % COARSE_CODEBOOKS:
        return f"{GENERATION_FILE}: windows of coarse ids are not whole frames"
    codec = _number(_table(config, "codec_config"), "codebook_size", 1024)
    if codec != layout.codebook_size:
        return f"the codec has {codec} codes in a codebook, not {layout.codebook_size}"
    return ""


def _sampling(table: Mapping[str, Any]) -> Sampling:
    if not table.get("do_sample"):
        return Sampling()
    # 50 is the value of transformers where a checkpoint says nothing.
    return Sampling(_number(table, "temperature", 1.0), _number(table, "top_k", 50))


def _table(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _number(table: Mapping[str, Any], name: str, usual: NumberT) -> NumberT:
    """Returns a number of a table. Raises EngineError if the value is something else."""
    found = table.get(name)
    if found is None:
        return usual
    allowed = int if isinstance(usual, int) else (int, float)
    if isinstance(found, bool) or not isinstance(found, allowed) or found < 0:
        raise EngineError("tts", NAME, f"{name} is {found!r}; allowed: a number of 0 or more")
    return type(usual)(found)
