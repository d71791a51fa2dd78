"""Tools of a device: JSON-RPC 2.0 in messages of type `mcp`, we are the client. Sheet section 8.

Stock firmware drops requests whose `id` is no number, gives errors without a code, answers
`tools/list` in pages of some 8 kB, and runs calls one after the other.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROTOCOL_VERSION = "2024-11-05"

MAX_TOOLS = 64
"A language model chooses poorly among more; stock boards have some ten."

MAX_PAGES = 16
"Of `tools/list`: a device that always names a next one is not asked for ever."

MAX_RESULT_CHARS = 8_000
"Of a tool's text, as much as one page of tools: what a model reads of it."

MAX_ERROR_CHARS = 500
MAX_DESCRIPTION_CHARS = 1_000
MAX_NAME_CHARS = 64
"Of a function's name, to language models."

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceTool:
    name: str
    "As the device calls it: `self.screen.set_theme`."
    alias: str
    "As language models may call it, who know no dots."
    description: str
    parameters: Json
    "JSON Schema."


@dataclass(frozen=True, slots=True)
class DeviceInitializeResult:
    """The device speaks MCP; its tools are asked for next."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class DeviceListToolsResult:
    tools: tuple[DeviceTool, ...]
    cursor: str
    "Of the next page; empty: these are all."


@dataclass(frozen=True, slots=True)
class DeviceCallToolResult:
    """What a call came to."""

    id: int
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class DeviceMcpError:
    """Another request than a call was answered with an error."""

    method: str
    message: str


DeviceMcpOutcome = (
    DeviceInitializeResult | DeviceListToolsResult | DeviceCallToolResult | DeviceMcpError
)


@dataclass(slots=True)
class DeviceMcpClient:
    """One connection's. Requests are made here and sent elsewhere; answers are given to `receive`.
    Forget a request that is waited for no longer: its answer is then nobody's."""

    client: tuple[str, str] = ("earshot", "")
    "Our name and version."
    _waiting: dict[int, str] = field(default_factory=dict[int, str])
    "Method of each request that is not answered."
    _last_id: int = 0
    _pages: int = 0
    _tools: dict[str, DeviceTool] = field(default_factory=dict[str, DeviceTool])
    "By alias."

    def initialize(self) -> Json:
        """The first request. `vision` is where a device sends pictures: empty, for no model here
        looks at them; without it xiaozhi-sdk 0.5.1 fails and offers no tools."""
        name, version = self.client
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {"vision": {"url": "", "token": ""}},
            "clientInfo": {"name": name, "version": version},
        }
        return self._request("initialize", params)

    def list_tools(self, cursor: str = "") -> Json:
        """Without those that are for people (firmware updates, a reboot)."""
        return self._request("tools/list", {"cursor": cursor, "withUserTools": False})

    def call(self, name: str, arguments: Json) -> tuple[int, Json]:
        """`name` as the device calls it. The id comes back in `DeviceCallToolResult`."""
        request = self._request("tools/call", {"name": name, "arguments": dict(arguments)})
        return self._last_id, request

    def forget(self, request_id: int) -> None:
        self._waiting.pop(request_id, None)

    def receive(self, payload: Json) -> DeviceMcpOutcome | None:
        """None: an answer to nothing, or a notification."""
        request_id = payload.get("id")
        if isinstance(request_id, bool) or not isinstance(request_id, int):
            return None
        method = self._waiting.pop(request_id, None)
        if method is None:
            return None
        error, result = payload.get("error"), payload.get("result")
        if error is not None or not isinstance(result, Mapping):
            message = _error_text(error)
            if method == "tools/call":
                return DeviceCallToolResult(request_id, message, is_error=True)
            return DeviceMcpError(method, message)
        match method:
            case "initialize":
                return _initialized(result)
            case "tools/list":
                return self._listed(result)
            case _:
                return DeviceCallToolResult(
                    request_id, _text_of(result), result.get("isError") is True
                )

    def _request(self, method: str, params: Json) -> Json:
        self._last_id += 1
        self._waiting[self._last_id] = method
        return {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}

    def _listed(self, result: Json) -> DeviceListToolsResult:
        self._pages += 1
        tools = result.get("tools")
        for one in tools if isinstance(tools, list) else []:
            tool = _tool(one)
            if tool is not None and len(self._tools) < MAX_TOOLS:
                self._tools.setdefault(tool.alias, tool)
        cursor = result.get("nextCursor")
        has_more = isinstance(cursor, str) and self._pages < MAX_PAGES
        return DeviceListToolsResult(tuple(self._tools.values()), str(cursor) if has_more else "")


def alias_of(name: str) -> str:
    """What language models take: letters, digits, `_` and `-`."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME_CHARS]


def _tool(one: Any) -> DeviceTool | None:
    if not isinstance(one, Mapping):
        return None
    name, description, schema = (one.get(key) for key in ("name", "description", "inputSchema"))
    if not (isinstance(name, str) and name):
        return None
    return DeviceTool(
        name,
        alias_of(name),
        description[:MAX_DESCRIPTION_CHARS] if isinstance(description, str) else "",
        schema if isinstance(schema, Mapping) else {"type": "object", "properties": {}},
    )


def _initialized(result: Json) -> DeviceInitializeResult:
    about = result.get("serverInfo")
    about = about if isinstance(about, Mapping) else {}
    name, version = about.get("name"), about.get("version")
    return DeviceInitializeResult(
        name[:MAX_NAME_CHARS] if isinstance(name, str) else "",
        version[:MAX_NAME_CHARS] if isinstance(version, str) else "",
    )


def _text_of(result: Json) -> str:
    """Its texts. Of a picture, which stock firmware gives in a shape of its own, only that it is
    one."""
    texts: list[str] = []
    content = result.get("content")
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, Mapping):
            continue
        if part.get("type") == "image":
            texts.append("(an image, which is not looked at)")
        elif isinstance(text := part.get("text"), str):
            texts.append(text)
    return "\n".join(texts)[:MAX_RESULT_CHARS]


def _error_text(error: Any) -> str:
    message = error.get("message") if isinstance(error, Mapping) else error
    if isinstance(message, str) and message:
        return message[:MAX_ERROR_CHARS]
    return "the device gave neither a result nor a reason"
