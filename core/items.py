"""What a conversation is made of: items, as OpenAI Realtime defines them, transport-neutral."""

from dataclasses import dataclass
from typing import Literal

ItemStatus = Literal["in_progress", "completed", "incomplete"]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    """Something said: by the user (transcript None until it is known) or by the assistant."""

    transcript: str | None = None


Part = TextPart | AudioPart


@dataclass(frozen=True, slots=True)
class MessageItem:
    id: str
    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...] = ()
    status: ItemStatus = "completed"

    @property
    def text(self) -> str:
        """What was said or written, parts joined; untranscribed audio counts as nothing."""
        texts = (p.text if isinstance(p, TextPart) else p.transcript or "" for p in self.parts)
        return " ".join(t for t in texts if t)


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
