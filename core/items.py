"""What a conversation is made of: items, as OpenAI Realtime defines them, transport-neutral."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from json import dumps
from typing import Any, Literal


def utf8_bytes(text: str) -> int:
    """The size of a text as UTF-8, lone surrogates included."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


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


ContentPart = TextPart | AudioPart | ImagePart


@dataclass(frozen=True, slots=True)
class MessageItem:
    id: str
    role: Literal["system", "user", "assistant"]
    parts: tuple[ContentPart, ...] = ()
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
class McpToolDefinition:
    """A tool of an MCP server, as that declares it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    is_read_only: bool = False
    size_bytes: int = field(init=False, compare=False)
    "About its size as JSON. Counted once: a history asks at each of its items."

    def __post_init__(self) -> None:
        schema = dumps(self.input_schema)
        size_bytes = utf8_bytes(self.name) + utf8_bytes(self.description) + len(schema)
        object.__setattr__(self, "size_bytes", size_bytes)


@dataclass(frozen=True, slots=True)
class McpListItem:
    """What an MCP server that a client named has to offer; empty until it is known."""

    id: str
    server_label: str
    tools: tuple[McpToolDefinition, ...] = ()


@dataclass(frozen=True, slots=True)
class McpApprovalRequestItem:
    """The model wants to call a tool that the client has to allow first."""

    id: str
    server_label: str
    name: str
    arguments: str
    "A JSON object."
    known_as: str
    "The tool's name as models know it."


@dataclass(frozen=True, slots=True)
class McpApprovalResponseItem:
    id: str
    approval_request_id: str
    approve: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class McpCallItem:
    """A call of an MCP server's tool, which the server makes."""

    id: str
    server_label: str
    name: str
    arguments: str
    "A JSON object."
    known_as: str
    "The tool's name as models know it."
    result: str | None = None
    "As the model sees it, a JSON object; None: there is none yet."
    approval_request_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemReference:
    """Stands for an item that the conversation has."""

    id: str


Item = (
    MessageItem
    | FunctionCallItem
    | FunctionOutputItem
    | McpListItem
    | McpApprovalRequestItem
    | McpApprovalResponseItem
    | McpCallItem
)


def _text_of(part: ContentPart) -> str:
    match part:
        case TextPart(text=text):
            return text
        case AudioPart(transcript=transcript):
            return transcript or ""
        case ImagePart():
            return ""
