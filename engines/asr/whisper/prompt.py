"""What the decoder is told before it begins: earlier words, language, task, or a raw prefix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engines.asr.whisper.prefix import SPECIAL, TIMESTAMP, parse
from engines.base import AsrOptions, AsrTask

MAX_TOKENS = 448
"Positions of the decoder."

MAX_ANSWER_TOKENS = MAX_TOKENS // 2
MAX_TEXT_TOKENS = MAX_ANSWER_TOKENS - 1
"Of a prompt its last ones, of hot words their first ones."

MAX_PREFIX_TOKENS = MAX_ANSWER_TOKENS + 8
"As many words as a prompt may have, and the special tokens. Of more earlier words the last count."

TIMESTAMP_S = 0.02


@dataclass(frozen=True, slots=True)
class DecoderPrompt:
    """The decoder's first tokens."""

    tokens: tuple[int, ...]
    shape: tuple[int, int, int]
    "Equal ones may share a batch: tokens before the transcript, about the task, and all."
    has_timestamps: bool


class PromptBuilder:
    """Says `AsrOptions` in one model's tokens."""

    def __init__(self, tokenizer: Any, languages: Sequence[str], is_multilingual: bool) -> None:
        self._tokenizer = tokenizer
        self._is_multilingual = is_multilingual
        self._languages = languages

    def start(self, options: AsrOptions, language: str, *, is_first: bool = True) -> DecoderPrompt:
        """With `is_first` false: for a later part of the same audio, where the prompt is past."""
        if options.prefix:
            return self._start(self.prefix(options.prefix))
        before = self._text(options.hotwords)[:MAX_TEXT_TOKENS]
        if is_first:
            room = MAX_TEXT_TOKENS - len(before)
            earlier = self._text(options.prompt)
            before = (*before, *(earlier[-room:] if room else ()))
        tokens = (self._tokenizer.sot_prev, *before) if before else ()
        tokens = (*tokens, *self._task(language, options.task))
        if options.timestamps == "none":
            tokens = (*tokens, self._tokenizer.no_timestamps)
        return self._start(tokens)

    def prefix(self, text: str) -> tuple[int, ...]:
        """A raw prefix as tokens. Raises RequestError for what the model cannot begin with."""
        parts = parse(text, self._languages, is_multilingual=self._is_multilingual)
        said = [self._tokenizer.sot, *map(self._id, parts.tags), *self._text(parts.words)]
        earlier = self._text(parts.earlier)[-(MAX_PREFIX_TOKENS - len(said) - 1) :]
        return (self._tokenizer.sot_prev, *earlier, *said) if earlier else tuple(said)

    def named_language(self, options: AsrOptions) -> str | None:
        """What the caller says is spoken, if the model knows it."""
        if not self._is_multilingual:
            return "en"
        named = options.language
        if options.prefix:
            tags = [tag.strip("<|>") for tag in SPECIAL.findall(options.prefix)]
            named = next((tag for tag in tags if tag in self._languages), None)
        return named if named in self._languages else None

    def _task(self, language: str, task: AsrTask) -> tuple[int, ...]:
        if not self._is_multilingual:
            return (self._tokenizer.sot,)
        chosen = self._tokenizer.translate if task == "translate" else self._tokenizer.transcribe
        return self._tokenizer.sot, self._id(f"<|{language}|>"), chosen

    def _text(self, text: str) -> tuple[int, ...]:
        """Words only: a special token in somebody's prompt would begin another transcript."""
        if not text.strip():
            return ()
        tokens = self._tokenizer.encode(f" {text.strip()}")
        return tuple(token for token in tokens if token < self._tokenizer.eot)

    def _start(self, tokens: tuple[int, ...]) -> DecoderPrompt:
        before = tokens.index(self._tokenizer.sot)
        last = self._tokenizer.no_timestamps
        about = sum(self._tokenizer.eot < token <= last for token in tokens[before:])
        return DecoderPrompt(tokens, (before, about, len(tokens)), last not in tokens)

    def _id(self, tag: str) -> int:
        if TIMESTAMP.fullmatch(tag):  # not every tokenizer.json lists them
            return int(self._tokenizer.timestamp_begin + round(float(tag[2:-2]) / TIMESTAMP_S))
        return int(self._tokenizer.tokenizer.token_to_id(tag))
