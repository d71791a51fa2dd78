"""Makes Whisper's token table, in the forms of CTranslate2 and of the library tokenizers."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from engines.asr.whisper.tokenizer import byte_letters

LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr "
    "pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt "
    "haw ln ha ba jw su yue"
)
"Languages in the order of their tokens. Only large-v3 and later models have the last one."

_TABLE = "multilingual.tiktoken"
"OpenAI's file with the words."
_WORDS, _TIMESTAMPS = 50_257, 1501
"Number of words, and of timestamp tokens: 0 to 30 s in steps of 20 ms."


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Token table of a model."""

    vocabulary: tuple[str, ...]
    "Tokens in the order of their ids, with bytes written as in GPT-2."
    tokenizer: Mapping[str, object]
    "Content of `tokenizer.json`."
    end: int
    "Id of the end token."
    blank: int
    "Id of the token of a single space."
    languages: tuple[int, ...]
    "Ids of the language tokens."


def whisper_tokens(folder: Path, has_cantonese: bool) -> TokenTable:
    """Returns the token table of a model. Its special tokens are always real.

    folder: contains OpenAI's `multilingual.tiktoken`; without it the words are made up.
    has_cantonese: True for large-v3 and later models.
    """
    file = folder / _TABLE
    ranks = _read_ranks(file) if file.exists() else _made_up_ranks()
    letters = byte_letters()
    words = ["".join(letters[byte] for byte in token) for token in ranks]
    languages = LANGUAGES.split() if has_cantonese else LANGUAGES.split()[:-1]
    special = [f"<|{name}|>" for name in ("endoftext", "startoftranscript", *languages)]
    names = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
    special += [f"<|{name}|>" for name in names]
    special += [f"<|{i * 0.02:.2f}|>" for i in range(_TIMESTAMPS)]
    vocabulary = (*words, *special)
    merges = [["".join(letters[byte] for byte in part) for part in pair] for pair in _merges(ranks)]
    first = len(words) + 2
    return TokenTable(
        vocabulary=vocabulary,
        tokenizer=_tokenizer(words, special, merges),
        end=len(words),
        blank=ranks[b" "],
        languages=tuple(range(first, first + len(languages))),
    )


def _read_ranks(file: Path) -> dict[bytes, int]:
    lines = (line.split() for line in file.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def _made_up_ranks() -> dict[bytes, int]:
    """Returns made-up words: all bytes, then words after a space.

    Each word is an earlier one with one more letter, as byte pair encoding needs it.
    """
    tokens = [bytes([byte]) for byte in range(256)]
    starts = [b" "]
    while len(tokens) < _WORDS:
        starts = [start + bytes([letter]) for start in starts for letter in b"eotanirshdlumcwfgypb"]
        tokens += starts[: _WORDS - len(tokens)]
    return {token: rank for rank, token in enumerate(tokens)}


def _merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Returns the two parts of each token of several bytes, in the order of the tokens."""
    parts = [(token, _split(token, rank, ranks)) for token, rank in ranks.items() if token[1:]]
    return [(pair[0], pair[1]) for _, pair in parts if len(pair) == 2]


def _split(token: bytes, limit: int, ranks: Mapping[bytes, int]) -> Sequence[bytes]:
    """Splits a token by byte pair encoding with tokens of lower rank only. limit: its own rank."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        known = [ranks.get(left + right, limit) for left, right in pairwise(parts)]
        best = min(known)
        if best >= limit:
            break
        at = known.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _tokenizer(
    words: Sequence[str], special: Sequence[str], merges: Sequence[Sequence[str]]
) -> dict[str, object]:
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    added = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": len(words) + i, "content": token, **added} for i, token in enumerate(special)
        ],
        "pre_tokenizer": {**byte_level, "add_prefix_space": False},
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "vocab": {word: i for i, word in enumerate(words)},
            "merges": list(merges),
        },
    }
