"""Steps that all voices share: clean the text, cut it into clauses, check voice and speed."""

import re
import unicodedata
from collections.abc import Iterator

from core.errors import PayloadTooLarge, RequestError
from engines.base import TtsInfo

MAX_CLAUSE_CHARS = 300
"Longest clause. Its audio, 20 s, is the most that is kept for a session that reads slowly."

MAX_CHUNK_CHARS = 20_000
"Longest chunk of text: twenty minutes of speech. Cleaning it blocks the event loop for 5 ms."

UNSPEAKABLE = "unspeakable_text"
"Code of the RequestError for a text that the voice cannot read."

UNKNOWN_VOICE = "unknown_voice"
"Code of the RequestError for a voice that the engine does not have."

MIN_SPEED, MAX_SPEED = 0.25, 4.0
"Range of speeds that callers may request; 1 is normal."

_CLAUSE_ENDS = (
    re.compile(r"[.!?。！？…]+\s+"),
    re.compile(r"[,;:、，；：]\s*"),
    re.compile(r"\s+"),
)
"Places where a long text is cut, best first."

_SPEAKABLE = re.compile(r"[^\s.,;:!?…\-–—'\"()\[\]]")


def clauses_of(
    chunk: str, *, max_clause_chars: int = MAX_CLAUSE_CHARS
) -> Iterator[tuple[int, str]]:
    """Yields (start in `chunk`, cleaned text) of each clause to speak.

    Raises PayloadTooLarge beyond MAX_CHUNK_CHARS.
    """
    if len(chunk) > MAX_CHUNK_CHARS:
        raise PayloadTooLarge(
            f"the text has {len(chunk)} characters; allowed: up to {MAX_CHUNK_CHARS}"
        )
    return split_clauses(sanitise(chunk), max_clause_chars)


def sanitise(text: str) -> str:
    """Replaces characters that no voice can speak by spaces; positions stay the same.

    These are control characters (with one of them, eSpeak's embedded commands start), lone
    surrogates, unassigned code points and those for private use.
    """
    return "".join(" " if unicodedata.category(c) in {"Cc", "Cs", "Cn", "Co"} else c for c in text)


def split_clauses(text: str, max_chars: int = MAX_CLAUSE_CHARS) -> Iterator[tuple[int, str]]:
    """Yields (start in `text`, clause) for clauses of at most `max_chars` characters.

    A long text is cut where a speaker would pause. Clauses without words are left out.
    """
    start, end = 0, len(text.rstrip())
    while start < end:
        start += len(text[start:end]) - len(text[start:end].lstrip())
        cut = start + _cut_index(text[start:end], max_chars) if end - start > max_chars else end
        clause = text[start:cut].rstrip()
        if _SPEAKABLE.search(clause):
            yield start, clause
        start = cut


def _cut_index(text: str, max_chars: int) -> int:
    """Returns the best index to cut a text at, at most `max_chars`."""
    for pattern in _CLAUSE_ENDS:
        ends = [match.end() for match in pattern.finditer(text, 0, max_chars)]
        if ends:
            return ends[-1]
    return max_chars


def language_voices(info: TtsInfo, language: str) -> tuple[str, ...]:
    """Returns the voices of a language. Raises RequestError (`unsupported_language`)."""
    voices = info.voices.get(language)
    if voices is None:
        known = ", ".join(sorted(info.voices))
        raise RequestError(
            f"{info.name} does not speak {language!r}; it speaks {known}",
            code="unsupported_language",
            param="language",
        )
    return voices


def choose_voice(info: TtsInfo, language: str, voice: str | None) -> str:
    """Returns `voice`, or the language's default voice for None.

    Raises RequestError (`unsupported_language`, `unknown_voice`).
    """
    voices = language_voices(info, language)
    if voice is None:
        return voices[0]
    if voice not in voices:
        raise RequestError(
            f"{info.name} has no voice {voice!r}; for {language} it has {', '.join(voices)}",
            code=UNKNOWN_VOICE,
            param="voice",
        )
    return voice


def check_speed(speed: float) -> float:
    """Returns `speed`. Raises RequestError outside MIN_SPEED to MAX_SPEED."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        message = f"speed {speed} is not allowed; allowed: {MIN_SPEED} to {MAX_SPEED}"
        raise RequestError(message, param="speed")
    return speed
