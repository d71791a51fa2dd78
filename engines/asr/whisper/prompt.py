"""Builds the decoder's first tokens: earlier words, language and task, or a raw prefix."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.errors import RequestError
from engines.base import AsrInfo, AsrOptions, AsrTask

# A raw decoder prefix is written with Whisper's special tokens. It is checked without the model, so
# that a door can refuse a wrong prefix before its item shares a batch with others.

MAX_WORDS_BYTES = 160
"Longest beginning of the answer in a prefix. Half of the decoder is reserved for the answer."

TIMESTAMP = re.compile(r"<\|\d\d?\.\d[02468]\|>")
"Text of a timestamp token, such as `<|1.20|>`."

SPECIAL = re.compile(r"<\|[^<>|]*\|>")
"Text of any special token, such as `<|en|>`."

_LAST_TIME_S = 30.0
_START_TAG = "<|startoftranscript|>"


@dataclass(frozen=True, slots=True)
class DecoderPrefix:
    """The parts of a raw prefix."""

    earlier: str
    "Earlier words. As in a prompt, the last ones are kept if there are too many."
    tags: tuple[str, ...]
    "Special tokens after the start of the transcript."
    words: str
    "First words of the answer."


def check_prefix(text: str, info: AsrInfo, param: str = "prefix") -> None:
    """Raises RequestError (`invalid_value`) for a wrong prefix; it names what is allowed.

    param: name of the parameter in the request.
    """
    parse(text, info.languages, is_multilingual="task" in info.supports, param=param)


def parse(
    text: str, languages: Sequence[str], *, is_multilingual: bool, param: str = "prefix"
) -> DecoderPrefix:
    """Returns the parts of a raw prefix.

    languages: those of the model. param: name of the parameter in the request.
    Raises RequestError (`invalid_value`) for a prefix that the model does not take.
    """
    grammar = _PrefixGrammar(languages if is_multilingual else (), param)
    if _START_TAG not in text:
        raise grammar.error(f"{_START_TAG} is missing")
    if unknown := next((tag for tag in SPECIAL.findall(text) if not grammar.knows(tag)), None):
        raise grammar.error(f"{unknown} is not known to this model")
    parts = grammar.pattern.fullmatch(text)
    if parts is None or SPECIAL.search(f"{parts['earlier'] or ''} {parts['words']}"):
        raise grammar.error("its special tokens are in another order, or too many")
    words = parts["words"].strip()
    if len(words.encode()) > MAX_WORDS_BYTES:
        raise grammar.error(f"the answer's first words have {len(words.encode())} bytes")
    return DecoderPrefix(
        (parts["earlier"] or "").strip(), tuple(SPECIAL.findall(parts["tags"])), words
    )


class _PrefixGrammar:
    """Grammar of prefixes. Those of English-only models have no languages and tasks."""

    def __init__(self, languages: Sequence[str], param: str) -> None:
        self._languages, self._param = languages, param
        tags = "|".join(map(re.escape, languages)) or "(?!)"
        tasks = "translate|transcribe" if languages else "(?!)"
        names = ["startofprev", "startoftranscript", "notimestamps"]
        names += ["transcribe", "translate", *languages] if languages else []
        self._known = {f"<|{name}|>" for name in names}
        self.pattern = re.compile(
            rf"\s*(?:<\|startofprev\|>(?P<earlier>.*?))?{re.escape(_START_TAG)}\s*"
            rf"(?P<tags>(?:<\|(?:{tags})\|>\s*){{0,2}}(?:<\|(?:{tasks})\|>\s*)?"
            rf"(?:<\|notimestamps\|>|{TIMESTAMP.pattern})?)(?P<words>.*)",
            re.DOTALL,
        )

    def knows(self, tag: str) -> bool:
        is_time = TIMESTAMP.fullmatch(tag) is not None and float(tag[2:-2]) <= _LAST_TIME_S
        return is_time or tag in self._known

    def error(self, problem: str) -> RequestError:
        middle = ""
        if self._languages:
            codes = f"<|{self._languages[0]}|> to <|{self._languages[-1]}|>"
            middle = f"up to two of {codes}, <|transcribe|> or <|translate|>, "
        message = (
            f"{self._param}: {problem}; allowed, in this order: <|startofprev|> with words, "
            f"{_START_TAG}, {middle}<|notimestamps|> or a time up to <|30.00|>, words of at most "
            f"{MAX_WORDS_BYTES} bytes"
        )
        return RequestError(message, code="invalid_value", param=self._param)


MAX_TOKENS = 448
"Positions of the decoder: prompt and answer together."

MAX_ANSWER_TOKENS = MAX_TOKENS // 2
"Longest answer. Prompt and hotwords take at most the other half."

MAX_TEXT_TOKENS = MAX_ANSWER_TOKENS - 1
"Most tokens of prompt and hotwords. The last ones of a prompt and the first hotwords are kept."

MAX_PREFIX_TOKENS = MAX_ANSWER_TOKENS + 8
"Most tokens of a prefix: those of a prompt, and special ones. The last earlier words are kept."

TIMESTAMP_S = 0.02
"Step between two timestamp tokens."


@dataclass(frozen=True, slots=True)
class DecoderPrompt:
    """The decoder's first tokens."""

    tokens: tuple[int, ...]
    shape: tuple[int, int, int]
    """Numbers of tokens before the transcript, about the task, and in all. Prompts of equal shape
    may share a batch."""
    has_timestamps: bool
    "True if the answer may have timestamps."
    former_tokens: int = 0
    "Number of tokens at the end that are former words, and so no part of the answer."


class PromptBuilder:
    """Translates `AsrOptions` into one model's tokens."""

    def __init__(self, tokenizer: Any, languages: Sequence[str], is_multilingual: bool) -> None:
        self._tokenizer = tokenizer
        self._is_multilingual = is_multilingual
        self._languages = languages

    def build(self, options: AsrOptions, language: str, *, is_first: bool = True) -> DecoderPrompt:
        """Returns the decoder's first tokens for a window.

        language: ISO 639-1, known to the model. is_first: False for later windows of the same
        audio, which get no prompt.
        """
        if options.prefix:
            return self._prompt(self.prefix_tokens(options.prefix))
        former: tuple[int, ...] = ()
        if is_first and options.timestamps == "none":
            former = self._text_tokens(options.former_words)[:MAX_TEXT_TOKENS]
        room = MAX_TEXT_TOKENS - len(former)
        before = self._text_tokens(options.hotwords)[:room]
        if is_first:
            room -= len(before)
            earlier = self._text_tokens(options.prompt)
            before = (*before, *(earlier[-room:] if room else ()))
        tokens = (self._tokenizer.sot_prev, *before) if before else ()
        tokens = (*tokens, *self._task_tokens(language, options.task))
        if options.timestamps == "none":
            tokens = (*tokens, self._tokenizer.no_timestamps)
        return self._prompt((*tokens, *former), len(former))

    def prefix_tokens(self, text: str) -> tuple[int, ...]:
        """Returns the tokens of a raw prefix. Raises RequestError if the model cannot take it."""
        parts = parse(text, self._languages, is_multilingual=self._is_multilingual)
        transcript = [
            self._tokenizer.sot,
            *map(self._token_id, parts.tags),
            *self._text_tokens(parts.words),
        ]
        earlier = self._text_tokens(parts.earlier)[-(MAX_PREFIX_TOKENS - len(transcript) - 1) :]
        return (self._tokenizer.sot_prev, *earlier, *transcript) if earlier else tuple(transcript)

    def named_language(self, options: AsrOptions) -> str | None:
        """Returns the language that the request names, if the model knows it; else None."""
        if not self._is_multilingual:
            return "en"
        named = options.language
        if options.prefix:
            tags = [tag.strip("<|>") for tag in SPECIAL.findall(options.prefix)]
            named = next((tag for tag in tags if tag in self._languages), None)
        return named if named in self._languages else None

    def _task_tokens(self, language: str, task: AsrTask) -> tuple[int, ...]:
        if not self._is_multilingual:
            return (self._tokenizer.sot,)
        chosen = self._tokenizer.translate if task == "translate" else self._tokenizer.transcribe
        return self._tokenizer.sot, self._token_id(f"<|{language}|>"), chosen

    def _text_tokens(self, text: str) -> tuple[int, ...]:
        """Returns the tokens of words, without special ones, which could begin a new transcript."""
        if not text.strip():
            return ()
        tokens = self._tokenizer.encode(f" {text.strip()}")
        return tuple(token for token in tokens if token < self._tokenizer.eot)

    def _prompt(self, tokens: tuple[int, ...], former_tokens: int = 0) -> DecoderPrompt:
        before = tokens.index(self._tokenizer.sot)
        last = self._tokenizer.no_timestamps
        task_tokens = sum(self._tokenizer.eot < token <= last for token in tokens[before:])
        shape = (before, task_tokens, len(tokens))
        return DecoderPrompt(tokens, shape, last not in tokens, former_tokens)

    def _token_id(self, tag: str) -> int:
        if TIMESTAMP.fullmatch(tag):  # not every tokenizer.json lists them
            return int(self._tokenizer.timestamp_begin + round(float(tag[2:-2]) / TIMESTAMP_S))
        return int(self._tokenizer.tokenizer.token_to_id(tag))


class LanguageDetection(NamedTuple):
    """The language of a recording (ISO 639-1) and its probability."""

    language: str
    probability: float


def choose_language(
    candidates: Sequence[tuple[str, float]], allowed: Sequence[str]
) -> LanguageDetection:
    """Returns the most probable language, among `allowed` if that is not empty.

    candidates: (CTranslate2's token, probability). With `allowed`, probabilities are relative to
    the sum over those languages.
    """
    detections = [
        LanguageDetection(token.strip("<|>"), probability) for token, probability in candidates
    ]
    choices = [detection for detection in detections if detection.language in allowed] or detections
    best = max(choices, key=lambda detection: detection.probability)
    total = sum(detection.probability for detection in choices) if allowed else 1.0
    return LanguageDetection(best.language, best.probability / total if total else 1 / len(choices))
