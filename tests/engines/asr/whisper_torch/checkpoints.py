"""Checkpoints in transformers' form: our nano, converted from CTranslate2's file, and random ones.

Needs torch, safetensors and transformers, which the tests' own environment lacks.
"""

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

from bench.gpu.random_models import tensors
from bench.measurements.material.whisper_tokens import LANGUAGES, whisper_tokens
from engines.asr.whisper_torch.checkpoint import ModelShape
from tests.engines.nano import NANO

Array = npt.NDArray[Any]

_TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)

LOUD = 5.0
"Spreads the random tokens' logits: timestamps outweigh words at some steps and not at others."

END_SEED, END_SIZE = 284, 7.8
"""The seed and size of the end token's embedding, with which answers end by themselves. With most
seeds all answers end at one position; with this one each of `proof_end_tokens.py`'s windows has
another."""

_RENAMED = (
    ("layer_", "layers."),
    ("layers.norm", "layer_norm"),
    ("/ffn/layers_norm", "/final_layer_norm"),
    ("/self_attention/layer_norm", "/self_attn_layer_norm"),
    ("/attention/layer_norm", "/encoder_attn_layer_norm"),
    ("/ffn/layer_norm", "/final_layer_norm"),
    ("/ffn/linear_0", "/fc1"),
    ("/ffn/linear_1", "/fc2"),
    ("/self_attention/linear_1", "/self_attn.out_proj"),
    ("/attention/linear_0", "/encoder_attn.q_proj"),
    ("/attention/linear_2", "/encoder_attn.out_proj"),
    ("embeddings/weight", "embed_tokens/weight"),
    ("position_encodings/encodings", "embed_positions/weight"),
    ("gamma", "weight"),
    ("beta", "bias"),
    ("/", "."),
)


def nano(folder: Path) -> Path:
    """Writes whisper-nano, which really transcribes."""
    tensors: dict[str, Array] = {}
    for name, values in _variables(NANO / "model.bin"):
        if values.ndim:
            tensors |= dict(_parts(name, values))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / "model.safetensors"
    )
    heads = json.loads((NANO / "config.json").read_bytes())["alignment_heads"]
    config: dict[str, Any] = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "num_mel_bins": 80,
        "d_model": 192,
        "encoder_layers": 4,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 768,
        "decoder_ffn_dim": 768,
        "vocab_size": 2069,
    }
    special: dict[str, Any] = {
        "decoder_start_token_id": 561,
        "eos_token_id": 560,
        "bos_token_id": 560,
        "pad_token_id": 560,
        "begin_suppress_tokens": [560],
        "suppress_tokens": [],
    }
    _write(folder, "config.json", config | special)
    more = {"no_timestamps_token_id": 567, "is_multilingual": False, "max_length": 448}
    more |= {"max_initial_timestamp_index": 50, "alignment_heads": heads}
    _write(folder, "generation_config.json", special | more)
    for name in ("tokenizer.json", "earshot.json"):
        shutil.copy(NANO / name, folder)
    return folder


def random(
    folder: Path,
    *,
    mels: int = 80,
    layers: int = 4,
    width: int = 384,
    ends: bool = False,
) -> Path:
    """Writes a multilingual Whisper of tiny's shape with random weights, whose text differs between
    clips and has words and timestamps. Answers end by themselves if `ends`, else at a limit."""
    tokens = whisper_tokens(Path("/nowhere"), mels == 128)
    codes = LANGUAGES.split()[: len(tokens.languages)]
    names = {word: number for number, word in enumerate(tokens.vocabulary)}
    config = WhisperConfig(
        vocab_size=len(tokens.vocabulary),
        num_mel_bins=mels,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        pad_token_id=tokens.end,
        bos_token_id=tokens.end,
        eos_token_id=tokens.end,
        decoder_start_token_id=tokens.end + 1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config).eval()
    shape = ModelShape(mels, width, layers, 6, layers, 6, config.vocab_size)
    weights = tensors(shape, "cpu", torch.float32)
    weights["decoder.embed_tokens.weight"] *= LOUD
    if ends:
        source = torch.Generator().manual_seed(END_SEED)
        end = torch.randn(width, generator=source)
        weights["decoder.embed_tokens.weight"][tokens.end] = END_SIZE * end / end.norm()
    model.model.load_state_dict(weights)
    model.generation_config = GenerationConfig(
        decoder_start_token_id=tokens.end + 1,
        eos_token_id=tokens.end,
        bos_token_id=tokens.end,
        pad_token_id=tokens.end,
        max_length=448,
        is_multilingual=True,
        lang_to_id={
            f"<|{code}|>": token for code, token in zip(codes, tokens.languages, strict=True)
        },
        task_to_id={task: names[f"<|{task}|>"] for task in ("translate", "transcribe")},
        no_timestamps_token_id=names["<|notimestamps|>"],
        max_initial_timestamp_index=50,
        suppress_tokens=[1, 2, 7, *range(tokens.end + 1, names["<|notimestamps|>"])],
        begin_suppress_tokens=[tokens.blank, tokens.end],
        prev_sot_token_id=names["<|startofprev|>"],
    )
    model.save_pretrained(folder)
    _write(folder, "tokenizer.json", tokens.tokenizer)
    return folder


def _parts(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Splits a matrix of CTranslate2 that holds several of transformers."""
    if name.endswith("num_heads") or name == "decoder/projection/weight":
        return
    for fused, parts, own in (
        ("/self_attention/linear_0/", "qkv", "self_attn"),
        ("/attention/linear_1/", "kv", "encoder_attn"),
    ):
        if fused in name:
            before, _, kind = name.partition(fused)
            for part, some in zip(parts, np.split(values, len(parts)), strict=True):
                if (part, kind) != ("k", "bias"):  # Whisper's keys have no bias
                    yield _renamed(f"{before}/{own}.{part}_proj/{kind}"), some
            return
    yield _renamed(name), values


def _renamed(name: str) -> str:
    for old, new in _RENAMED:
        name = name.replace(old, new)
    return f"model.{name}"


def _variables(file: Path) -> Iterator[tuple[str, Array]]:
    """Reads variables as `serving/placement/ct2_header.py` does."""
    with file.open("rb") as opened:
        _number(opened, "I")
        _text(opened)
        _number(opened, "I")
        for _ in range(_number(opened, "I")):
            name = _text(opened)
            shape = [_number(opened, "I") for _ in range(_number(opened, "B"))]
            kind = _TYPES[_number(opened, "B")]
            data = opened.read(_number(opened, "I"))
            yield name, np.frombuffer(data, kind).reshape(shape)


def _number(opened: BinaryIO, kind: str) -> int:
    value: int = struct.unpack(f"<{kind}", opened.read(struct.calcsize(f"<{kind}")))[0]
    return value


def _text(opened: BinaryIO) -> str:
    return opened.read(_number(opened, "H")).rstrip(b"\0").decode()


def _write(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
