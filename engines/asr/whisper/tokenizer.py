"""Tokenizer of one model: its special tokens, and text to tokens and back. Needs only its table.

It equals faster-whisper's tokenizer, which cannot be imported without CTranslate2.
"""

import string
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from engines.base import AsrTask

_LANGUAGES_WITHOUT_SPACES = ("zh", "ja", "th", "lo", "my", "yue")
"Languages without spaces between words; each of their characters counts as a word."

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"Text that an incomplete character is decoded to."

_SYMBOLS = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *(
        "<<",
        ">>",
        "<<<",
        ">>>",
        "--",
        "---",
        "-(",
        "-[",
        "('",
        '("',
        "((",
        "))",
        "(((",
        ")))",
        "[[",
        "]]",
    ),
    *("{{", "}}", "♪♪", "♪♪♪"),
)
"Signs that are never spoken, suppressed if they are one token."
_MUSIC = tuple("♩♪♫♬♭♮♯")
"Signs that are several tokens in some tables; the first of them begins no spoken text."


class Tokenizer:
    """Special tokens of one model, and the conversion of text.

    table: a `Tokenizer` of the library `tokenizers`.
    task, language: those of `sot_sequence`.
    """

    def __init__(
        self, table: Any, is_multilingual: bool, task: AsrTask = "transcribe", language: str = "en"
    ) -> None:
        self.tokenizer = table
        self._is_multilingual, self._task, self._language = is_multilingual, task, language

    @cached_property
    def sot(self) -> int:
        """Token for the start of a transcript."""
        return self._token_id("<|startoftranscript|>")

    @cached_property
    def sot_prev(self) -> int:
        """Token for the start of earlier text."""
        return self._token_id("<|startofprev|>")

    @cached_property
    def eot(self) -> int:
        """Token for the end. Smaller ids are text, larger ones are special tokens."""
        return self._token_id("<|endoftext|>")

    @cached_property
    def transcribe(self) -> int:
        return self._token_id("<|transcribe|>")

    @cached_property
    def translate(self) -> int:
        return self._token_id("<|translate|>")

    @cached_property
    def no_timestamps(self) -> int:
        return self._token_id("<|notimestamps|>")

    @property
    def timestamp_begin(self) -> int:
        """Token of the timestamp 0.00 s; each further one is 20 ms later."""
        return self.no_timestamps + 1

    @property
    def sot_sequence(self) -> list[int]:
        """Tokens at the start of a transcript: start, language and task."""
        if not self._is_multilingual:
            return [self.sot]
        return [
            self.sot,
            self._token_id(f"<|{self._language}|>"),
            self._token_id(f"<|{self._task}|>"),
        ]

    @cached_property
    def suppressed(self) -> tuple[int, ...]:
        """Tokens that are never written.

        They are brackets, notes and other signs that nobody speaks, and tokens of the start of a
        transcript.
        """
        symbols = [self._first_token(sign, must_be_single=False) for sign in (" -", " '")]
        for space in ("", " "):
            symbols += [self._first_token(space + sign, must_be_single=True) for sign in _SYMBOLS]
            symbols += [self._first_token(space + sign, must_be_single=False) for sign in _MUSIC]
        names = ("transcribe", "translate", "startoftranscript", "startofprev", "startoflm")
        special = [self.tokenizer.token_to_id(f"<|{name}|>") for name in names]
        special += [self.tokenizer.token_to_id(f"<|{n}|>") for n in ("nospeech", "nocaptions")]
        return tuple(sorted({token for token in (*symbols, *special) if token}))

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, without special tokens around it."""
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens; special tokens are left out."""
        text: str = self.tokenizer.decode([token for token in tokens if token < self.eot])
        return text

    def split_to_word_tokens(self, tokens: Sequence[int]) -> tuple[list[str], list[list[int]]]:
        """Returns the words as written, with spaces and punctuation, and the tokens of each."""
        words, parts = self._characters(tokens)
        if self._language in _LANGUAGES_WITHOUT_SPACES and self._is_multilingual:
            return words, parts
        joined: list[str] = []
        joined_parts: list[list[int]] = []
        for word, part in zip(words, parts, strict=True):
            is_new_word = part[0] >= self.eot or word.startswith(" ")
            if is_new_word or word.strip() in string.punctuation or not joined:
                joined.append(word)
                joined_parts.append(part)
            else:
                joined[-1] += word
                joined_parts[-1] += part
        return joined, joined_parts

    def _characters(self, tokens: Sequence[int]) -> tuple[list[str], list[list[int]]]:
        """Returns the shortest runs of tokens that are complete characters, as texts and tokens."""
        whole = self._text_with_times(tokens)
        words, parts, pending, offset = list[str](), list[list[int]](), list[int](), 0
        for token in tokens:
            pending.append(token)
            text = self._text_with_times(pending)
            cut = text.find(_INCOMPLETE)
            if cut < 0 or whole[offset + cut : offset + cut + 1] == _INCOMPLETE:
                words.append(text)
                parts.append(pending)
                pending, offset = [], offset + len(text)
        return words, parts

    def _text_with_times(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens, with timestamps as `<|1.20|>`."""
        text, run = "", list[int]()
        for token in tokens:
            if token >= self.timestamp_begin:
                text += self.tokenizer.decode(run) if run else ""
                text += f"<|{(token - self.timestamp_begin) * 0.02:.2f}|>"
                run = []
            else:
                run.append(token)
        return text + (self.tokenizer.decode(run) if run else "")

    def _first_token(self, text: str, *, must_be_single: bool) -> int | None:
        tokens = self.encode(text)
        return tokens[0] if tokens and (len(tokens) == 1 or not must_be_single) else None

    def _token_id(self, name: str) -> int:
        token: int = self.tokenizer.token_to_id(name)
        return token


def byte_letters() -> list[str]:
    """Returns the printable letter that GPT-2's and Whisper's token tables use for each byte."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]
