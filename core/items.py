"""What a conversation is made of: items, as OpenAI Realtime defines them, transport-neutral."""

from dataclasses import dataclass
from typing import Literal

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ImageDetail = Literal["auto", "low", "high"]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    """Something said: by the user (transcript None until it is known) or by the assistant."""

    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class ImagePart:
    """Something to look at."""

    url: str
    "A `data:` URL with all of it; empty once it is no longer kept."
    detail: ImageDetail = "auto"


Part = TextPart | AudioPart | ImagePart


@dataclass(frozen=True, slots=True)
class MessageItem:
    id: str
    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...] = ()
    status: ItemStatus = "completed"

    @property
    def text(self) -> str:
        """What was said or written, parts joined; untranscribed audio and images count as
        nothing."""
        return " ".join(text for text in map(_text_of, self.parts) if text)

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """Those that are still kept."""
        return tuple(part for part in self.parts if isinstance(part, ImagePart) and part.url)


@dataclass(frozen=True, slots=True)
class FunctionCallItem:
    id: str
    call_id: str
    name: str
    arguments: str
    "A JSON object."
    status: ItemStatus = "completed"


@dataclass(frozen=True, slots=True)
class FunctionOutputItem:
    id: str
    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class ItemReference:
    """Stands for an item that the conversation has."""

    id: str


Item = MessageItem | FunctionCallItem | FunctionOutputItem


def _text_of(part: Part) -> str:
    match part:
        case TextPart(text=text):
            return text
        case AudioPart(transcript=transcript):
            return transcript or ""
        case ImagePart():
            return ""
