"""The raw decoder prefix: what Whisper may be told in its own special tokens.

Knows no model: whoever takes requests can refuse a wrong one before it shares a batch with others.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import RequestError
from engines.base import AsrInfo

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
