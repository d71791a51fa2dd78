"""Home Assistant's MCP server, made with the official package: stateless, JSON, with a token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web as aioweb
from httpx2 import ASGITransport, AsyncClient
from mcp.server.mcpserver import MCPServer

from tests.devices.home_assistant.fake_server import FakeHome, fake_home

PATH = "/api/mcp"


@dataclass
class Switched:
    """The arguments that its tools got."""

    calls: list[dict[str, Any]] = field(default_factory=list)


def server(switched: Switched) -> MCPServer:
    made = MCPServer("home-assistant")

    @made.tool(name="HassTurnOn")
    def turn_on(name: str, domain: list[str] | None = None) -> dict[str, Any]:
        """Turns on a device or entity."""
        switched.calls.append({"name": name, "domain": domain})
        return {"speech": {}, "response_type": "action_done"}

    @made.tool(name="GetLiveContext")
    def live_context() -> str:
        """The state of the house."""
        return "Kitchen Lights: off"

    return made


@asynccontextmanager
async def home_with_tools(**how: Any) -> AsyncIterator[tuple[FakeHome, Switched]]:
    """Runs a fake Home Assistant with the MCP integration."""
    switched = Switched()
    app = server(switched).streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True
    )
    transport = ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as inside,
    ):

        async def handed_on(request: aioweb.Request) -> aioweb.Response:
            headers = {key: request.headers[key] for key in request.headers if key != "Host"}
            told = await inside.request(
                request.method, PATH, content=await request.read(), headers=headers
            )
            kind = told.headers.get("content-type", "text/plain").partition(";")[0]
            return aioweb.Response(status=told.status_code, body=told.content, content_type=kind)

        async with fake_home(mcp=handed_on, **how) as home:
            yield home, switched
