"""A tiny checkpoint of Bark's form, with random weights: it speaks noise."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engines.tts.bark.layout import BarkLayout, layout_of
from engines.tts.bark.voices import SpeakerPrompt, checked

CODES = 32
SEMANTIC_IDS = 50
COARSE_END = SEMANTIC_IDS + 2 * CODES

GENERATION: Mapping[str, Any] = {
    "codebook_size": CODES,
    "semantic_config": {
        "text_encoding_offset": 60,
        "text_pad_token": 340,
        "semantic_infer_token": 344,
        "semantic_vocab_size": SEMANTIC_IDS,
        "eos_token_id": SEMANTIC_IDS,
        "max_input_semantic_length": 16,
        "max_new_tokens": 40,
    },
    "coarse_acoustics_config": {
        "coarse_semantic_pad_token": COARSE_END,
        "coarse_infer_token": COARSE_END + 2,
        "max_coarse_input_length": 16,
        "max_coarse_history": 24,
        "sliding_window_len": 6,
    },
    "fine_acoustics_config": {"max_fine_input_length": 40, "max_fine_history_length": 20},
}
"Lengths so small that a sentence needs several windows of each kind."

SHAPE = {"num_layers": 2, "num_heads": 2, "hidden_size": 32, "block_size": 64, "bias": False}

VOICES = ("v2/en_speaker_6", "en_speaker_0", "de_speaker_1")


def layout() -> BarkLayout:
    """Returns the layout of the checkpoint."""
    return layout_of(GENERATION)


def tokenizer() -> Tokenizer:
    """Returns a tokenizer of bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={one: id_ for id_, one in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def prompt_arrays(seed: int, semantic: int = 21) -> dict[str, np.ndarray]:
    """Returns the arrays of a speaker prompt."""
    random = np.random.default_rng(seed)
    fine = random.integers(0, CODES, (8, semantic * 3 // 2))
    return {
        "semantic_prompt": random.integers(0, SEMANTIC_IDS, semantic),
        "coarse_prompt": fine[:2],
        "fine_prompt": fine,
    }


def speaker_prompt(seed: int = 0, semantic: int = 21) -> SpeakerPrompt:
    """Returns a speaker prompt of random tokens."""
    return checked("test", prompt_arrays(seed, semantic), layout())


def write_prompts(folder: Path) -> None:
    """Writes the prompts of VOICES: two in separate arrays, the last one in a file of its own."""
    prompts = folder / "speaker_embeddings"
    prompts.mkdir(parents=True)
    table: dict[str, Any] = {"repo_or_path": "somewhere/else"}
    for number, name in enumerate(VOICES[:-1]):
        table[name] = {}
        for part, tokens in prompt_arrays(number).items():
            table[name][part] = f"speaker_embeddings/{number}_{part}.npy"
            np.save(folder / table[name][part], tokens)
    (folder / "speaker_embeddings_path.json").write_text(json.dumps(table), encoding="utf-8")
    arrays: dict[str, Any] = {**prompt_arrays(len(VOICES))}
    np.savez(prompts / f"{VOICES[-1]}.npz", **arrays)


def random_model() -> Any:
    """Returns a `BarkModel`; needs torch and transformers."""
    import torch
    from transformers import (
        BarkCoarseConfig,
        BarkConfig,
        BarkFineConfig,
        BarkModel,
        BarkSemanticConfig,
        EncodecConfig,
    )

    from tests.engines.codec.tiny_codecs import TINY_ENCODEC

    torch.manual_seed(0)
    codec = EncodecConfig(
        **{**TINY_ENCODEC, "codebook_size": CODES, "target_bandwidths": [0.75, 3.0]}
    )
    config = BarkConfig(
        semantic_config=BarkSemanticConfig(**SHAPE, input_vocab_size=350, output_vocab_size=60),
        coarse_acoustics_config=BarkCoarseConfig(
            **SHAPE, input_vocab_size=120, output_vocab_size=COARSE_END
        ),
        fine_acoustics_config=BarkFineConfig(
            **SHAPE, input_vocab_size=CODES + 4, output_vocab_size=CODES + 4
        ),
        codec_config=codec,
    )
    model = BarkModel(config).eval()
    for part in (model.semantic, model.coarse_acoustics, model.fine_acoustics):
        for name, parameter in part.named_parameters():
            if "layernorm" not in name:
                parameter.data.normal_(0, 0.3)  # with less, a greedy search repeats one token
    for module in model.codec_model.modules():
        if hasattr(module, "embed_avg"):
            module.embed.normal_()
    return model


def write_checkpoint(folder: Path, *, has_prompts: bool = True) -> Path:
    """Writes the model, its tokenizer and its prompts."""
    random_model().save_pretrained(str(folder))
    (folder / "generation_config.json").write_text(json.dumps(GENERATION), encoding="utf-8")
    tokenizer().save(str(folder / "tokenizer.json"))
    if has_prompts:
        write_prompts(folder)
    return folder
