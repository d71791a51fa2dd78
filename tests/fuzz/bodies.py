"""JSON from outside: MCP servers, model servers, and clients that manage devices."""

import json
from typing import Any

from mcp_types import CallToolResult, ListToolsResult
from pydantic import ValidationError

from core.errors import RemoteProtocolError, RequestError
from core.http.json_body import decode_json_body_or_empty
from devices.api.views import (
    DeviceEdit,
    FirmwareUpdateRequest,
    NotificationRequest,
    PairRequest,
    ProfileEdit,
)
from devices.fleet.directory import DeviceProfile
from engines.llm.openai.chunks import read_chunk
from pipeline.tools.mcp.schema import (
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    MAX_TOOLS,
    tool_outcome,
    tool_specs,
)
from pipeline.tools.mcp.settings import McpServerSettings
from server.http.named_key_views import NamedKeyRequest
from tests.fuzz.target import Target, lines

TEXT = {"type": "text", "text": "it is on"}
MCP: tuple[Any, ...] = (
    {"content": [TEXT, TEXT], "isError": False},
    {"content": [TEXT], "structuredContent": {"state": "on"}},
    {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}], "isError": True},
    {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "x"}}]},
    {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
    {
        "tools": [
            {
                "name": "lamp/on",
                "description": "Switches.",
                "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
                "annotations": {"readOnlyHint": True},
            }
        ],
        "nextCursor": "c",
    },
)
SERVER = McpServerSettings(command="x")
CHUNKS: tuple[Any, ...] = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Yes"}}]},
    {"choices": [{"delta": {"content": [{"type": "text", "text": "x"}]}, "finish_reason": "stop"}]},
    {
        "choices": [
            {
                "delta": {
                    "tool_calls": [
                        {"index": 0, "id": "c", "function": {"name": "lamp", "arguments": "{"}}
                    ]
                }
            }
        ]
    },
    {"usage": {"prompt_tokens": 5, "completion_tokens": 1}, "choices": []},
    {"error": {"message": "no", "code": 400}},
)
EDITS: tuple[Any, ...] = (
    {"name": "Kitchen", "area": "kitchen", "profile": {"voice": "low", "language": "de"}},
    {"instructions": "Be kind.", "volume": 30, "answer_temperature": 0.5, "tools": ["timer"]},
    {"code": "123-456"},
    {"text": "The tea is ready.", "audio_url": "https://example.org/a.wav"},
    {"firmware": "1.2.3"},
    {"name": "anna", "scopes": ["talk", "manage"], "max_sessions": 2, "requests_per_minute": 60},
)


def mcp(data: bytes) -> None:
    """Checks that results and tools of an MCP server, once its library has read them, are
    bounded."""
    try:
        told = tool_outcome(CallToolResult.model_validate_json(data))
        json.dumps(told.data)
        assert len(told.data.get("text", "")) <= MAX_TEXT_CHARS or "text" not in told.data
    except ValidationError:
        pass
    try:
        tools, names = tool_specs("house", SERVER, ListToolsResult.model_validate_json(data).tools)
    except ValidationError:
        return
    assert len(tools) <= MAX_TOOLS
    assert {tool.name for tool in tools} == set(names)
    assert all(0 < len(name) <= MAX_NAME_CHARS for name in names)


def chunks(data: bytes) -> None:
    """Checks that an event of a model server's answer is read, or gives an error."""
    try:
        chunk = read_chunk(data.decode(errors="replace"))
    except RemoteProtocolError as error:
        assert len(str(error)) < 1000
        return
    assert isinstance(chunk.error_message, str)
    assert chunk.is_empty in (True, False)


def edits(data: bytes) -> None:
    """Checks that requests to the API of devices give fields, or an error that names one."""
    for wanted in (
        DeviceEdit,
        ProfileEdit,
        PairRequest,
        NotificationRequest,
        FirmwareUpdateRequest,
        NamedKeyRequest,
    ):
        try:
            asked = decode_json_body_or_empty(data, wanted)
        except RequestError as error:
            assert error.code in {"invalid_json", "invalid_value"}
            str(error).encode()
            continue
        if isinstance(asked, ProfileEdit):
            asked.apply_to(DeviceProfile())


TARGETS = (
    Target(name="mcp_results", one_input=mcp, seeds=lines(MCP), is_json=True),
    Target(name="model_chunks", one_input=chunks, seeds=lines(CHUNKS), is_json=True),
    Target(name="device_edits", one_input=edits, seeds=lines(EDITS), is_json=True),
)
