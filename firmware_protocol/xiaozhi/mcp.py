"""MCP client for the tools of a device: JSON-RPC 2.0 in messages of type `mcp`.

Earshot is the MCP client, the device the MCP server. Stock firmware drops requests whose `id` is no
number and sends errors without a code. It answers `tools/list` in pages of some 8 kB, and runs
calls one after the other.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PROTOCOL_VERSION = "2024-11-05"

MAX_TOOLS = 64
"Most tools per device: with more a language model chooses poorly. Stock boards have some ten."

MAX_PAGES = 16
"Most pages of `tools/list`, in case a device always names a next one."

MAX_RESULT_CHARS = 8_000
"Longest text of a tool's result that a model gets: as much as one page of tools."

MAX_ERROR_CHARS = 500
MAX_DESCRIPTION_CHARS = 1_000
MAX_NAME_CHARS = 64
"Longest name of a function that language models take."

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DeviceTool:
    """A tool that a device offers."""

    name: str
    "Name on the device: `self.screen.set_theme`."
    alias: str
    "Name for language models, which allow no dots."
    description: str
    parameters: Json
    "JSON Schema of the arguments."


@dataclass(frozen=True, slots=True)
class DeviceInitializeResult:
    """Result of `initialize`: the device speaks MCP. Its tools are requested next."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class DeviceListToolsResult:
    """Result of `tools/list`: all tools so far."""

    tools: tuple[DeviceTool, ...]
    cursor: str
    "Cursor of the next page; empty: there is none."


@dataclass(frozen=True, slots=True)
class DeviceCallToolResult:
    """Result of a tool call."""

    id: int
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class DeviceMcpError:
    """Error answer to a request other than a tool call."""

    method: str
    message: str


DeviceMcpOutcome = (
    DeviceInitializeResult | DeviceListToolsResult | DeviceCallToolResult | DeviceMcpError
)


@dataclass(slots=True)
class DeviceMcpClient:
    """MCP client of one connection, without I/O.

    It makes requests, which the caller sends, and takes the answers by `receive`. Call `forget` for
    a request that is no longer waited for; its answer is then ignored.
    """

    client: tuple[str, str] = ("earshot", "")
    "Our name and version."
    _waiting: dict[int, str] = field(default_factory=dict[int, str])
    "Request id -> method, for requests without an answer."
    _last_id: int = 0
    _pages: int = 0
    _tools: dict[str, DeviceTool] = field(default_factory=dict[str, DeviceTool])
    "Tools by alias."

    def initialize(self) -> Json:
        """Returns the first request.

        Its `vision` says where the device sends pictures. It is empty, as no model here looks at
        them; without the field xiaozhi-sdk 0.5.1 fails and offers no tools.
        """
        name, version = self.client
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {"vision": {"url": "", "token": ""}},
            "clientInfo": {"name": name, "version": version},
        }
        return self._request("initialize", params)

    def list_tools(self, cursor: str = "") -> Json:
        """Returns a request for tools, without those for people only (firmware updates, reboot)."""
        return self._request("tools/list", {"cursor": cursor, "withUserTools": False})

    def call(self, name: str, arguments: Json) -> tuple[int, Json]:
        """Returns (id, request) for a tool call. The id comes back in `DeviceCallToolResult`.

        `name`: name on the device, not the alias.
        """
        request = self._request("tools/call", {"name": name, "arguments": dict(arguments)})
        return self._last_id, request

    def forget(self, request_id: int) -> None:
        """Ignores the answer to a request from now on."""
        self._waiting.pop(request_id, None)

    def receive(self, payload: Json) -> DeviceMcpOutcome | None:
        """Returns the outcome of a request.

        None for a notification, and for an answer that is not waited for.
        """
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
        for entry in tools if isinstance(tools, list) else []:
            tool = _tool(entry)
            if tool is not None and len(self._tools) < MAX_TOOLS:
                self._tools.setdefault(tool.alias, tool)
        cursor = result.get("nextCursor")
        has_more = isinstance(cursor, str) and self._pages < MAX_PAGES
        return DeviceListToolsResult(tuple(self._tools.values()), str(cursor) if has_more else "")


def alias_of(name: str) -> str:
    """Returns a name that language models take: letters, digits, `_` and `-`."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME_CHARS]


def _tool(entry: object) -> DeviceTool | None:
    if not isinstance(entry, Mapping):
        return None
    name, description, schema = (entry.get(key) for key in ("name", "description", "inputSchema"))
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
    """Returns the texts of a result, and a note for each image.

    Stock firmware sends images in a shape of its own; they are not used.
    """
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


def _error_text(error: object) -> str:
    message = error.get("message") if isinstance(error, Mapping) else error
    if isinstance(message, str) and message:
        return message[:MAX_ERROR_CHARS]
    return "the device gave neither a result nor a reason"
