"""What every voice does with the text it is given: clean it, cut it, check who shall speak it."""

import re
import unicodedata
from collections.abc import Iterator

from core.errors import PayloadTooLarge, RequestError
from engines.base import TtsInfo

MAX_CLAUSE_CHARS = 300
"One job: 20 s of audio, the most that waits for a slow listener."

MAX_CHUNK_CHARS = 20_000
"Twenty minutes of speech. A chunk is cleaned in one go on the event loop: 5 ms for this much."

MIN_SPEED, MAX_SPEED = 0.25, 4.0
"What callers may ask for."

_CLAUSE_ENDS = (
    re.compile(r"[.!?。！？…]+\s+"),
    re.compile(r"[,;:、，；：]\s*"),
    re.compile(r"\s+"),
)
"Where a long text is cut, best first."

_SPEAKABLE = re.compile(r"[^\s.,;:!?…\-–—'\"()\[\]]")


def clauses_of(chunk: str) -> Iterator[tuple[int, str]]:
    """What is spoken of a chunk, clean, with where it begins there. Raises TooLarge."""
    if len(chunk) > MAX_CHUNK_CHARS:
        raise PayloadTooLarge(f"text of {len(chunk)} characters, limit {MAX_CHUNK_CHARS}")
    return split_clauses(sanitise(chunk))


def sanitise(text: str) -> str:
    """Control characters (eSpeak's embedded commands start with one), lone surrogates and
    unassigned code points become spaces; no character moves."""
    return "".join(" " if unicodedata.category(c) in {"Cc", "Cs", "Cn", "Co"} else c for c in text)


def split_clauses(text: str) -> Iterator[tuple[int, str]]:
    """Parts of at most MAX_CLAUSE_CHARS with where they begin in `text`, cut where a speaker would
    pause; nothing for no words."""
    start, end = 0, len(text.rstrip())
    while start < end:
        start += len(text[start:end]) - len(text[start:end].lstrip())
        cut = start + _cut(text[start:end]) if end - start > MAX_CLAUSE_CHARS else end
        clause = text[start:cut].rstrip()
        if _SPEAKABLE.search(clause):
            yield start, clause
        start = cut


def _cut(text: str) -> int:
    for pattern in _CLAUSE_ENDS:
        ends = [match.end() for match in pattern.finditer(text, 0, MAX_CLAUSE_CHARS)]
        if ends:
            return ends[-1]
    return MAX_CLAUSE_CHARS


def voices_of(info: TtsInfo, language: str) -> tuple[str, ...]:
    """Raises RequestError unsupported_language."""
    voices = info.voices.get(language)
    if voices is None:
        known = ", ".join(sorted(info.voices))
        raise RequestError(
            f"{info.name} does not speak {language!r}; it speaks {known}",
            code="unsupported_language",
            param="language",
        )
    return voices


def chosen_voice(info: TtsInfo, language: str, voice: str | None) -> str:
    """Raises RequestError unsupported_language, unknown_voice."""
    voices = voices_of(info, language)
    if voice is None:
        return voices[0]
    if voice not in voices:
        raise RequestError(
            f"{info.name} has no voice {voice!r}; for {language} it has {', '.join(voices)}",
            code="unknown_voice",
            param="voice",
        )
    return voice


def checked_speed(speed: float) -> float:
    """Raises RequestError."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise RequestError(f"speed {speed} is not in [{MIN_SPEED}, {MAX_SPEED}]", param="speed")
    return speed
