from typing import Any

import pytest

from firmware_protocol.xiaozhi.mcp import (
    MAX_ERROR_CHARS,
    MAX_PAGES,
    MAX_RESULT_CHARS,
    MAX_TOOLS,
    DeviceCallToolResult,
    DeviceInitializeResult,
    DeviceListToolsResult,
    DeviceMcpClient,
    DeviceMcpError,
    DeviceTool,
    alias_of,
)

VOLUME = {
    "name": "self.audio_speaker.set_volume",
    "description": "Sets it.",
    "inputSchema": {"type": "object", "properties": {"volume": {"type": "integer"}}},
}


PICTURE = "(an image, which is not looked at)"


def answer(request_id: object, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, **fields}


def test_ids_are_numbers_that_count_up() -> None:
    """Devices drop requests whose id is a text, without an answer."""
    client = DeviceMcpClient()
    ids = [client.initialize()["id"], client.list_tools()["id"], client.call("self.a", {})[0]]
    assert ids == [1, 2, 3]


def test_initialize_offers_no_url_for_pictures() -> None:
    params = DeviceMcpClient(("earshot", "1.2")).initialize()["params"]
    assert params == {
        "protocolVersion": "2024-11-05",
        "capabilities": {"vision": {"url": "", "token": ""}},
        "clientInfo": {"name": "earshot", "version": "1.2"},
    }


def test_tools_are_listed_page_by_page() -> None:
    client = DeviceMcpClient()
    client.initialize()
    told = client.receive(answer(1, result={"serverInfo": {"name": "bread", "version": "2"}}))
    assert told == DeviceInitializeResult("bread", "2")
    assert client.list_tools()["params"] == {"cursor": "", "withUserTools": False}
    told = client.receive(answer(2, result={"tools": [VOLUME], "nextCursor": "self.screen.a"}))
    assert isinstance(told, DeviceListToolsResult)
    assert told.cursor == "self.screen.a"
    client.list_tools(told.cursor)
    told = client.receive(answer(3, result={"tools": [{"name": "self.screen.a"}]}))
    assert isinstance(told, DeviceListToolsResult)
    assert (told.cursor, [tool.alias for tool in told.tools]) == (
        "",
        ["self_audio_speaker_set_volume", "self_screen_a"],
    )
    assert told.tools[0] == DeviceTool(
        VOLUME["name"],  # type: ignore[arg-type]
        "self_audio_speaker_set_volume",
        "Sets it.",
        VOLUME["inputSchema"],  # type: ignore[arg-type]
    )
    assert told.tools[1].parameters == {"type": "object", "properties": {}}


def test_endless_pages_of_tools_are_cut_off() -> None:
    client, pages, cursor, count = DeviceMcpClient(), 0, "", 0
    while pages == 0 or cursor:
        request = client.list_tools(cursor)
        tools = [{"name": f"self.t{pages}_{number}"} for number in range(10)]
        told = client.receive(answer(request["id"], result={"tools": tools, "nextCursor": "more"}))
        assert isinstance(told, DeviceListToolsResult)
        pages, cursor, count = pages + 1, told.cursor, len(told.tools)
    assert (pages, count) == (MAX_PAGES, MAX_TOOLS)


@pytest.mark.parametrize(
    ("result", "text", "is_error"),
    [
        ({"content": [{"type": "text", "text": "true"}], "isError": False}, "true", False),
        ({"content": [{"type": "text", "text": "a"}, 7, {"text": "b"}]}, "a\nb", False),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, "no", True),
        ({"content": [{"type": "image", "image": "{}"}]}, PICTURE, False),
        ({"content": "x"}, "", False),
        ({}, "", False),
        ({"content": [{"type": "text", "text": "x" * 99_999}]}, "x" * MAX_RESULT_CHARS, False),
    ],
)  # fmt: skip
def test_the_result_of_a_call_is_its_text(
    result: dict[str, Any], text: str, is_error: bool
) -> None:
    client = DeviceMcpClient()
    request_id, request = client.call("self.audio_speaker.set_volume", {"volume": 30})
    assert request["params"] == {"name": VOLUME["name"], "arguments": {"volume": 30}}
    assert client.receive(answer(request_id, result=result)) == DeviceCallToolResult(
        request_id, text, is_error
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"error": {"message": "Unknown tool: self.foo"}}, "Unknown tool: self.foo"),
        ({"error": {"code": -32601}}, "the device gave neither a result nor a reason"),
        ({"error": "broken"}, "broken"),
        ({"result": "true"}, "the device gave neither a result nor a reason"),
        ({}, "the device gave neither a result nor a reason"),
        ({"error": {"message": "x" * 9999}}, "x" * MAX_ERROR_CHARS),
    ],
)
def test_an_error_may_lack_a_code(fields: dict[str, Any], message: str) -> None:
    client = DeviceMcpClient()
    request_id, _ = client.call("self.foo", {})
    assert client.receive(answer(request_id, **fields)) == DeviceCallToolResult(
        request_id, message, True
    )
    listing = client.list_tools()["id"]
    assert client.receive(answer(listing, **fields)) == DeviceMcpError("tools/list", message)


@pytest.mark.parametrize(
    "payload",
    [{"id": 2}, {"id": "1", "result": {}}, {"id": True, "result": {}}, {"id": None}, {},
     {"method": "notifications/x"}],
)  # fmt: skip
def test_answers_without_a_request_are_ignored(payload: dict[str, Any]) -> None:
    client = DeviceMcpClient()
    request_id, _ = client.call("self.foo", {})
    assert client.receive(payload) is None
    client.forget(request_id)
    assert client.receive(answer(request_id, result={})) is None


def test_a_second_answer_to_a_request_is_ignored() -> None:
    client = DeviceMcpClient()
    request_id, _ = client.call("self.foo", {})
    assert client.receive(answer(request_id, result={})) is not None
    assert client.receive(answer(request_id, result={})) is None


@pytest.mark.parametrize(
    ("name", "alias"),
    [("self.screen.set_theme", "self_screen_set_theme"), ("a b/ü", "a_b__"), ("x" * 99, "x" * 64)],
)
def test_tool_names_are_made_valid_for_language_models(name: str, alias: str) -> None:
    assert alias_of(name) == alias
