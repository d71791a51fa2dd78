"""Reads SSML documents with expat. Pure.

Documents come from strangers: they may declare nothing (no DTD, no entities), and their length,
depth and silence are limited.
"""

from xml.parsers import expat

from core.errors import RequestError
from pipeline.speech.ssml.document import SsmlDocument, SsmlText
from pipeline.speech.ssml.manner import (
    INVALID_SSML,
    MAX_VALUE_CHARS,
    SpeechManner,
    break_ms,
    inner_manner,
    read_language,
)
from pipeline.speech.ssml.say_as import say_as
from pipeline.speech.synthesis import Pause

MAX_CHARS = 65_536
"Longest document. Reading one of this length takes some ms of the event loop."

MAX_DEPTH = 64
"Most elements inside one another; people write five."

MAX_SILENCE_MS = 60_000.0
"Longest silence of one document. Without a limit, 4000 characters could ask for half an hour."

SENTENCES = frozenset(("speak", "p", "s", "paragraph", "sentence"))
"Elements that begin and end a sentence."

UNSPOKEN = frozenset(("desc", "lexicon", "lookup", "meta", "metadata"))
"Elements whose text is about the document."


def read_ssml(text: str, language: str = "") -> SsmlDocument:
    """Reads a document. Raises RequestError `invalid_ssml` with the line of the mistake.

    language: ISO 639-1, in which `<say-as>` is worded where the document names no language.
    """
    if len(text) > MAX_CHARS:
        raise _error(f"the document has {len(text)} characters; allowed: up to {MAX_CHARS}")
    builder = _DocumentBuilder(language)
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.add_text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(text.strip().encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise _error(f"line {error.lineno}, column {error.offset + 1}: {reason}") from None
    return SsmlDocument(tuple(builder.parts), builder.language)


class _DocumentBuilder:
    """Takes the events of the parser, and collects the parts of the document."""

    def __init__(self, language: str) -> None:
        self.parts: list[SsmlText | Pause] = []
        self.language: str | None = None
        "Language that the document names."
        self._default_language = language
        self._manners = [SpeechManner()]
        "Manner of each open element, the innermost last."
        self._kept: list[str] = []
        "Text since the last change of the manner, pause or end of a sentence."
        self._say_as: list[tuple[dict[str, str], list[str]]] = []
        "Attributes and text of the open `<say-as>` elements."
        self._unspoken_depth = 0
        "Number of open elements whose text is not spoken."
        self._silence_ms = 0.0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Takes the beginning of an element."""
        element = name.rpartition(":")[2]
        if len(self._manners) > MAX_DEPTH:
            raise _error(f"more than {MAX_DEPTH} elements inside one another, the limit")
        if len(self._manners) == 1:
            self._start_document(name, attributes)
        manner = inner_manner(self._manners[-1], element, attributes)
        if element in SENTENCES or manner != self._manners[-1]:
            self._end_text()
        self._manners.append(manner)
        is_replaced = element == "sub" and "alias" in attributes
        if is_replaced:
            self.add_text(attributes["alias"])
        if element == "break" and not self._unspoken_depth:
            self._add_pause(break_ms(attributes))
        if element == "say-as":
            self._say_as.append((attributes, []))
        if is_replaced or element in UNSPOKEN or self._unspoken_depth:
            self._unspoken_depth += 1

    def end(self, name: str) -> None:
        """Takes the end of an element."""
        element = name.rpartition(":")[2]
        if self._unspoken_depth:
            self._unspoken_depth -= 1
        if element == "say-as":
            attributes, said = self._say_as.pop()
            language = self._manners[-1].language or self.language or self._default_language
            self.add_text(say_as("".join(said), attributes, language))
        if element in SENTENCES or self._manners[-1] != self._manners[-2]:
            self._end_text()
        self._manners.pop()

    def add_text(self, text: str) -> None:
        """Takes text between two tags, or a part of it."""
        if not self._unspoken_depth:
            kept = self._say_as[-1][1] if self._say_as else self._kept
            kept.append(text)

    def _start_document(self, name: str, attributes: dict[str, str]) -> None:
        if name != "speak":
            raise _error(f"the document begins with <{name[:MAX_VALUE_CHARS]}>, not <speak>")
        if value := attributes.get("xml:lang"):
            self.language = read_language(value)

    def _add_pause(self, duration_ms: float) -> None:
        self._end_text()
        self._silence_ms += duration_ms
        if self._silence_ms > MAX_SILENCE_MS:
            limit_s = MAX_SILENCE_MS / 1000
            raise _error(f"breaks of more than {limit_s:.0f}s together, the limit")
        if duration_ms:
            self.parts.append(Pause(duration_ms))

    def _end_text(self) -> None:
        text = " ".join("".join(self._kept).split())
        self._kept.clear()
        if text:
            self.parts.append(SsmlText(text, self._manners[-1]))


def _refuse_doctype(*_: object) -> None:
    raise _error("a document type (<!DOCTYPE>) is not allowed")


def _error(message: str) -> RequestError:
    return RequestError(f"SSML: {message}", code=INVALID_SSML)
