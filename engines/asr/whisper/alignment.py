"""Which word was said when, and how sure each token is, per window."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Protocol

from engines.asr.whisper.segments import AlignedWord, TokenSegment
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.tokens import byte_letters
from engines.asr.whisper.word_timestamps import add_words, text_tokens
from engines.base import AsrTask, TokenLogprob, Word

_LEAST = 1e-10
"Of a probability: its logarithm must stay a number."


class EncodedAudio(Protocol):
    """`encoded.Encoded`, or another engine's."""

    def rows(self, wanted: Sequence[int]) -> Any:
        """These windows, as the model's `align` takes them."""
        ...


@dataclass(frozen=True, slots=True)
class AlignmentWindow:
    """One window as it was heard."""

    encoded: EncodedAudio
    row: int
    frames: int
    "That hold audio."
    language: str
    task: AsrTask


class CrossAttentionAligner:
    """Runs the decoder once more over what it said."""

    def __init__(self, model: Any, table: Any, is_multilingual: bool) -> None:
        """`model`: with CTranslate2's `align`. `table`: of the library `tokenizers`."""
        self._model, self._table, self._is_multilingual = model, table, is_multilingual
        self._tokenizers: dict[tuple[str, AsrTask], Tokenizer] = {}
        self._bytes = {letter: byte for byte, letter in enumerate(byte_letters())}

    def words(
        self, voice: AlignmentWindow, pieces: list[TokenSegment], spoken_until_s: float
    ) -> list[list[Word]]:
        """Per piece; the pieces' times become those of their words."""
        tokenizer = self._tokenizer(voice)
        spoken = [token for piece in pieces for token in text_tokens(piece, tokenizer)]
        add_words(pieces, self._path(voice, spoken), tokenizer, spoken_until_s)
        return [
            [_word(said) for said in piece["words"] if said["word"].strip()] for piece in pieces
        ]

    def logprobs(self, voice: AlignmentWindow, tokens: Sequence[int]) -> list[TokenLogprob]:
        """Of the words' tokens; timestamps have none."""
        tokenizer = self._tokenizer(voice)
        spoken = [token for token in tokens if token < tokenizer.eot]
        result = self._path(voice, spoken)
        return [
            TokenLogprob(self._data(token), log(min(max(probability, _LEAST), 1.0)))
            for token, probability in zip(spoken, result.text_token_probs, strict=True)
        ]

    def _path(self, voice: AlignmentWindow, spoken: Sequence[int]) -> Any:
        heard = voice.encoded.rows([voice.row])
        start = self._tokenizer(voice).sot_sequence
        (path,) = self._model.align(heard, start, [spoken], voice.frames)
        return path

    def _data(self, token: int) -> bytes:
        letters = self._table.id_to_token(token)
        return bytes(self._bytes[letter] for letter in letters)

    def _tokenizer(self, voice: AlignmentWindow) -> Tokenizer:
        key = (voice.language, voice.task)
        if key not in self._tokenizers:
            self._tokenizers[key] = Tokenizer(
                self._table, self._is_multilingual, voice.task, voice.language
            )
        return self._tokenizers[key]


def _word(said: AlignedWord) -> Word:
    return Word(
        text=said["word"].strip(),
        start_ms=1000 * float(said["start"]),
        end_ms=1000 * float(said["end"]),
        confidence=min(float(said["probability"]), 1.0),
    )
