"""Reads facts from a Hugging Face checkpoint: sizes, special tokens, alignment heads."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer.json"

FIRST_TIMESTAMPS = 50
"Latest first timestamp, in steps of 20 ms: 1 s."

_ENGLISH_END_TOKEN = 50_256
"End token of OpenAI's English-only models."


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of one model."""

    mels: int
    width: int
    encoder_layers: int
    encoder_heads: int
    decoder_layers: int
    decoder_heads: int
    vocabulary: int
    audio_positions: int = 1500
    "Positions of the encoder's output: half the mel frames of the longest window."
    text_positions: int = 448
    "Positions of the decoder: prompt and answer together."

    @property
    def head_width(self) -> int:
        """Width of one attention head of the decoder."""
        return self.width // self.decoder_heads


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Special tokens of a model, and its alignment heads."""

    start: int
    end: int
    no_timestamps: int
    no_speech: int | None
    suppressed: tuple[int, ...] = ()
    "Tokens that are never written."
    suppressed_first: tuple[int, ...] = ()
    "Tokens that are never written first."
    first_timestamps: int | None = FIRST_TIMESTAMPS
    "Latest first timestamp, in steps of 20 ms; None: no limit."
    languages: tuple[int, ...] = ()
    "Tokens of the languages; empty for English-only models."
    alignment_heads: tuple[tuple[int, int], ...] = ()
    "(layer, head) of the decoder's heads whose attention follows the audio in time."

    @property
    def timestamps(self) -> int:
        """Token of the timestamp 0.00 s; all larger ids are timestamps."""
        return self.no_timestamps + 1


def read_shape(folder: Path) -> ModelShape:
    """Returns the sizes of a checkpoint.

    Raises ConfigError if the folder has no Whisper checkpoint of transformers.
    """
    config = _read_json(folder / CONFIG)
    if config.get("model_type") != "whisper":
        raise ConfigError(f"{folder / CONFIG}: model_type is not whisper")
    if config.get("activation_function", "gelu") != "gelu" or config.get("scale_embedding"):
        raise ConfigError(
            f"{folder / CONFIG}: only models with gelu and without scaled embeddings are supported"
        )
    try:
        return ModelShape(
            mels=config["num_mel_bins"],
            width=config["d_model"],
            encoder_layers=config["encoder_layers"],
            encoder_heads=config["encoder_attention_heads"],
            decoder_layers=config["decoder_layers"],
            decoder_heads=config["decoder_attention_heads"],
            vocabulary=config["vocab_size"],
            audio_positions=config.get("max_source_positions", 1500),
            text_positions=config.get("max_target_positions", 448),
        )
    except KeyError as exc:
        raise ConfigError(f"{folder / CONFIG} has no field {exc}") from exc


def read_special(folder: Path, shape: ModelShape) -> SpecialTokens:
    """Returns the special tokens from the generation config, in old checkpoints from the config.

    Raises ConfigError if no file names the token `<|notimestamps|>`.
    """
    config = {**_read_json(folder / CONFIG)}
    if (folder / GENERATION).is_file():
        config |= {k: v for k, v in _read_json(folder / GENERATION).items() if v is not None}
    no_timestamps = config.get("no_timestamps_token_id")
    if no_timestamps is None:
        no_timestamps = _added_tokens(folder).get("<|notimestamps|>")
    if no_timestamps is None:
        raise ConfigError(
            f"{folder}: {GENERATION} has no no_timestamps_token_id, and {TOKENIZER} has no token "
            "<|notimestamps|>"
        )
    languages: Mapping[str, int] = config.get("lang_to_id") or {}
    return SpecialTokens(
        start=config.get("decoder_start_token_id", 50258),
        end=_first_of(config.get("eos_token_id", 50257)),
        no_timestamps=no_timestamps,
        no_speech=no_timestamps - 1,
        suppressed=tuple(config.get("suppress_tokens") or ()),
        suppressed_first=tuple(config.get("begin_suppress_tokens") or ()),
        first_timestamps=config.get("max_initial_timestamp_index"),
        languages=tuple(languages.values()) or _languages(folder),
        alignment_heads=_heads(shape, config.get("alignment_heads") or ()),
    )


def _heads(shape: ModelShape, listed: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Returns the listed alignment heads that exist.

    Distilled checkpoints list those of their teacher, whose decoder has more layers.
    """
    layers, heads = range(shape.decoder_layers), range(shape.decoder_heads)
    found = [(layer, head) for layer, head in listed if layer in layers and head in heads]
    return tuple(found or _later_half(shape))


def _later_half(shape: ModelShape) -> Sequence[tuple[int, int]]:
    """Returns all heads of the later half of the layers.

    OpenAI's own code takes them if nobody measured which heads follow the audio.
    """
    layers = range(shape.decoder_layers // 2, shape.decoder_layers)
    return [(layer, head) for layer in layers for head in range(shape.decoder_heads)]


def _languages(folder: Path) -> tuple[int, ...]:
    """Returns the tokens between the start of a transcript and the tasks, which are the languages.

    English-only models list them too, but have none. The function repeats
    `whisper.model_info.languages_of`, which needs msgspec.
    """
    tokens = _added_tokens(folder)
    tasks = [tokens[name] for name in ("<|transcribe|>", "<|translate|>") if name in tokens]
    start = tokens.get("<|startoftranscript|>")
    if start is None or not tasks or tokens.get("<|endoftext|>") == _ENGLISH_END_TOKEN:
        return ()
    return tuple(sorted(number for number in tokens.values() if start < number < min(tasks)))


def _added_tokens(folder: Path) -> Mapping[str, int]:
    """Returns the tokenizer's special tokens: text -> id. Empty without a tokenizer."""
    if not (folder / TOKENIZER).is_file():
        return {}
    added = _read_json(folder / TOKENIZER).get("added_tokens", ())
    return {token["content"]: int(token["id"]) for token in added}


def _first_of(value: int | Sequence[int]) -> int:
    return value if isinstance(value, int) else value[0]


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{file} cannot be read: {exc}") from exc
    if not isinstance(found, dict):
        raise ConfigError(f"{file} does not contain a JSON object")
    return found
