"""Items of a conversation, as OpenAI Realtime defines them, for any transport."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from json import dumps
from typing import Literal


def utf8_bytes(text: str) -> int:
    """Returns the size of a text as UTF-8, lone surrogates included."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


ItemStatus = Literal["in_progress", "completed", "incomplete"]
ImageDetail = Literal["auto", "low", "high"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Written text."""

    text: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    """Speech: of the user (transcript None until it is known) or of the assistant."""

    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image for the language model."""

    url: str
    "`data:` URL with the whole image; empty once it is no longer kept."
    detail: ImageDetail = "auto"


ContentPart = TextPart | AudioPart | ImagePart


@dataclass(frozen=True, slots=True)
class MessageItem:
    """A message of the system, the user or the assistant."""

    id: str
    role: Literal["system", "user", "assistant"]
    parts: tuple[ContentPart, ...] = ()
    status: ItemStatus = "completed"
    speaker: str = ""
    "Name that the model sees before the words; empty: none. Clients do not see it."

    @property
    def text(self) -> str:
        """Text of all parts, joined. Audio without a transcript and images are left out."""
        return " ".join(text for text in map(_text_of, self.parts) if text)

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """Images that are still kept."""
        return tuple(part for part in self.parts if isinstance(part, ImagePart) and part.url)


@dataclass(frozen=True, slots=True)
class FunctionCallItem:
    """Call of a function, by the model."""

    id: str
    call_id: str
    "Links the call with its output."
    name: str
    arguments: str
    "A JSON object."
    status: ItemStatus = "completed"


@dataclass(frozen=True, slots=True)
class FunctionOutputItem:
    """Output of a function call."""

    id: str
    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class McpToolDefinition:
    """Tool of an MCP server, as the server declares it."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    is_read_only: bool = False
    size_bytes: int = field(init=False, compare=False)
    "Approximate size as JSON. Computed once, because a history needs it for each of its items."

    def __post_init__(self) -> None:
        schema = dumps(self.input_schema)
        size_bytes = utf8_bytes(self.name) + utf8_bytes(self.description) + len(schema)
        object.__setattr__(self, "size_bytes", size_bytes)


@dataclass(frozen=True, slots=True)
class McpListItem:
    """Tools of an MCP server that a client named; empty until they are known."""

    id: str
    server_label: str
    tools: tuple[McpToolDefinition, ...] = ()


@dataclass(frozen=True, slots=True)
class McpApprovalRequestItem:
    """Call of an MCP server's tool that the client must approve first."""

    id: str
    server_label: str
    name: str
    arguments: str
    "A JSON object."
    known_as: str
    "Name by which the model calls the tool."


@dataclass(frozen=True, slots=True)
class McpApprovalResponseItem:
    """The client's decision about a call."""

    id: str
    approval_request_id: str
    approve: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class McpCallItem:
    """Call of an MCP server's tool. The server makes it, not the client."""

    id: str
    server_label: str
    name: str
    arguments: str
    "A JSON object."
    known_as: str
    "Name by which the model calls the tool."
    result: str | None = None
    "Output for the model, a JSON object; None: there is none yet."
    approval_request_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemReference:
    """Refers to an item that is already in the conversation."""

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
