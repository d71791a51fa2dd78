"""Messages that MCP clients send to this server."""

import json
from typing import Any

from tests.fuzz.target import Target, lines
from web.mcp.messages import (
    MAX_ID_CHARS,
    MAX_ID_NUMBER,
    MAX_METHOD_CHARS,
    JsonRpcError,
    RpcRequest,
    RpcResponse,
    decode_message,
    encode_error,
    encode_result,
)
from web.mcp.revisions import (
    CAPABILITIES_KEY,
    METHOD_HEADER,
    NAME_HEADER,
    NAMED_BY,
    REVISION_HEADER,
    REVISION_KEY,
    SESSION_REVISIONS,
    STATELESS_REVISION,
    check_stateless,
    session_revision,
)

META = {REVISION_KEY: STATELESS_REVISION, CAPABILITIES_KEY: {}}
SEEDS: tuple[Any, ...] = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "HassTurnOn", "arguments": {"area": "kitchen"}, "_meta": META},
    },
    {
        "jsonrpc": "2.0",
        "id": "a",
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}},
    },
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}},
    [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],
)
NUMBERS = {-32700, -32600, -32602, -32020, -32022}


def requests(data: bytes) -> None:
    """Checks that a message is read within its limits, or gets an error in JSON-RPC's form."""
    try:
        message = decode_message(data)
    except JsonRpcError as error:
        _check_error(error)
        return
    if isinstance(message, RpcResponse):
        return
    assert 0 < len(message.method) <= MAX_METHOD_CHARS
    assert isinstance(message.params, dict)
    assert session_revision(message.params.get("protocolVersion")) in SESSION_REVISIONS
    if isinstance(message, RpcRequest):
        assert len(str(message.id)) <= max(MAX_ID_CHARS, len(str(-MAX_ID_NUMBER)))
        assert json.loads(encode_result(message.id, {}))["id"] == message.id
        _check_headers(message)


def _check_headers(message: RpcRequest) -> None:
    """Checks a request whose headers say what its body says, as far as headers can."""
    name = message.params.get(NAMED_BY.get(message.method, ""), "")
    headers = {
        REVISION_HEADER: str(message.meta.get(REVISION_KEY)),
        METHOD_HEADER: message.method,
        NAME_HEADER: str(name),
    }
    try:
        check_stateless(message, headers)
    except JsonRpcError as error:
        assert error.message_id == message.id
        _check_error(error)
    else:
        assert message.meta[REVISION_KEY] == STATELESS_REVISION


def _check_error(error: JsonRpcError) -> None:
    assert error.number in NUMBERS
    assert len(str(error)) < 500
    body = json.loads(encode_error(error))
    assert body["error"]["code"] == error.number
    assert body["id"] == error.message_id


TARGETS = (Target(name="mcp_requests", one_input=requests, seeds=lines(SEEDS), is_json=True),)
