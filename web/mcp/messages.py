"""Messages of JSON-RPC 2.0 as MCP uses them: one object in each request. Does no I/O.

https://www.jsonrpc.org/specification
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from core.errors import RequestError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
CANCELLED = -32800
"Error of a call that its client cancelled, as in the language server protocol; MCP names none."
HEADER_MISMATCH = -32020
UNSUPPORTED_REVISION = -32022

MAX_METHOD_CHARS = 128
"Longest name of a method. MCP's longest has 38 characters."

MAX_ID_CHARS = 256
"Longest id that is a text: every answer repeats it. A UUID has 36 characters."

MAX_ID_NUMBER = 2**53 - 1
"Largest id that is a number: JavaScript reads no larger one exactly."

MessageId: TypeAlias = str | int


class JsonRpcError(RequestError):
    """A message that is wrong, or cannot be fulfilled. The client gets it in JSON-RPC's form."""

    code = "mcp_error"

    def __init__(
        self,
        number: int,
        message: str,
        message_id: MessageId | None = None,
        data: Mapping[str, object] | None = None,
        status: int = 400,
    ) -> None:
        """Takes the error's number in JSON-RPC, and the id of the request, if it is known.

        status: status of the HTTP answer.
        """
        super().__init__(message)
        self.number, self.message_id, self.data, self.status = number, message_id, data, status


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """A message that expects an answer."""

    id: MessageId
    method: str
    params: Mapping[str, object] = field(default_factory=dict)

    @property
    def meta(self) -> Mapping[str, object]:
        """Fields of the protocol itself (`_meta`); empty if there are none."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    def invalid(self, reason: str) -> JsonRpcError:
        """Returns the error for wrong `params`."""
        return JsonRpcError(INVALID_PARAMS, f"{self.method}: {reason}", self.id)


@dataclass(frozen=True, slots=True)
class RpcNotification:
    """A message that expects no answer."""

    method: str
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RpcResponse:
    """A client's answer. This server asks clients nothing, so it is of no use."""


RpcMessage: TypeAlias = RpcRequest | RpcNotification | RpcResponse


def decode_message(body: bytes) -> RpcMessage:
    """Decodes the body of a request. Raises JsonRpcError."""
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise JsonRpcError(PARSE_ERROR, f"the body is not JSON: {str(error)[:200]}") from None
    if isinstance(raw, list):
        raise JsonRpcError(INVALID_REQUEST, "send one message in each request, not a list")
    if not isinstance(raw, dict) or raw.get("jsonrpc") != "2.0":
        raise JsonRpcError(INVALID_REQUEST, 'a message is an object with "jsonrpc": "2.0"')
    message_id = _checked_id(raw["id"]) if raw.get("id") is not None else None
    if "method" not in raw:
        if "result" in raw or "error" in raw:
            return RpcResponse()
        raise JsonRpcError(INVALID_REQUEST, "a message has a method, or a result", message_id)
    method, params = raw["method"], raw.get("params")
    if not isinstance(method, str) or not 0 < len(method) <= MAX_METHOD_CHARS:
        allowed = f"a text of 1 to {MAX_METHOD_CHARS} characters"
        raise JsonRpcError(INVALID_REQUEST, f"method must be {allowed}", message_id)
    if params is not None and not isinstance(params, dict):
        raise JsonRpcError(INVALID_REQUEST, "params must be an object", message_id)
    if message_id is not None:
        return RpcRequest(message_id, method, params or {})
    if "id" in raw:
        raise JsonRpcError(INVALID_REQUEST, "id must not be null")
    return RpcNotification(method, params or {})


def encode_result(message_id: MessageId, result: Mapping[str, object]) -> bytes:
    """Encodes the answer to a request."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": message_id, "result": result})


def encode_error(error: JsonRpcError) -> bytes:
    """Encodes an error. Its id is null if the request's id is not known."""
    body: dict[str, object] = {"code": error.number, "message": str(error)}
    if error.data is not None:
        body["data"] = error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": error.message_id, "error": body})


def encode_notification(method: str, params: Mapping[str, object]) -> bytes:
    """Encodes a message to a client that expects no answer."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


def _checked_id(value: object) -> MessageId:
    if isinstance(value, str) and len(value) <= MAX_ID_CHARS:
        return value
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and isinstance(value, int) and abs(value) <= MAX_ID_NUMBER:
        return value
    allowed = f"a whole number below 2**53, or a text of at most {MAX_ID_CHARS} characters"
    raise JsonRpcError(INVALID_REQUEST, f"id must be {allowed}")
