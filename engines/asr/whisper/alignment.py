"""Which word was said when, and how sure each token is: faster-whisper's alignment, per window."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Protocol

from engines.asr.whisper.segments import Piece, SaidWord
from engines.asr.whisper.tokens import byte_letters
from engines.base import Task, TokenLogprob, Word

_BEFORE, _AFTER = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"
"Punctuation that belongs to the next word, and to the one before, as in faster-whisper."

_LEAST = 1e-10
"Of a probability: its logarithm must stay a number."


class Encoded(Protocol):
    """`encoded.Encoded`, or another engine's."""

    def rows(self, wanted: Sequence[int]) -> Any:
        """These windows, as the model's `align` takes them."""
        ...


@dataclass(frozen=True, slots=True)
class Voice:
    """One window as it was heard."""

    encoded: Encoded
    row: int
    frames: int
    "That hold audio."
    language: str
    task: Task


class Aligner:
    """Runs the decoder once more over what it said."""

    def __init__(self, whisper: Any, is_multilingual: bool) -> None:
        self._whisper, self._is_multilingual = whisper, is_multilingual
        self._tokenizers: dict[tuple[str, Task], Any] = {}
        self._bytes = {letter: byte for byte, letter in enumerate(byte_letters())}

    def words(self, voice: Voice, pieces: list[Piece], spoken_until_s: float) -> list[list[Word]]:
        """Per piece; the pieces' times become those of their words."""
        self._whisper.add_word_timestamps(
            [pieces],
            self._tokenizer(voice),
            voice.encoded.rows([voice.row]),
            voice.frames,
            _BEFORE,
            _AFTER,
            last_speech_timestamp=spoken_until_s,
        )
        return [
            [_word(said) for said in piece["words"] if said["word"].strip()] for piece in pieces
        ]

    def logprobs(self, voice: Voice, tokens: Sequence[int]) -> list[TokenLogprob]:
        """Of the words' tokens; timestamps have none."""
        tokenizer = self._tokenizer(voice)
        spoken = [token for token in tokens if token < tokenizer.eot]
        (result,) = self._whisper.model.align(
            voice.encoded.rows([voice.row]), tokenizer.sot_sequence, [spoken], voice.frames
        )
        return [
            TokenLogprob(self._data(token), log(min(max(probability, _LEAST), 1.0)))
            for token, probability in zip(spoken, result.text_token_probs, strict=True)
        ]

    def _data(self, token: int) -> bytes:
        letters = self._whisper.hf_tokenizer.id_to_token(token)
        return bytes(self._bytes[letter] for letter in letters)

    def _tokenizer(self, voice: Voice) -> Any:
        from faster_whisper.tokenizer import Tokenizer

        key = (voice.language, voice.task)
        if key not in self._tokenizers:
            self._tokenizers[key] = Tokenizer(
                self._whisper.hf_tokenizer, self._is_multilingual, voice.task, voice.language
            )
        return self._tokenizers[key]


def _word(said: SaidWord) -> Word:
    return Word(
        text=said["word"].strip(),
        start_ms=1000 * float(said["start"]),
        end_ms=1000 * float(said["end"]),
        confidence=min(float(said["probability"]), 1.0),
    )
