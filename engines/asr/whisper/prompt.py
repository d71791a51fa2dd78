"""What the decoder is told before it begins: earlier words, language, task, or a raw prefix."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.errors import RequestError
from engines.base import AsrInfo, AsrOptions, AsrTask

# The raw decoder prefix: what Whisper may be told in its own special tokens.
#
# Knows no model: whoever takes requests can refuse a wrong one before it shares a batch with
# others.

MAX_WORDS_BYTES = 160
"Of the answer's first words, and so of their tokens: half of the decoder is for the answer."

TIMESTAMP = re.compile(r"<\|\d\d?\.\d[02468]\|>")
SPECIAL = re.compile(r"<\|[^<>|]*\|>")

_LAST_TIME_S = 30.0
_START = "<|startoftranscript|>"


@dataclass(frozen=True, slots=True)
class DecoderPrefix:
    earlier: str
    "Words said before. A prompt's rule holds: the last ones count."
    tags: tuple[str, ...]
    "Special tokens after the start of the transcript."
    words: str
    "How the answer begins."


def check_prefix(text: str, info: AsrInfo, param: str = "prefix") -> None:
    """Raises RequestError invalid_value, naming what is allowed. `param`: what the caller calls
    it."""
    parse(text, info.languages, is_multilingual="task" in info.supports, param=param)


def parse(
    text: str, languages: Sequence[str], *, is_multilingual: bool, param: str = "prefix"
) -> DecoderPrefix:
    """Raises RequestError for what no model with these languages can begin with."""
    form = _PrefixGrammar(languages if is_multilingual else (), param)
    if _START not in text:
        raise form.wrong(f"{_START} is missing")
    if unknown := next((tag for tag in SPECIAL.findall(text) if not form.knows(tag)), None):
        raise form.wrong(f"{unknown} is not known to this model")
    parts = form.pattern.fullmatch(text)
    if parts is None or SPECIAL.search(f"{parts['earlier'] or ''} {parts['words']}"):
        raise form.wrong("its special tokens are in another order, or too many")
    words = parts["words"].strip()
    if len(words.encode()) > MAX_WORDS_BYTES:
        raise form.wrong(f"the answer's first words have {len(words.encode())} bytes")
    return DecoderPrefix(
        (parts["earlier"] or "").strip(), tuple(SPECIAL.findall(parts["tags"])), words
    )


class _PrefixGrammar:
    """What a prefix may look like; English-only models know no languages and tasks."""

    def __init__(self, languages: Sequence[str], param: str) -> None:
        self._languages, self._param = languages, param
        tags = "|".join(map(re.escape, languages)) or "(?!)"
        tasks = "translate|transcribe" if languages else "(?!)"
        names = ["startofprev", "startoftranscript", "notimestamps"]
        names += ["transcribe", "translate", *languages] if languages else []
        self._known = {f"<|{name}|>" for name in names}
        self.pattern = re.compile(
            rf"\s*(?:<\|startofprev\|>(?P<earlier>.*?))?{re.escape(_START)}\s*"
            rf"(?P<tags>(?:<\|(?:{tags})\|>\s*){{0,2}}(?:<\|(?:{tasks})\|>\s*)?"
            rf"(?:<\|notimestamps\|>|{TIMESTAMP.pattern})?)(?P<words>.*)",
            re.DOTALL,
        )

    def knows(self, tag: str) -> bool:
        is_time = TIMESTAMP.fullmatch(tag) is not None and float(tag[2:-2]) <= _LAST_TIME_S
        return is_time or tag in self._known

    def wrong(self, what: str) -> RequestError:
        middle = ""
        if self._languages:
            codes = f"<|{self._languages[0]}|> to <|{self._languages[-1]}|>"
            middle = f"up to two of {codes}, <|transcribe|> or <|translate|>, "
        message = (
            f"{self._param}: {what}; allowed, in this order: <|startofprev|> with words, {_START}, "
            f"{middle}<|notimestamps|> or a time up to <|30.00|>, words of at most "
            f"{MAX_WORDS_BYTES} bytes"
        )
        return RequestError(message, code="invalid_value", param=self._param)


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


# Which language is spoken, among all that a model knows or those that the caller listed.


class LanguageDetection(NamedTuple):
    language: str
    probability: float


def choose(candidates: Sequence[tuple[str, float]], allowed: Sequence[str]) -> LanguageDetection:
    """The likeliest. `candidates` are CTranslate2's tokens; with `allowed`, the probability is that
    among those."""
    found = [
        LanguageDetection(token.strip("<|>"), probability) for token, probability in candidates
    ]
    listed = [spoken for spoken in found if spoken.language in allowed] or found
    best = max(listed, key=lambda spoken: spoken.probability)
    total = sum(spoken.probability for spoken in listed) if allowed else 1.0
    return LanguageDetection(best.language, best.probability / total if total else 1 / len(listed))
