"""Requests of MCP clients, byte for byte as they send them, behind the server's access rules."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.web.client import Client
from tests.web.mcp.servers import HEADERS, House, begin, rpc, stateless

pytestmark = pytest.mark.live

Use = Callable[[House, Client], Awaitable[None]]


def run(use: Use, key: str | None = None, **settings: Any) -> None:
    async def main() -> None:
        house = House(**settings)
        async with house.open(key) as client:
            await use(house, client)

    asyncio.run(main())


async def called(client: Client, name: str, **arguments: object) -> dict[str, Any]:
    request = stateless("tools/call", {"name": name, "arguments": arguments})
    answer = await client.post("/mcp", **request)
    result: dict[str, Any] = (await answer.json())["result"]
    return result


def test_a_client_without_a_session_lists_and_calls_tools() -> None:
    async def use(house: House, client: Client) -> None:
        answer = await client.post("/mcp", **stateless("server/discover"))
        found = (await answer.json())["result"]
        assert "2026-07-28" in found["supportedVersions"]
        assert found["resultType"] == "complete"
        answer = await client.post("/mcp", **stateless("tools/list"))
        listed = (await answer.json())["result"]
        assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
        by_name = {one["name"]: one for one in listed["tools"]}
        assert set(by_name) == {"lamps", "switch", "unlock", "wait"}
        assert by_name["lamps"]["annotations"]["readOnlyHint"] is True
        assert by_name["switch"]["inputSchema"]["type"] == "object"
        result = await called(client, "lamps")
        assert not result["isError"]
        assert result["structuredContent"]["room"] == "kitchen"
        assert house.sessions.count == 0

    run(use)


def test_failures_of_tools_are_results_that_a_model_can_read() -> None:
    async def use(house: House, client: Client) -> None:
        missing = await called(client, "switch", lamp="moon")
        assert missing["isError"]
        assert missing["structuredContent"]["error"] == "no_such_device"
        wrong = await called(client, "switch", lamp=7)
        assert wrong["structuredContent"]["error"] == "invalid_arguments"
        guarded = await called(client, "unlock")
        assert guarded["structuredContent"]["error"] == "not_allowed"
        assert "certain people" in guarded["structuredContent"]["speech"]
        assert house.done == []

    run(use)


def test_a_session_begins_is_used_and_ends() -> None:
    async def use(house: House, client: Client) -> None:
        headers = await begin(client)
        notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        answer = await client.post("/mcp", json=notice, headers=headers)
        assert (answer.status, await answer.read()) == (202, b"")
        answer = await client.post("/mcp", json=rpc("ping", id="x"), headers=headers)
        assert await answer.json() == {"jsonrpc": "2.0", "id": "x", "result": {}}
        call = rpc("tools/call", {"name": "switch", "arguments": {"lamp": "shelf"}})
        answer = await client.post("/mcp", json=call, headers=headers)
        assert (await answer.json())["result"]["isError"] is False
        assert house.done == ["shelf"]
        assert (await client.delete("/mcp", headers=headers)).status == 204
        answer = await client.post("/mcp", json=rpc("ping"), headers=headers)
        assert answer.status == 404

    run(use)


REFUSED: tuple[tuple[str, dict[str, Any], int, int], ...] = (
    ("no session", {"json": rpc("tools/list"), "headers": HEADERS}, 400, -32600),
    (
        "a foreign session",
        {"json": rpc("tools/list"), "headers": {**HEADERS, "Mcp-Session-Id": "guess"}},
        404,
        -32600,
    ),
    (
        "an unknown revision",
        {"json": rpc("ping"), "headers": {**HEADERS, "MCP-Protocol-Version": "1999-01-01"}},
        400,
        -32602,
    ),
    ("no method", stateless("no/method"), 404, -32601),
    ("no tool", stateless("tools/call", {"name": "rm"}), 400, -32602),
    ("wrong arguments", stateless("tools/call", {"name": "lamps", "arguments": []}), 400, -32602),
    ("no filter", stateless("subscriptions/listen"), 400, -32602),
    ("no JSON", {"data": b"{", "headers": HEADERS}, 400, -32700),
    (
        "a form",
        {"data": b"{}", "headers": {**HEADERS, "Content-Type": "text/plain"}},
        415,
        -32600,
    ),
    (
        "a browser's page",
        {"data": b"{}", "headers": {**HEADERS, "Accept": "text/html"}},
        406,
        -32600,
    ),
)


@pytest.mark.parametrize("refused", REFUSED, ids=[name for name, *_ in REFUSED])
def test_a_wrong_request_gets_an_error_of_json_rpc(
    refused: tuple[str, dict[str, Any], int, int],
) -> None:
    _, request, status, number = refused

    async def use(_: House, client: Client) -> None:
        answer = await client.post("/mcp", **request)
        assert (answer.status, (await answer.json())["error"]["code"]) == (status, number)

    run(use)


def test_an_error_within_a_session_has_status_200() -> None:
    async def use(_: House, client: Client) -> None:
        headers = await begin(client)
        answer = await client.post("/mcp", json=rpc("tools/call", {"name": 1}), headers=headers)
        assert (answer.status, (await answer.json())["error"]["code"]) == (200, -32602)

    run(use)


def test_access_rules_are_those_of_every_door() -> None:
    async def use(_: House, client: Client) -> None:
        request = stateless("tools/list")
        bare, headers = {"json": request["json"]}, request["headers"]
        assert (await client.post("/mcp", **request)).status == 401
        headers = {**headers, "Authorization": "Bearer " + "k" * 32}
        assert (await client.post("/mcp", **bare, headers=headers)).status == 200
        rebound = {**headers, "Host": "evil.example"}
        assert (await client.post("/mcp", **bare, headers=rebound)).status == 403

    run(use, key="k" * 32)

    async def use_here(_: House, client: Client) -> None:
        request = stateless("tools/list")
        foreign = {**request["headers"], "Origin": "https://evil.example"}
        assert (await client.post("/mcp", json=request["json"], headers=foreign)).status == 401
        large = b'"' + b"a" * (256 * 1024) + b'"'
        assert (await client.post("/mcp", data=large, headers=HEADERS)).status == 413

    run(use_here)


def test_only_allowed_tools_are_offered() -> None:
    async def use(house: House, client: Client) -> None:
        answer = await client.post("/mcp", **stateless("tools/list"))
        assert [one["name"] for one in (await answer.json())["result"]["tools"]] == ["lamps"]
        call = stateless("tools/call", {"name": "switch", "arguments": {"lamp": "shelf"}})
        assert (await client.post("/mcp", **call)).status == 400
        assert house.done == []

    run(use, allow=frozenset({"lamps"}))


def test_a_call_is_cancelled_by_a_message_or_by_the_end_of_its_session() -> None:
    async def use(house: House, client: Client) -> None:
        for number, is_end in enumerate((False, True)):
            headers = await begin(client)
            call = rpc("tools/call", {"name": "wait"}, id=number)
            house.began.clear()
            async with asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(client.post("/mcp", json=call, headers=headers))
                await house.began.wait()
                if is_end:
                    await client.delete("/mcp", headers=headers)
                else:
                    params = {"requestId": number}
                    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
                    body = {**cancel, "params": params}
                    assert (await client.post("/mcp", json=body, headers=headers)).status == 202
            assert (await asked.result().json())["error"]["code"] == -32800
        assert house.done == ["cancelled", "cancelled"]

    run(use)


def test_a_long_call_sends_heartbeats_and_ends_with_its_client() -> None:
    async def use(house: House, client: Client) -> None:
        answer = await client.post("/mcp", **stateless("tools/call", {"name": "wait"}))
        assert answer.content_type == "text/event-stream"
        assert (await answer.content.readline()).startswith(b":")
        house.released.set()
        text = await answer.text()
        assert 'data: {"jsonrpc":"2.0","id":1,"result":{' in text
        house.released.clear()
        answer = await client.post("/mcp", **stateless("tools/call", {"name": "wait"}))
        answer.close()
        await house.cancelled.wait()
        assert house.done == ["cancelled"]

    run(use, heartbeat_s=0.05)


def test_changed_tools_are_told_to_subscribers_of_both_kinds() -> None:
    async def use(house: House, client: Client) -> None:
        headers = await begin(client)
        older = await client.get("/mcp", headers=headers)
        params = {"notifications": {"toolsListChanged": True}}
        newer = await client.post("/mcp", **stateless("subscriptions/listen", params, id="s"))
        first = await newer.content.readuntil(b"\n\n")
        assert b"notifications/subscriptions/acknowledged" in first
        await older.content.readuntil(b"\n\n")
        house.more.append("oven")
        for stream in (older, newer):
            event = await stream.content.readuntil(b"\n\n")
            assert b"notifications/tools/list_changed" in event
            assert (b'subscriptionId":"s"' in event) == (stream is newer)
            stream.close()
        assert (await client.get("/mcp", headers=HEADERS)).status == 400
        modern = {**HEADERS, "MCP-Protocol-Version": "2026-07-28"}
        refused = await client.get("/mcp", headers=modern)
        assert (refused.status, refused.headers["Allow"]) == (405, "POST")

    run(use)
