"""Tiny checkpoints of Indri's form, with random weights: they speak noise."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engines.tts.indri.token_layout import AUDIO_IDS, TokenLayout

MARKERS = ("[text]", "[mimi]", "[convert]", "[continue]", "[stop]", "[spkr_unk]")
SPEAKERS = ("spkr_53", "spkr_63", "spkr_99")


def tokenizer(speakers: tuple[str, ...] = SPEAKERS) -> Tokenizer:
    """Returns a tokenizer of bytes, with the added tokens in the order of Indri's."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(["<|endoftext|>", *letters])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    audio = [f"[code_{number}]" for number in range(AUDIO_IDS)]
    made.add_tokens([*audio, *MARKERS, *(f"[{name}]" for name in speakers)])
    return made


def vocabulary_size(made: Tokenizer) -> int:
    """Returns the number of ids of a model for this tokenizer; some of its rows are unused."""
    return int(made.get_vocab_size()) + 5


def layout() -> TokenLayout:
    """Returns the layout of `tokenizer()`."""
    made = tokenizer()
    return TokenLayout.read(made, vocabulary_size(made))


def write_language_model(folder: Path, *, seed: int = 0, context: int = 256) -> None:
    """Writes weights, config.json and tokenizer.json; needs torch and transformers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    made = tokenizer()
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=vocabulary_size(made),
        n_positions=context,
        n_embd=32,
        n_layer=2,
        n_head=2,
        initializer_range=0.3,  # with the usual 0.02 a greedy search writes the same id for ever
    )
    GPT2LMHeadModel(config).save_pretrained(str(folder))
    made.save(str(folder / "tokenizer.json"))


def write_checkpoints(folder: Path, *, codebook_size: int = 2048) -> dict[str, str]:
    """Writes a language model and a Mimi, and returns their folders as options of the engine."""
    from bench.gpu.random_codecs import random_mimi, write
    from tests.engines.codec.tiny_codecs import TINY_MIMI

    write_language_model(folder / "model")
    write(random_mimi(**{**TINY_MIMI, "codebook_size": codebook_size}), folder / "mimi")
    return {"path": str(folder / "model"), "codec": str(folder / "mimi")}
