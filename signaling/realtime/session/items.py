"""Converts items that a client adds to the conversation."""

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.json import encode

from core.conversation.ids import new_id
from core.conversation.items import (
    AudioPart,
    ContentPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    McpApprovalRequestItem,
    McpApprovalResponseItem,
    McpCallItem,
    McpListItem,
    McpToolDefinition,
    MessageItem,
    TextPart,
)
from core.errors import RequestError
from pipeline.tools.calls.arguments import MAX_DEPTH, is_too_deep
from pipeline.tools.mcp.schema import FORBIDDEN_NAME_CHARS, MAX_NAME_CHARS
from signaling.realtime.protocol.client_events import (
    ContentPartObject,
    NewApprovalRequest,
    NewApprovalResponse,
    NewConversationItem,
    NewFunctionCall,
    NewFunctionOutput,
    NewMcpCall,
    NewMcpList,
    NewMcpTool,
    NewMessage,
)

MAX_IMAGE_CHARS = 2 * 1024 * 1024
"""Limit of one image's data URL, 1.5 MB as a file: a photo of 2000 pixels. Models process no more
detail."""

READ_ONLY_HINT = "readOnlyHint"
"Annotation of a tool that is kept; all others are dropped."

_ALLOWED = {
    "system": ("input_text",),
    "user": ("input_text", "input_audio", "input_image"),
    "assistant": ("output_text", "output_audio"),
}
"Types of content parts by the role of the message."
_IMAGE = re.compile(r"data:image/(?:png|jpeg);base64,")
"Beginning of an image's data URL."
_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
"First bytes of PNG and JPEG files."


@dataclass(frozen=True, slots=True)
class ClientItem:
    """Item from a client, with the audio that is still to be recognised."""

    item: Item
    recordings: Mapping[int, str] = field(default_factory=dict[int, str])
    "Index of the content part -> base64 of its audio, in the session's input format."


def new_item(item: NewConversationItem | NewApprovalResponse, prefix: str = "item") -> ClientItem:
    """Converts an item; gives it an id if the client gave none. Raises RequestError for unsupported
    content, with its `param` below `prefix`."""
    item_id = item.id or new_id("item")
    match item:
        case NewMessage(role=role, content=content):
            parts = tuple(
                _part(part, role, f"{prefix}.content[{index}]".lstrip("."))
                for index, part in enumerate(content)
            )
            recordings = {
                index: part.audio
                for index, part in enumerate(content)
                if part.type == "input_audio" and part.audio is not None
            }
            return ClientItem(MessageItem(item_id, role, parts), recordings)
        case NewFunctionCall(name=name, arguments=arguments):
            call_id = item.call_id or new_id("call")
            return ClientItem(FunctionCallItem(item_id, call_id, name, arguments))
        case NewFunctionOutput(call_id=call_id, output=output):
            return ClientItem(FunctionOutputItem(item_id, call_id, output))
        case NewMcpCall():
            return ClientItem(_call(item, item_id))
        case NewMcpList(server_label=label, tools=tools):
            at = f"{prefix}.tools".lstrip(".")
            listed = [_listed(tool, f"{at}[{index}]") for index, tool in enumerate(tools)]
            return ClientItem(McpListItem(item_id, label, tuple(listed)))
        case NewApprovalRequest(server_label=label, name=name, arguments=arguments):
            known_as = _known_as(name)
            return ClientItem(McpApprovalRequestItem(item_id, label, name, arguments, known_as))
        case NewApprovalResponse(approval_request_id=request, approve=approve, reason=reason):
            return ClientItem(McpApprovalResponseItem(item_id, request, approve, reason))


def _call(sent: NewMcpCall, item_id: str) -> McpCallItem:
    data: dict[str, object] = {"text": sent.output} if sent.output is not None else {}
    if sent.error is not None:
        message = str(sent.error.get("message", "it failed"))
        data = {"error": "tool_failed", "message": message}
    ids = item_id, sent.server_label, sent.name, sent.arguments, _known_as(sent.name)
    result = encode(data).decode() if data else None
    return McpCallItem(*ids, result, sent.approval_request_id)


def _known_as(name: str) -> str:
    """Returns the name that the tool would have here, by which models know it."""
    return FORBIDDEN_NAME_CHARS.sub("_", name)[:MAX_NAME_CHARS]


def _listed(tool: NewMcpTool, param: str) -> McpToolDefinition:
    if is_too_deep(tool.input_schema):
        raise RequestError(
            f"'{param}.input_schema' has more than {MAX_DEPTH} levels.",
            code="invalid_value",
            param=f"{param}.input_schema",
        )
    is_read_only = (tool.annotations or {}).get(READ_ONLY_HINT) is True
    return McpToolDefinition(tool.name, tool.description or "", tool.input_schema, is_read_only)


def _part(content: ContentPartObject, role: str, param: str) -> ContentPart:
    """Converts one content part. Raises RequestError for content that the role cannot have."""
    if content.type not in _ALLOWED[role]:
        raise RequestError(
            f"Invalid value for '{param}.type' in a message of the {role}. "
            f"Allowed: {', '.join(_ALLOWED[role])}.",
            code="invalid_value",
            param=f"{param}.type",
        )
    match content.type:
        case "input_text" | "output_text":
            return TextPart(_require_value(content.text, f"{param}.text"))
        case "input_image":
            url = _image(
                _require_value(content.image_url, f"{param}.image_url"), f"{param}.image_url"
            )
            return ImagePart(url, content.detail or "auto")
        case "input_audio" if content.audio is not None:
            return AudioPart()  # the recognised text counts, not a transcript of the client
        case "input_audio":
            return AudioPart(
                _require_value(content.transcript, f"{param}.audio", "It has no transcript either.")
            )
        case "output_audio":
            why = "Audio of the assistant is not kept: what was said counts."
            return AudioPart(_require_value(content.transcript, f"{param}.transcript", why))


def _require_value(value: str | None, param: str, why: str = "") -> str:
    if value is None:
        raise RequestError(
            f"Missing required parameter: '{param}'. {why}".rstrip(),
            code="missing_required_parameter",
            param=param,
        )
    return value


def _image(url: str, param: str) -> str:
    """Checks an image and returns its data URL. Raises RequestError. Other URLs are refused: a
    server that fetched them for its clients would reach hosts that the clients cannot."""
    if len(url) > MAX_IMAGE_CHARS:
        raise RequestError(
            f"'{param}' has {len(url)} characters; the limit is {MAX_IMAGE_CHARS}.",
            code="image_too_large",
            param=param,
        )
    head = _IMAGE.match(url)
    try:
        data = b64decode(url[head.end() :], validate=True) if head else b""
    except (binascii.Error, ValueError):
        data = b""
    if not data.startswith(_MAGIC):
        raise RequestError(
            f"Invalid value for '{param}'. Allowed: a data URL of a PNG or JPEG file in base64, "
            "data:image/png;base64,... or data:image/jpeg;base64,...",
            code="invalid_image",
            param=param,
        )
    return url
