"""The connection to an MCP server is direct, unless its settings name a proxy."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from core.errors import ConfigError
from pipeline.tools.mcp import McpServerSettings, McpToolProvider
from tests.pipeline.tools.mcp.kitchens import running
from tests.pipeline.tools.mcp.unresponsive_server import UnresponsiveServer, unresponsive

pytestmark = pytest.mark.live

ELSEWHERE = "http://kitchen.invalid/mcp"
"A name that only a proxy can resolve (RFC 6761 section 6.4)."


def proxy() -> AbstractAsyncContextManager[UnresponsiveServer]:
    """Returns a proxy that answers every request as an MCP server itself."""
    return unresponsive()


def at(server: UnresponsiveServer) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize("is_older", [False, True])
def test_proxies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, is_older: bool
) -> None:
    """Such a proxy would resolve the name again, after its address was checked."""

    async def main() -> None:
        async with proxy() as asked, unresponsive() as there:
            for name in ("http_proxy", "https_proxy", "all_proxy"):
                monkeypatch.setenv(name, at(asked))
                monkeypatch.setenv(name.upper(), at(asked))
            monkeypatch.setenv("no_proxy", "")
            url = f"{at(there)}/other" if is_older else there.url  # 404: then tries SSE
            direct, unknown = (
                McpToolProvider("one", McpServerSettings(url=one), connect_timeout_s=1)
                for one in (url, ELSEWHERE)
            )
            async with running(direct, unknown):
                await asyncio.gather(direct.first_attempt(), unknown.first_attempt())
                assert (direct.is_connected, unknown.is_connected) == (not is_older, False)
            assert asked.asked == []

    asyncio.run(main())


def test_the_proxy_of_the_settings_is_used() -> None:
    async def main() -> None:
        async with proxy() as asked:
            tools = McpToolProvider("one", McpServerSettings(url=ELSEWHERE, proxy=at(asked)))
            async with running(tools):
                await tools.first_attempt()
                assert tools.is_connected
            assert "tools/list" in asked.asked

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"url": ELSEWHERE, "proxy": "socks5://p:1"}, "proxy must start with http"),
        (
            {"url": ELSEWHERE, "proxy": "http://u:hush@p:1"},
            "proxy must not contain a user or password$",
        ),
        ({"command": "x", "proxy": "http://p:1"}, "proxy are only for servers with url"),
    ],
)
def test_an_invalid_proxy_is_refused(fields: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        McpServerSettings(**fields)  # type: ignore[arg-type]
    assert "hush" not in str(caught.value)
