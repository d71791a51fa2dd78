"""Revisions of MCP, and the headers with which a client says which one it speaks. Does no I/O.

Revision 2026-07-28 has no sessions: each request says its revision, in a header and in its body.
Before it, a client begins with `initialize` and gets the id of a session.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping

from web.mcp.messages import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    UNSUPPORTED_REVISION,
    JsonRpcError,
    RpcRequest,
)

STATELESS_REVISION = "2026-07-28"
SESSION_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
"Revisions with sessions, the newest first."
REVISIONS = (STATELESS_REVISION, *SESSION_REVISIONS)

REVISION_HEADER = "MCP-Protocol-Version"
SESSION_HEADER = "Mcp-Session-Id"
METHOD_HEADER = "Mcp-Method"
NAME_HEADER = "Mcp-Name"

REVISION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

NAMED_BY: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"Method -> the parameter that its `Mcp-Name` header repeats."

BASE64_PREFIX, BASE64_SUFFIX = "=?base64?", "?="
"Marks of a header's value that is in Base64, because it is not plain ASCII."


def is_stateless(revision: str | None) -> bool:
    """Returns whether a request with this header is of a revision without sessions.

    Unknown revisions count, because `check_stateless` names those that are known.
    """
    return revision is not None and revision not in SESSION_REVISIONS


def session_revision(offered: object) -> str:
    """Returns the revision of a new session: the offered one, or the newest that has sessions."""
    return offered if offered in SESSION_REVISIONS else SESSION_REVISIONS[0]


def check_revision(revision: str | None, request: RpcRequest | None = None) -> None:
    """Raises JsonRpcError if no revision has this name. None: the client does not name one."""
    if revision is not None and revision not in REVISIONS:
        raise JsonRpcError(
            UNSUPPORTED_REVISION,
            f"revision {revision[:64]!r} is not known; known are {', '.join(REVISIONS)}",
            request.id if request else None,
            {"supported": list(REVISIONS), "requested": revision[:64]},
        )


def check_stateless(request: RpcRequest, headers: Mapping[str, str]) -> None:
    """Checks that headers and body of a request without a session agree. Raises JsonRpcError.

    Headers are for proxies, which do not read bodies: two that differ would pass a proxy's rules
    with one, and act with the other.
    """
    meta = request.meta
    missing = [key for key in (REVISION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        reason = f"params._meta lacks {', '.join(missing)}"
        raise JsonRpcError(INVALID_PARAMS, reason, request.id)
    _check_header(request, REVISION_HEADER, headers.get(REVISION_HEADER), meta[REVISION_KEY])
    _check_header(request, METHOD_HEADER, headers.get(METHOD_HEADER), request.method)
    named_by = NAMED_BY.get(request.method)
    if named_by is not None and (name := request.params.get(named_by)) is not None:
        _check_header(request, NAME_HEADER, _decoded(headers.get(NAME_HEADER)), name)
    check_revision(headers.get(REVISION_HEADER), request)


def _check_header(request: RpcRequest, name: str, value: str | None, wanted: object) -> None:
    if value is None or value != wanted:
        reason = f"the header {name} must be there, and say the same as the body"
        raise JsonRpcError(HEADER_MISMATCH, reason, request.id)


def _decoded(value: str | None) -> str | None:
    """Returns the value of a header; None if it is wrong Base64."""
    if value is None or not (value.startswith(BASE64_PREFIX) and value.endswith(BASE64_SUFFIX)):
        return value
    try:
        content = value[len(BASE64_PREFIX) : -len(BASE64_SUFFIX)]
        return b64decode(content, validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        return None
