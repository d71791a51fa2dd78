"""MCP servers and their items in client JSON: parsing and display. Secrets are read, never
shown."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from msgspec import UNSET, Meta, UnsetType
from msgspec.json import decode

from core.conversation.items import (
    McpApprovalRequestItem,
    McpApprovalResponseItem,
    McpCallItem,
    McpListItem,
    McpToolDefinition,
)
from core.errors import RequestError
from core.http.fetch_policy import UrlNotAllowed, parse_fetch_target
from pipeline.shared.mcp_servers import (
    ALL_TOOLS,
    ALWAYS,
    NEVER,
    ApprovalPolicy,
    ClientMcpServer,
    McpToolFilter,
)
from signaling.realtime.protocol.structs import OptionalField, StrictStruct, sent_object

MAX_HEADERS = 32
MAX_HEADER_CHARS = 8192
"Longest header value, as web servers accept it; it fits the longest tokens."

McpServerLabel = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
McpToolName = Annotated[str, Meta(min_length=1, max_length=128)]
HeaderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]
HeaderValue = Annotated[str, Meta(pattern=r"^[ -~]*$", max_length=MAX_HEADER_CHARS)]

FORBIDDEN_HEADERS = frozenset(
    ("connection", "content-length", "content-type", "host", "transfer-encoding", "upgrade")
)
"Headers that describe the request itself; a client must not set them."


class FilterObject(StrictStruct, frozen=True):
    """Selection of a server's tools, by name or by being read-only."""

    tool_names: OptionalField[list[McpToolName]] = UNSET
    read_only: OptionalField[bool] = UNSET


class ApprovalObject(StrictStruct, frozen=True):
    """Tools whose calls always or never need the client's approval."""

    always: OptionalField[FilterObject] = UNSET
    never: OptionalField[FilterObject] = UNSET


class McpTool(StrictStruct, frozen=True, tag="mcp", tag_field="type"):
    """MCP server in a client's list of tools."""

    server_label: McpServerLabel
    server_url: OptionalField[Annotated[str, Meta(min_length=1, max_length=1024)]] = UNSET
    connector_id: OptionalField[str] = UNSET
    tunnel_id: OptionalField[str] = UNSET
    authorization: OptionalField[Annotated[HeaderValue, Meta(min_length=1)]] = UNSET
    headers: OptionalField[
        Annotated[dict[HeaderName, HeaderValue], Meta(max_length=MAX_HEADERS)]
    ] = UNSET
    allowed_tools: OptionalField[list[McpToolName] | FilterObject] = UNSET
    require_approval: OptionalField[Literal["always", "never"] | ApprovalObject] = UNSET
    server_description: OptionalField[Annotated[str, Meta(max_length=1000)]] = UNSET
    defer_loading: OptionalField[bool] = UNSET
    "Accepted without effect: all tools are always offered at once."
    allowed_callers: OptionalField[list[Literal["direct", "programmatic"]]] = UNSET

    def __repr__(self) -> str:
        return f"McpTool({self.server_label!r})"


class McpChoice(StrictStruct, frozen=True, tag="mcp", tag_field="type"):
    """Tool choice: this MCP server, or one of its tools."""

    server_label: McpServerLabel
    name: McpToolName | None = None


def remote_server(sent: McpTool, param: str, at: str) -> ClientMcpServer:
    """Converts a client's MCP server. `param`: path of its field, for errors. `at`: path for
    errors that the session finds later. Raises RequestError for unsupported features and for a URL
    that cannot be fetched."""
    for name in ("connector_id", "tunnel_id"):
        if not isinstance(getattr(sent, name), UnsetType | None):
            raise RequestError(
                f"'{param}.{name}' is not supported: this server has no connectors and no tunnels. "
                "Allowed: server_url.",
                code="unsupported_parameter",
                param=f"{param}.{name}",
            )
    url = sent_object(sent.server_url) or ""
    if not url and param.startswith("session"):
        raise RequestError(
            f"Missing required parameter: '{param}.server_url'.",
            code="missing_required_parameter",
            param=f"{param}.server_url",
        )
    if url:
        try:
            # checked here already: the session shows its servers, and that parses the URL
            parse_fetch_target(url)
        except UrlNotAllowed as why:
            raise RequestError(
                f"The MCP server {sent.server_label!r} is refused: {why}.",
                code="mcp_server_refused",
                param=f"{param}.server_url",
            ) from None
    return ClientMcpServer(
        sent.server_label,
        url,
        _headers(sent, param),
        sent_object(sent.server_description) or "",
        _allowed(sent.allowed_tools),
        _approval(sent_object(sent.require_approval)),
        at,
        _omitted_fields(sent),
    )


def _omitted_fields(sent: McpTool) -> frozenset[str]:
    """Returns the fields of ClientMcpServer for which the client sent nothing."""
    sources = {
        "headers": (sent.headers, sent.authorization),
        "description": (sent.server_description,),
        "allowed": (sent.allowed_tools,),
        "approval": (sent.require_approval,),
    }
    return frozenset(
        name for name, values in sources.items() if all(value is UNSET for value in values)
    )


def server_json(server: ClientMcpServer) -> dict[str, object]:
    """Returns the server's JSON without secrets: no `authorization`, no `headers`, no query of the
    URL."""
    scheme, netloc, path, *_ = urlsplit(server.url)
    return {
        "type": "mcp",
        "server_label": server.label,
        "server_url": urlunsplit((scheme, netloc, path, "", "")),
        "server_description": server.description or None,
        "allowed_tools": None if server.allowed == ALL_TOOLS else _filter_json(server.allowed),
        "require_approval": _approval_json(server.approval),
    }


McpItem: TypeAlias = McpListItem | McpApprovalRequestItem | McpApprovalResponseItem | McpCallItem


def mcp_item_json(item: McpItem) -> dict[str, object]:
    """Returns an item of an MCP server as clients see it."""
    match item:
        case McpListItem(server_label=label, tools=tools):
            shown = [_tool_json(tool) for tool in tools]
            return {"type": "mcp_list_tools", "server_label": label, "tools": shown}
        case McpApprovalRequestItem(server_label=label, name=name, arguments=arguments):
            ids = {"server_label": label, "name": name, "arguments": arguments}
            return {"type": "mcp_approval_request", **ids}
        case McpApprovalResponseItem(approval_request_id=request, approve=approve, reason=reason):
            decision = {"approval_request_id": request, "approve": approve, "reason": reason}
            return {"type": "mcp_approval_response", **decision}
        case McpCallItem():
            return {
                "type": "mcp_call",
                "server_label": item.server_label,
                "name": item.name,
                "arguments": item.arguments,
                "approval_request_id": item.approval_request_id,
                **_result_json(item.result),
            }


def _result_json(result: str | None) -> dict[str, object]:
    """Returns a call's output or error: text as the tool wrote it, anything else as JSON."""
    if result is None:
        return {"output": None, "error": None}
    data = decode(result)
    if not isinstance(data, dict):
        return {"output": result, "error": None}
    if "error" in data:
        message = str(data.get("message") or data["error"])
        return {"output": None, "error": {"type": "tool_execution_error", "message": message}}
    inner = next(iter(data.values())) if data.keys() in ({"text"}, {"result"}) else None
    return {"output": inner if isinstance(inner, str) else result, "error": None}


def _tool_json(tool: McpToolDefinition) -> dict[str, object]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "annotations": {"readOnlyHint": tool.is_read_only},
    }


def _headers(sent: McpTool, param: str) -> Mapping[str, str]:
    """Returns the headers, with the token as Authorization. Raises RequestError."""
    headers = dict(sent_object(sent.headers) or {})
    token = sent_object(sent.authorization)
    for name in headers:
        is_twice = token is not None and name.lower() == "authorization"
        if name.lower() in FORBIDDEN_HEADERS or is_twice:
            raise RequestError(
                f"'{param}.headers' must not hold {name!r}.",
                code="invalid_value",
                param=f"{param}.headers",
            )
    return headers if token is None else {**headers, "Authorization": f"Bearer {token}"}


def _allowed(sent: OptionalField[list[str] | FilterObject]) -> McpToolFilter:
    if isinstance(sent, list):
        return McpToolFilter(tuple(sent))
    return _filter(sent_object(sent)) or ALL_TOOLS


def _filter(sent: FilterObject | None) -> McpToolFilter | None:
    if sent is None:
        return None
    names = sent_object(sent.tool_names)
    return McpToolFilter(None if names is None else tuple(names), sent_object(sent.read_only))


def _filter_json(filter_: McpToolFilter) -> dict[str, object]:
    names = None if filter_.names is None else list(filter_.names)
    shown = {"tool_names": names, "read_only": filter_.read_only}
    return {name: value for name, value in shown.items() if value is not None}


def _approval(sent: Literal["always", "never"] | ApprovalObject | None) -> ApprovalPolicy:
    """Converts the approval policy. Without one each call needs approval, as with
    OpenAI's service."""
    if isinstance(sent, ApprovalObject):
        return ApprovalPolicy(_filter(sent_object(sent.always)), _filter(sent_object(sent.never)))
    return NEVER if sent == "never" else ALWAYS


def _approval_json(approval: ApprovalPolicy) -> str | dict[str, object]:
    if approval in (ALWAYS, NEVER):
        return "always" if approval == ALWAYS else "never"
    filters = {"always": approval.always, "never": approval.never}
    return {name: _filter_json(value) for name, value in filters.items() if value is not None}
