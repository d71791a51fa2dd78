"""JSON-RPC's messages and the headers of MCP, as plain values."""

import json
from collections.abc import Mapping

import pytest

from web.mcp.messages import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_ID_CHARS,
    PARSE_ERROR,
    UNSUPPORTED_REVISION,
    JsonRpcError,
    RpcNotification,
    RpcRequest,
    RpcResponse,
    decode_message,
    encode_error,
)
from web.mcp.revisions import (
    CAPABILITIES_KEY,
    REVISION_KEY,
    REVISIONS,
    STATELESS_REVISION,
    check_stateless,
    session_revision,
)

GOOD = (
    ('{"jsonrpc":"2.0","id":1,"method":"ping"}', RpcRequest(1, "ping")),
    ('{"jsonrpc":"2.0","id":"a","method":"m","params":{"b":1}}', RpcRequest("a", "m", {"b": 1})),
    ('{"jsonrpc":"2.0","id":0,"method":"m","params":null}', RpcRequest(0, "m")),
    ('{"jsonrpc":"2.0","method":"m"}', RpcNotification("m")),
    ('{"jsonrpc":"2.0","id":1,"result":{}}', RpcResponse()),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}', RpcResponse()),
)


@pytest.mark.parametrize(("body", "message"), GOOD)
def test_a_message_is_a_request_a_notification_or_an_answer(body: str, message: object) -> None:
    assert decode_message(body.encode()) == message


BAD = (
    ("", PARSE_ERROR, None, "not JSON"),
    ("{", PARSE_ERROR, None, "not JSON"),
    ("[" * 100_000, PARSE_ERROR, None, "not JSON"),
    ('"\\ud800"', PARSE_ERROR, None, "not JSON"),
    ("[]", INVALID_REQUEST, None, "not a list"),
    ('[{"jsonrpc":"2.0","id":1,"method":"ping"}]', INVALID_REQUEST, None, "not a list"),
    ("7", INVALID_REQUEST, None, "jsonrpc"),
    ('{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID_REQUEST, None, "jsonrpc"),
    ('{"jsonrpc":"2.0","id":1}', INVALID_REQUEST, 1, "a method, or a result"),
    ('{"jsonrpc":"2.0","id":1,"method":7}', INVALID_REQUEST, 1, "method must be"),
    ('{"jsonrpc":"2.0","id":1,"method":""}', INVALID_REQUEST, 1, "method must be"),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', INVALID_REQUEST, 1, "params"),
    ('{"jsonrpc":"2.0","id":null,"method":"m"}', INVALID_REQUEST, None, "not be null"),
    ('{"jsonrpc":"2.0","id":true,"method":"m"}', INVALID_REQUEST, None, "id must be"),
    ('{"jsonrpc":"2.0","id":1.5,"method":"m"}', INVALID_REQUEST, None, "id must be"),
    ('{"jsonrpc":"2.0","id":1e300,"method":"m"}', INVALID_REQUEST, None, "id must be"),
    (f'{{"jsonrpc":"2.0","id":{2**53},"method":"m"}}', INVALID_REQUEST, None, "id must be"),
    (
        json.dumps({"jsonrpc": "2.0", "id": "i" * (MAX_ID_CHARS + 1), "method": "m"}),
        INVALID_REQUEST,
        None,
        "id must be",
    ),
)


@pytest.mark.parametrize(("body", "number", "message_id", "words"), BAD)
def test_a_wrong_message_gets_an_error_with_the_id_that_is_known(
    body: str, number: int, message_id: object, words: str
) -> None:
    with pytest.raises(JsonRpcError, match=words) as raised:
        decode_message(body.encode())
    error = json.loads(encode_error(raised.value))
    assert (error["error"]["code"], error["id"]) == (number, message_id)


META = {REVISION_KEY: STATELESS_REVISION, CAPABILITIES_KEY: {}}
HEADERS = {"MCP-Protocol-Version": STATELESS_REVISION, "Mcp-Method": "tools/call", "Mcp-Name": "a"}


def _checked(
    changed: Mapping[str, str | None] = {}, meta: object = META, name: str = "a"
) -> int | None:
    """Returns the number of the error, if there is one. changed: headers; None: one is missing."""
    sent = {key: value for key, value in {**HEADERS, **changed}.items() if value is not None}
    request = RpcRequest(1, "tools/call", {"name": name, "_meta": meta})
    try:
        check_stateless(request, sent)
    except JsonRpcError as error:
        return error.number
    return None


def test_headers_and_body_of_a_request_without_a_session_agree() -> None:
    assert _checked() is None
    assert _checked({"Mcp-Name": "=?base64?c2Now7Zu?="}, name="schön") is None
    assert _checked({"Mcp-Name": "=?base64?!?="}, name="schön") == HEADER_MISMATCH
    assert _checked({"Mcp-Name": "b"}) == HEADER_MISMATCH
    assert _checked({"Mcp-Name": None}) == HEADER_MISMATCH
    assert _checked({"Mcp-Method": "tools/list"}) == HEADER_MISMATCH
    assert _checked({"MCP-Protocol-Version": "2027-01-01"}) == HEADER_MISMATCH
    assert _checked(meta=None) == INVALID_PARAMS
    assert _checked(meta={REVISION_KEY: STATELESS_REVISION}) == INVALID_PARAMS
    newer = {**META, REVISION_KEY: "2027-01-01"}
    assert _checked({"MCP-Protocol-Version": "2027-01-01"}, meta=newer) == UNSUPPORTED_REVISION


def test_a_session_has_the_offered_revision_or_the_newest() -> None:
    assert session_revision("2025-06-18") == "2025-06-18"
    unknown_ones: tuple[object, ...] = ("2024-11-05", STATELESS_REVISION, None, [], 7)
    for unknown in unknown_ones:
        assert session_revision(unknown) == REVISIONS[1] == "2025-11-25"
