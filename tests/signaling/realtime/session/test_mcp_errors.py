"""MCP servers that are not connected: bad input, unlisted hosts, missing servers; and no secret is
ever sent back."""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from aiohttp import web

from core.errors import RequestError
from core.http.fetch_policy import HostAllowlist
from core.net.ip_addresses import IpAddress
from pipeline.shared.mcp_servers import ClientMcpPolicy
from pipeline.tools.mcp.settings import client_server_settings
from signaling.realtime.session.settings import session_json
from tests.pipeline.tools.mcp.kitchens import Kitchen
from tests.signaling.realtime.client_events import after, asked, realtime
from tests.signaling.realtime.session.mcp_servers import Event, House, cooking, in_house, kinds

pytestmark = pytest.mark.live

TOOL = {"type": "mcp", "server_label": "kitchen", "server_url": "http://mcp.lan/mcp"}
SECRETS = ("tok-3f0c9a", "key-77aa12", "q-secret-5")


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kitchen]:
    with cooking(tmp_path_factory.mktemp("kitchen")) as opened:
        yield opened


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"server_label": "a b"}, "invalid_value", ".server_label"),
    ({"server_label": "1a"}, "invalid_value", ".server_label"),
    ({"server_label": "x" * 65}, "invalid_value", ".server_label"),
    ({"server_label": 7}, "invalid_type", ".server_label"),
    ({"server_url": 7}, "invalid_type", ".server_url"),
    ({"server_url": "x" * 1025}, "invalid_value", ".server_url"),
    ({"connector_id": "connector_gmail"}, "unsupported_parameter", ".connector_id"),
    ({"tunnel_id": "t"}, "unsupported_parameter", ".tunnel_id"),
    ({"authorization": "a\nb"}, "invalid_value", ".authorization"),
    ({"authorization": ["x"]}, "invalid_type", ".authorization"),
    ({"headers": {"Host": "evil"}}, "invalid_value", ".headers"),
    ({"headers": {"Transfer-Encoding": "chunked"}}, "invalid_value", ".headers"),
    ({"headers": {"authorization": "x"}, "authorization": "y"}, "invalid_value", ".headers"),
    ({"headers": {"A": "b\r\nC: d"}}, "invalid_value", ".headers[...]"),
    ({"headers": {str(n): "" for n in range(33)}}, "invalid_value", ".headers"),
    ({"headers": "x"}, "invalid_type", ".headers"),
    ({"allowed_tools": "weigh"}, "invalid_type", ".allowed_tools"),
    ({"allowed_tools": [7]}, "invalid_type", ".allowed_tools[0]"),
    ({"allowed_tools": {"names": []}}, "unknown_parameter", ".allowed_tools.names"),
    ({"require_approval": "sometimes"}, "invalid_value", ".require_approval"),
    ({"require_approval": {"never": "weigh"}}, "invalid_type", ".require_approval.never"),
    ({"require_approval": {"ask": {}}}, "unknown_parameter", ".require_approval.ask"),
    ({"server_description": "x" * 1001}, "invalid_value", ".server_description"),
    ({"defer_loading": "yes"}, "invalid_type", ".defer_loading"),
    ({"url": "http://x"}, "unknown_parameter", ".url"),
]


@pytest.mark.parametrize(("fields", "code", "param"), BAD)
def test_an_invalid_field_of_a_server_is_named(
    fields: dict[str, Any], code: str, param: str
) -> None:
    tool = {**TOOL, **fields}
    with pytest.raises(RequestError) as of_session:
        after(realtime(tools=[tool]))
    with pytest.raises(RequestError) as of_response:
        asked(tools=[tool])
    for prefix, error in (("session", of_session.value), ("response", of_response.value)):
        assert (error.code, error.param) == (code, f"{prefix}.tools[0]{param}")
        assert "tok" not in str(error)


UNREADABLE = (
    "http://[x",
    "http://[::1",
    "http://x]/",
    "http://a:99999/",
    "http://a:b/",
    "http://",
    "//[",
    "[",
    "ftp://mcp.lan/",
    "http://mcp.lan/\u00e4",
)


@pytest.mark.parametrize("url", UNREADABLE)
def test_an_unreadable_address_is_refused_even_without_mcp(url: str) -> None:
    tool = {**TOOL, "server_url": url}
    with pytest.raises(RequestError) as of_session:
        session_json(after(realtime(tools=[tool])), "sess_1")
    with pytest.raises(RequestError) as of_response:
        asked(tools=[tool])
    for prefix, error in (("session", of_session.value), ("response", of_response.value)):
        assert error.code == "mcp_server_refused"
        assert error.param == f"{prefix}.tools[0].server_url"


def test_a_session_needs_addresses_and_different_labels() -> None:
    with pytest.raises(RequestError) as caught:
        after(realtime(tools=[{"type": "mcp", "server_label": "x"}]))
    assert caught.value.code == "missing_required_parameter"
    assert caught.value.param == "session.tools[0].server_url"
    with pytest.raises(RequestError) as caught:
        after(realtime(tools=[TOOL, TOOL]))
    assert (caught.value.code, caught.value.param) == (
        "invalid_value",
        "session.tools[1].server_label",
    )
    with pytest.raises(RequestError) as caught:
        after(realtime(tool_choice={"type": "mcp"}))
    assert caught.value.code == "missing_required_parameter"


def test_secrets_are_accepted_but_never_shown() -> None:
    token, key, query = SECRETS
    tool = {
        **TOOL,
        "server_url": f"https://mcp.lan/mcp?key={query}",
        "authorization": token,
        "headers": {"X-Key": key},
    }
    terms = after(realtime(tools=[tool]))
    [server] = terms.settings.mcp_servers
    assert server.headers == {"Authorization": f"Bearer {token}", "X-Key": key}
    assert server.url.endswith(query)
    told = json.dumps(session_json(terms, "sess_1")) + repr(terms)
    mcp_server = client_server_settings(server, 1)
    told += repr(mcp_server) + mcp_server.masked(f"401 for {token} and {key}")
    told += mcp_server.masked(f"Redirect to http://mcp.lan/mcp/?key={query} not followed")
    assert not any(secret in told for secret in SECRETS)
    shown = session_json(terms, "sess_1")["tools"][0]
    assert shown["server_url"] == "https://mcp.lan/mcp"


async def resolve(host: str, port: int) -> Sequence[IpAddress]:
    return [ip_address({"mcp.lan": "192.168.1.9"}.get(host, "127.0.0.1"))]


def hosts(*names: str) -> ClientMcpPolicy:
    return ClientMcpPolicy(HostAllowlist(names, resolve), connect_timeout_s=1)


REFUSED: list[tuple[tuple[str, ...], str, str]] = [
    ((), "http://127.0.0.1:1/mcp", "the setting realtime.mcp_hosts is empty"),
    (("mcp.lan",), "http://127.0.0.1/mcp", "not in realtime.mcp_hosts"),
    (("mcp.lan:8000",), "http://mcp.lan/mcp", "not in realtime.mcp_hosts"),
    (("mcp.lan",), "http://mcp.lan.evil.example/", "not in realtime.mcp_hosts"),
    (("mcp.lan",), "http://169.254.169.254/latest", "not in realtime.mcp_hosts"),
    (("mcp.lan",), "http://2130706433/", "not in realtime.mcp_hosts"),
    (("mcp.lan",), "http://mcp.lan@evil.example/", "no user name"),
    (("mcp.lan",), "file:///etc/passwd", "only http and https"),
    (("mcp.lan",), "http://mcp.lan\\@evil.example/", "printable"),
]


def test_only_listed_hosts_are_connected(kitchen: Kitchen) -> None:
    for names, url, why in REFUSED:

        async def scene(house: House, url: str = url, why: str = why) -> None:
            tool = {**TOOL, "server_url": url}
            session = {"type": "realtime", "instructions": "x", "tools": [tool]}
            await house.ws.send_json({"type": "session.update", "session": session})
            [refused] = await house.until("error")
            assert refused["error"]["code"] == "mcp_server_refused"
            assert refused["error"]["param"] == "session.tools[0].server_url"
            assert why in refused["error"]["message"]
            response = {"tools": [tool]}
            await house.ws.send_json({"type": "response.create", "response": response})
            [refused] = await house.until("error")
            assert refused["error"]["param"] == "response.tools[0].server_url"
            shown = await house.update()
            assert (shown["tools"], shown["instructions"]) == ([], ""), "nothing has changed"

        in_house(kitchen, scene, hosts(*names))


def test_a_host_name_that_resolves_to_this_machine_is_not_connected(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        url = f"http://rebound.lan:{kitchen.port}/mcp"
        await house.update(tools=[{**TOOL, "server_url": url}])
        told = await house.until("error")
        assert "mcp_list_tools.failed" in kinds(told)
        assert "loopback" in told[-1]["error"]["message"]
        await house.ask("hello")
        assert house.llm.offered[-1] == ["add"]

    in_house(kitchen, scene, hosts("rebound.lan"))


def test_more_servers_than_allowed_are_refused(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        tools = [house.tool(server_label=label) for label in ("a", "b")]
        session = {"type": "realtime", "tools": tools}
        await house.ws.send_json({"type": "session.update", "session": session})
        [refused] = await house.until("error")
        assert (refused["error"]["code"], refused["error"]["param"]) == (
            "too_many_mcp_servers",
            "session.tools",
        )

    policy = ClientMcpPolicy(HostAllowlist([f"127.0.0.1:{kitchen.port}"]), max_servers=1)
    in_house(kitchen, scene, policy)


def failing(kitchen: Kitchen, answer: Any, seen: list[web.Request]) -> list[Event]:
    """Returns the events that a client gets about a server that answers in this way."""
    told: list[Event] = []

    async def scene(house: House) -> None:
        async def handle(request: web.Request) -> web.StreamResponse:
            seen.append(request)
            return await answer(request)  # type: ignore[no-any-return]

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            url = f"http://127.0.0.1:{port}/mcp?key={SECRETS[2]}"
            token = {"authorization": SECRETS[0]}
            await house.update(tools=[{**TOOL, "server_url": url, **token}])
            told.extend(await house.until("error"))
            await house.ask("hello")
            assert house.llm.offered[-1] == ["add"]
        finally:
            await runner.cleanup()

    policy = replace(hosts("127.0.0.1"), connect_timeout_s=1)
    in_house(kitchen, scene, policy)
    return told


async def forbidden(request: web.Request) -> web.Response:
    return web.Response(status=401, text=request.headers["Authorization"])


async def elsewhere(request: web.Request) -> web.Response:
    if request.path == "/mcp":
        raise web.HTTPTemporaryRedirect(f"http://localhost:{request.url.port}/admin")
    return web.json_response({})


async def back(request: web.Request) -> web.Response:
    raise web.HTTPTemporaryRedirect(f"http://localhost:1/{request.url.raw_query_string}")


async def never(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


@pytest.mark.parametrize("answer", [forbidden, elsewhere, back, never])
def test_a_server_that_does_not_speak_mcp_is_reported_without_secrets(
    kitchen: Kitchen, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[web.Request] = []
    told = failing(kitchen, answer, seen)
    assert kinds(told) == [
        "conversation.item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.failed",
        "conversation.item.done",
        "error",
    ]
    assert told[-1]["error"]["code"] == "mcp_list_tools_failed"
    assert "/admin" not in {request.path for request in seen}, "no other place is asked"
    shown = "".join(one.getMessage() for one in caplog.records if one.name.startswith("pipeline"))
    assert not any(secret in shown + json.dumps(told) for secret in SECRETS)


def test_an_approval_response_without_a_request_is_refused(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        await house.given()
        await house.decide("mcpr_x", approve=True)
        [refused] = await house.until("error")
        assert refused["error"]["code"] == "mcp_approval_not_pending"
        assert refused["error"]["param"] == "item.approval_request_id"

    in_house(kitchen, scene)


def test_beta_clients_get_mcp_events_only_if_they_use_mcp(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        shown: list[str] = []
        await house.ws.send_json({"type": "session.update", "session": {"modalities": ["text"]}})
        await house.ws.send_json({"type": "response.create"})
        shown += kinds(await house.until("response.done"))
        assert not any("mcp" in kind for kind in shown)
        tools = [house.tool(require_approval="never")]
        await house.ws.send_json({"type": "session.update", "session": {"tools": tools}})
        assert "mcp_list_tools.completed" in kinds(await house.until("mcp_list_tools.completed"))

    in_house(kitchen, scene, headers={"OpenAI-Beta": "realtime=v1"})
