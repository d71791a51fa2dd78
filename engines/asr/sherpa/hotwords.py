"""Hot words for sherpa-onnx: phrases as its decoder takes them, and the pieces of words that it
needs to spell them."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from engines.runtime.model_files.onnx_file import wire_fields

VOCABULARY_FILE, MODEL_FILE = "bpe.vocab", "bpe.model"
"Names of the files with the pieces of words: as text, and as SentencePiece writes them."

LEXICON_PATTERN = r".*\.phone|lexicon\.txt"
"Pattern of the names of files with the phonemes of words."

_PIECE = 1  # of SentencePiece's ModelProto
_TEXT, _SCORE = 1, 2  # of its SentencePiece

_BREAKS = re.compile(r"[,;/\n]+")
_UNSAFE = re.compile(r"[^\w\s'\-]+")
"""Characters that a phrase may not have. The library reads `:2.0`, `#0.3` and `@name` as settings
of a phrase. It ends the process if the number is not valid."""


def phrases(text: str, *, is_upper_case: bool) -> str:
    """Returns the phrases of a text, which commas or lines divide, as the library takes them: with
    `/` between them, in the case of the model's letters."""
    found = (" ".join(_UNSAFE.sub(" ", part).split()) for part in _BREAKS.split(text))
    joined = "/".join(phrase for phrase in found if phrase)
    return joined.upper() if is_upper_case else joined


def find_bpe_vocabulary(folder: Path) -> Path | None:
    """Returns the file with the pieces of words; None if the folder has none."""
    return next(
        (folder / name for name in (VOCABULARY_FILE, MODEL_FILE) if (folder / name).is_file()),
        None,
    )


def find_lexicon(folder: Path) -> Path | None:
    """Returns the file with the phonemes of words; None if the folder has none."""
    files = sorted(folder.iterdir())
    return next((file for file in files if re.fullmatch(LEXICON_PATTERN, file.name)), None)


def as_vocabulary(file: Path, target: Path) -> Path:
    """Returns a file with pieces in the form that the library reads: `piece<TAB>score`. Writes it
    to `target` if `file` is a model of SentencePiece. Raises OSError, ValueError."""
    if file.name == VOCABULARY_FILE:
        return file
    lines = [f"{text}\t{score:g}\n" for text, score in pieces_of(file)]
    target.write_text("".join(lines), encoding="utf-8")
    return target


def pieces_of(file: Path) -> tuple[tuple[str, float], ...]:
    """Returns the pieces of words in either form of file, with their scores. Raises OSError,
    ValueError."""
    if file.name == VOCABULARY_FILE:
        lines = file.read_text(encoding="utf-8").splitlines()
        texts = (line.partition("\t") for line in lines if line)
        found = tuple((text, float(score or 0)) for text, _, score in texts)
    else:
        found = tuple(_pieces(file.read_bytes()))
    if not found:
        raise ValueError(f"{file} holds no pieces of words")
    return found


def _pieces(data: bytes) -> Iterator[tuple[str, float]]:
    """Yields the pieces of a model of SentencePiece with their scores, in its order."""
    for number, piece in wire_fields(memoryview(data)):
        if number == _PIECE and isinstance(piece, memoryview):
            text, score = "", 0.0
            for field, value in wire_fields(piece):
                if field == _TEXT and isinstance(value, memoryview):
                    text = bytes(value).decode()
                elif field == _SCORE and isinstance(value, memoryview):
                    (score,) = struct.unpack("<f", value)
            yield text, score
