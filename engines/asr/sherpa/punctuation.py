"""Punctuation for models that write none, by a CT transformer of sherpa-onnx.

Its library ends the process for a file that it does not expect, so the file is checked first. The
words of a result are never changed: if the library loses one, the text stays as it was.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from engines.asr.sherpa.words import FIRST_IDEOGRAPH
from engines.base import AsrInfo, AsrItem, AsrModel, AsrResult
from engines.runtime.model_files.onnx_file import OnnxNotes, read_notes

SEPARATOR = "|"
"Separator of the tokens, and of the marks, in the notes."

NEEDED_NOTES = ("tokens", "vocab_size", "punctuations", "unk_symbol")
"Notes that the library reads without a default."

NO_MARK = "_"
"Name of the mark that stands for none."

NEEDED_MARKS = frozenset("，。？、") | {NO_MARK}
"Marks that the library looks up when it loads a model."

ASCII_MARKS = str.maketrans({"，": ",", "、": ",", "。": ".", "？": "?"})
"Marks of Chinese -> those of languages that write spaces. The model knows only the former."


def read_punctuation_file(folder: Path) -> Path:
    """Returns the file of a model for punctuation. Raises ConfigError if there is none, or if the
    library would refuse it."""
    files = sorted(folder.glob("*.onnx")) if folder.is_dir() else []
    if not files:
        raise ConfigError(f"asr.options.punctuation: {folder} holds no .onnx file")
    file = min(files, key=lambda path: (".int8." not in path.name, path.name))
    try:
        notes = read_notes(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is no ONNX file, or damaged: {error}") from error
    if problem := _problem(notes):
        raise ConfigError(f"{file} is no model for punctuation: {problem}")
    return file


def holds_punctuation(folder: Path) -> bool:
    """Returns whether a folder holds a model for punctuation, by the notes of its files."""
    try:
        files = list(folder.glob("*.onnx"))
        return bool(files) and all("punctuations" in read_notes(file).metadata for file in files)
    except (OSError, ValueError):
        return False


def _problem(notes: OnnxNotes) -> str:
    """Returns why the library would refuse a network; empty if it would not."""
    missing = [key for key in NEEDED_NOTES if key not in notes.metadata]
    if missing:
        return f"it lacks the notes {', '.join(missing)}"
    tokens = notes.metadata["tokens"].split(SEPARATOR)
    if notes.metadata["vocab_size"] != str(len(tokens)):
        return f"it has {len(tokens)} tokens, and its vocab_size is {notes.metadata['vocab_size']}"
    if notes.metadata["unk_symbol"] not in tokens:
        return f"its unk_symbol {notes.metadata['unk_symbol']!r} is no token"
    marks = notes.metadata["punctuations"].split(SEPARATOR)
    if lacking := sorted(NEEDED_MARKS.difference(marks)):
        return f"it lacks the marks {' '.join(lacking)}"
    if notes.last_size != len(marks):
        return f"it has {len(marks)} marks, and its network gives {notes.last_size}"
    if len(notes.inputs) != 2:
        return f"it has {len(notes.inputs)} inputs, not 2"
    return ""


class PunctuatedModel:
    """An `AsrModel` whose final results have punctuation. Partial ones stay without, because they
    change with every word."""

    def __init__(self, model: AsrModel, punctuator: Any) -> None:
        """`punctuator`: the library's OfflinePunctuation."""
        self._model, self._punctuator = model, punctuator
        self.info: AsrInfo = model.info

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Returns one result per item (see `AsrModel.decode`)."""
        results = self._model.decode(items)
        return [
            self._punctuated(result) if item.is_final and result.text else result
            for item, result in zip(items, results, strict=True)
        ]

    def forget(self, utterance: str) -> None:
        """Drops the state of an utterance."""
        self._model.forget(utterance)

    def close(self) -> None:
        """Drops both models."""
        self._model.close()
        self._punctuator = None

    def _punctuated(self, result: AsrResult) -> AsrResult:
        text = with_marks(result.text, self._punctuator.add_punctuation(result.text))
        if len(result.segments) != 1:
            return replace(result, text=text)
        return replace(result, text=text, segments=(replace(result.segments[0], text=text),))


def with_marks(text: str, marked: str) -> str:
    """Returns the text with the marks of `marked`, in the form of its script; the text as it is if
    `marked` has other words."""
    if not any(char >= FIRST_IDEOGRAPH for char in text):
        marked = marked.translate(ASCII_MARKS)
        for mark in ",.?":
            marked = marked.replace(mark, f"{mark} ")
    marked = " ".join(marked.split())
    return marked if _letters(marked) == _letters(text) else text


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))
