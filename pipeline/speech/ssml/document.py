"""Content of an SSML document: texts with their manners, and pauses. Pure."""

import re
from dataclasses import dataclass

from pipeline.speech.ssml.manner import SpeechManner
from pipeline.speech.synthesis import Pause

_BEGINNING = re.compile(r"\s*(?:<\?xml[^<>]{0,200}\?>\s*)?<speak[\s/>]")


@dataclass(frozen=True, slots=True)
class SsmlText:
    """Text that is spoken in one manner. It ends a sentence."""

    text: str
    manner: SpeechManner


@dataclass(frozen=True, slots=True)
class SsmlDocument:
    """A document that was read."""

    parts: tuple[SsmlText | Pause, ...]
    language: str | None
    "Language of the whole text (ISO 639-1). None: the document does not say."

    @property
    def plain_text(self) -> str:
        """The words without marks."""
        return " ".join(part.text for part in self.parts if isinstance(part, SsmlText))


def is_ssml(text: str) -> bool:
    """Returns whether a text is meant as SSML: it begins with `<speak>`."""
    return _BEGINNING.match(text) is not None
