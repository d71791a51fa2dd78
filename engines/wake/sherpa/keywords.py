"""Writes phrases with the tokens of a model of sherpa-onnx, as its keyword spotter wants them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from core.errors import ConfigError
from engines.asr.sherpa.hotwords import MODEL_FILE, find_lexicon, pieces_of
from engines.asr.sherpa.model_folder import SherpaModel, read_tokens
from engines.runtime.model_files.onnx_file import wire_fields

WORD_START = "▁"
"First character of a piece that begins a word."

_SETTINGS = (":", "#", "@", "/")
"First characters by which the library tells the settings of a keyword, and the next keyword."

_TRAINER, _MODEL_TYPE, _BPE = 2, 3, 2  # of SentencePiece's ModelProto, and of its TrainerSpec


@dataclass(frozen=True, slots=True)
class Keyword:
    """A phrase as the library takes it."""

    name: str
    tokens: tuple[str, ...]
    boost: float
    threshold: float

    @property
    def line(self) -> str:
        """The keyword with its settings."""
        return f"{' '.join(self.tokens)} :{self.boost:g} #{self.threshold:g} @{self.name}"


def name_of(phrase: str) -> str:
    """Returns the name of a phrase: `hey_jarvis`. Raises ConfigError for one without letters."""
    name = re.sub(r"\W+", "_", phrase.casefold()).strip("_")
    if not name:
        raise ConfigError(f"wake.sherpa: the phrase {phrase!r} has no letters")
    return name


class KeywordWriter:
    """Writes phrases with the tokens of one model: by phonemes if the model comes with those of its
    words, else by the pieces of words that it was trained with, else by characters."""

    def __init__(self, model: SherpaModel) -> None:
        self._model = model
        self._known = read_tokens(model.tokens)

    def written(self, phrase: str, tokens: str = "") -> tuple[str, ...]:
        """Returns the tokens of a phrase. `tokens`: those that the user wrote, which are only
        checked. Raises ConfigError if the model cannot write the phrase."""
        found = tuple(tokens.split()) if tokens else self._tokens_of(phrase)
        unknown = [one for one in found if one not in self._known or one.startswith(_SETTINGS)]
        if unknown or not found:
            missing = ", ".join(map(repr, unknown)) or repr(phrase)
            raise ConfigError(
                f"wake.sherpa: {phrase!r} cannot be written with the tokens of"
                f" {self._model.folder}: there is none for {missing};"
                f" {self._model.tokens.name} lists those that there are"
            )
        return found

    def _tokens_of(self, phrase: str) -> tuple[str, ...]:
        words = phrase.split()
        if self._phonemes:
            return tuple(token for word in words for token in self._spoken(word))
        if self._model.bpe_vocabulary is not None:
            text = "".join(WORD_START + self._cased(word) for word in words)
            return tuple(self._joined(text) if self._is_bpe else self._likeliest(text))
        return tuple(self._cased("".join(words)))

    def _spoken(self, word: str) -> Sequence[str]:
        found = self._phonemes.get(word.casefold())
        if found is None:
            raise ConfigError(
                f"wake.sherpa: {self._lexicon} has no word {word!r}; write its `tokens` yourself"
            )
        return found

    def _cased(self, word: str) -> str:
        if self._model.is_upper_case:
            return word.upper()
        has_capitals = any(letter.isupper() for token in self._known for letter in token)
        return word if has_capitals else word.lower()

    @property
    def _lexicon(self) -> Path | None:
        return find_lexicon(self._model.folder)

    @cached_property
    def _phonemes(self) -> Mapping[str, tuple[str, ...]]:
        """Phonemes of each word in small letters; the first pronunciation counts."""
        phonemes: dict[str, tuple[str, ...]] = {}
        if self._lexicon is not None:
            for line in self._lexicon.read_text(encoding="utf-8").splitlines():
                word, *tokens = line.split() or [""]
                if tokens:
                    phonemes.setdefault(word.casefold(), tuple(tokens))
        return phonemes

    @cached_property
    def _scores(self) -> Mapping[str, float]:
        """Score of each piece that is also a token."""
        assert self._model.bpe_vocabulary is not None
        pieces = pieces_of(self._model.bpe_vocabulary)
        return {text: score for text, score in pieces if text in self._known}

    @property
    def _is_bpe(self) -> bool:
        """True if pieces are joined by rank. Else the whole with the best sum of scores counts."""
        file = self._model.bpe_vocabulary
        if file is None or file.name != MODEL_FILE:
            return False
        for number, trainer in wire_fields(memoryview(file.read_bytes())):
            if number == _TRAINER and isinstance(trainer, memoryview):
                return (_MODEL_TYPE, _BPE) in list(wire_fields(trainer))
        return False

    def _likeliest(self, text: str) -> list[str]:
        """Returns the pieces with the best sum of scores. A character without a piece stays
        alone."""
        worst = min(self._scores.values(), default=0.0) - 10.0
        best: list[tuple[float, list[str]]] = [(0.0, [])]
        for end in range(1, len(text) + 1):
            ways = [(best[end - 1][0] + worst, [*best[end - 1][1], text[end - 1]])]
            ways += [
                (best[start][0] + self._scores[text[start:end]], [*best[start][1], text[start:end]])
                for start in range(end)
                if text[start:end] in self._scores
            ]
            best.append(max(ways, key=lambda way: way[0]))
        return best[-1][1]

    def _joined(self, text: str) -> list[str]:
        """Returns the pieces that remain when the neighbours with the best piece are joined, until
        none can be."""
        parts = list(text)
        while True:
            pairs = [(self._scores.get(a + b), at) for at, (a, b) in enumerate(pairwise(parts))]
            scored = [(score, -at) for score, at in pairs if score is not None]
            if not scored:
                return parts
            at = -max(scored)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
