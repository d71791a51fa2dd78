"""An MCP server of 2025 in this process that does not answer the methods in `silent`."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

SESSION = {"Mcp-Session-Id": "s-1"}


@dataclass
class UnresponsiveServer:
    """The server. `silent` names the JSON-RPC methods, or `DELETE`, that never get an answer."""

    silent: frozenset[str]
    tools: list[Mapping[str, Any]] = field(
        default_factory=lambda: [{"name": "wait", "inputSchema": {"type": "object"}}]
    )
    asked: list[str] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    on_call: Callable[[Mapping[str, Any]], None] = lambda _: None
    "Takes the arguments of each call as it comes in."
    says: str = "done"
    "The result of each call."
    sends: Literal["json", "packed", "events"] = "json"
    "The form of its answers."
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json() if request.method == "POST" else {}
        method = asked.get("method", request.method)
        self.asked.append(method)
        if method == "tools/call":
            self.called.set()
            self.on_call(asked["params"].get("arguments") or {})
        if method in self.silent:
            await asyncio.Event().wait()
        answer = self._answer(method, asked)
        if answer is None:
            return web.Response(status=405 if request.method == "GET" else 202)
        body = {"jsonrpc": "2.0", "id": asked["id"], **answer}
        if self.sends == "events":
            events = f"event: message\ndata: {json.dumps(body)}\n\n"
            return web.Response(text=events, content_type="text/event-stream", headers=SESSION)
        response = web.json_response(body, headers=SESSION)
        if self.sends == "packed":
            response.enable_compression(web.ContentCoding.gzip)
        return response

    def _answer(self, method: str, asked: Any) -> dict[str, Any] | None:
        match method:
            case "initialize":
                version = asked["params"]["protocolVersion"]
                about = {"name": "unresponsive", "version": "1"}
                about_it = {"protocolVersion": version, "serverInfo": about}
                return {"result": {**about_it, "capabilities": {"tools": {}}}}
            case "tools/list":
                return {"result": {"tools": self.tools}}
            case "tools/call":
                return {"result": {"content": [{"type": "text", "text": self.says}]}}
            case _ if "id" in asked:
                return {"error": {"code": -32601, "message": f"no {method}"}}
            case _:
                return None


@asynccontextmanager
async def unresponsive(*silent: str, **fields: Any) -> AsyncIterator[UnresponsiveServer]:
    server = UnresponsiveServer(frozenset(silent), **fields)
    app = web.Application()
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
