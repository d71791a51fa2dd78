"""A fake Home Assistant on loopback, with the REST and WebSocket API of the protocol sheet."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType
from aiohttp import web as aioweb

TOKEN = "llat-of-a-test"


def light(name: str, area: str = "", **more: Any) -> dict[str, Any]:
    return {"id": f"light.{name.lower().replace(' ', '_')}", "name": name, "area": area, **more}


def answered(speech: str, kind: str = "action_done", **more: Any) -> dict[str, Any]:
    """Returns an answer of `conversation/process`; `code` makes it an error."""
    data: dict[str, Any] = {"targets": [], "success": [], "failed": []}
    if "code" in more:
        kind, data = "error", {"code": more.pop("code")}
    response = {
        "response_type": kind,
        "language": "en",
        "speech": {"plain": {"speech": speech, "extra_data": None}} if speech else {},
        "card": {},
        "data": data,
    }
    return {
        "conversation_id": "c-1",
        "continue_conversation": False,
        **more,
        "response": response,
    }


@dataclass
class FakeHome:
    """Its entities, its behaviour, and the requests that it got."""

    entities: list[dict[str, Any]] = field(default_factory=lambda: [light("Kitchen Lights")])
    areas: list[dict[str, Any]] = field(default_factory=list)
    answer: Callable[[dict[str, Any]], dict[str, Any]] = lambda asked: answered("Done")
    token: str = TOKEN
    is_banned: bool = False
    is_admin: bool = True
    has_websocket: bool = True
    is_coalesced: bool = True
    mcp: Callable[[aioweb.Request], Awaitable[aioweb.Response]] | None = None
    "Its MCP server behind the token; None: the integration is not there."
    mcp_token: str = ""
    "One that its MCP server wants instead of the usual one."
    mcp_requests: int = 0
    greets_with: str = ""
    "Instead of what it should say."
    url: str = ""
    sentences: list[dict[str, Any]] = field(default_factory=list)
    "Asked of its conversation, over either way; `via` says which."
    services: list[dict[str, Any]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    features: list[Any] = field(default_factory=list)
    watched: dict[int, list[str]] = field(default_factory=dict)
    "Subscription -> the entities whose states it wants."
    logins: int = 0
    "Tokens that were looked at, over either way."
    released: asyncio.Event = field(default_factory=asyncio.Event)
    "While it is not set, sentences wait."
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    _open: list[aioweb.WebSocketResponse] = field(default_factory=list)
    _listening: dict[aioweb.WebSocketResponse, list[int]] = field(default_factory=dict)
    _port: int = 0
    _runner: aioweb.AppRunner | None = None

    async def start(self) -> None:
        app = aioweb.Application()
        app.router.add_get("/api/websocket", self._websocket)
        app.router.add_post("/api/conversation/process", self._process)
        app.router.add_route("*", "/api/mcp", self._mcp)
        self._runner = aioweb.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = aioweb.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Stops it as for a restart; `start` starts it again on the same port."""
        await self.hang_up()
        if self._runner is not None:
            await self._runner.cleanup()

    async def hang_up(self) -> None:
        for ws in list(self._open):
            await ws.close()

    async def tell(self, kind: str) -> None:
        """Sends an event to the subscribers."""
        for ws, numbers in self._listening.items():
            for number in numbers:
                event = {"event_type": kind, "data": {}}
                await ws.send_json({"id": number, "type": "event", "event": event})

    async def show(self, **event: Any) -> None:
        """Sends states to the watchers: `a` for added ones, `c` for changes."""
        for number in self.watched:
            await self.send(json.dumps({"id": number, "type": "event", "event": event}))

    async def send(self, frame: str) -> None:
        for ws in self._open:
            await ws.send_str(frame)

    async def _websocket(self, request: aioweb.Request) -> aioweb.StreamResponse:
        if self.is_banned:
            raise aioweb.HTTPForbidden
        if not self.has_websocket:
            raise aioweb.HTTPBadGateway
        ws = aioweb.WebSocketResponse()
        await ws.prepare(request)
        if self.greets_with:
            await ws.send_str(self.greets_with)
        else:
            await ws.send_json({"type": "auth_required", "ha_version": "2026.8.1"})
        first = await ws.receive()
        if first.type is not WSMsgType.TEXT:
            return ws
        self.logins += 1
        if json.loads(first.data) != {"type": "auth", "access_token": self.token}:
            await ws.send_json({"type": "auth_invalid", "message": "Invalid access token"})
            await ws.close()
            return ws
        await ws.send_json({"type": "auth_ok", "ha_version": "2026.8.1"})
        self._open.append(ws)
        self._listening[ws] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                async for message in ws:
                    tasks.create_task(self._command(ws, json.loads(message.data)))
        finally:
            self._open.remove(ws)
            del self._listening[ws]
        return ws

    async def _command(self, ws: aioweb.WebSocketResponse, asked: dict[str, Any]) -> None:
        number = asked.pop("id")
        self.ids.append(number)
        kind = asked.pop("type")
        if kind == "ping":
            await ws.send_json({"id": number, "type": "pong"})
            return
        told: dict[str, Any] = {"id": number, "type": "result"}
        try:
            told |= {"success": True, "result": await self._result(ws, number, kind, asked)}
        except LookupError as error:
            told |= {"success": False, "error": {"code": str(error.args[0]), "message": kind}}
        other = {"id": 10_000, "type": "event", "event": {"event_type": "state_changed"}}
        if not ws.closed:
            await ws.send_str(json.dumps([other, told] if self.is_coalesced else told))

    async def _result(
        self, ws: aioweb.WebSocketResponse, number: int, kind: str, asked: dict[str, Any]
    ) -> Any:
        match kind:
            case "supported_features":
                self.features.append(asked["features"])
            case "subscribe_events":
                self._listening[ws].append(number)
            case "subscribe_entities":
                self.watched[number] = asked["entity_ids"]
            case "unsubscribe_events":
                del self.watched[asked["subscription"]]
            case "conversation/process":
                return await self._answer({**asked, "via": "websocket"})
            case "call_service":
                self.services.append(asked)
                return {"context": {}}
            case "config/area_registry/list":
                return self.areas
            case "config/device_registry/list" | "config/floor_registry/list":
                return []
            case "get_states" | "config/entity_registry/get_entries":
                return self._states() if kind == "get_states" else self._entries(asked)
            case "homeassistant/expose_entity/list" if self.is_admin:
                shown = [one["id"] for one in self.entities if one.get("exposed", True)]
                return {"exposed_entities": {one: {"conversation": True} for one in shown}}
            case "homeassistant/expose_entity/list":
                raise LookupError("unauthorized")
            case _:
                raise LookupError("unknown_command")
        return None

    def _states(self) -> list[dict[str, Any]]:
        return [
            {"entity_id": one["id"], "state": "off", "attributes": {"friendly_name": one["name"]}}
            for one in self.entities
        ]

    def _entries(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            one["id"]: {
                "area_id": one["area"] or None,
                "device_id": None,
                "aliases": one.get("aliases", []),
                "options": {"conversation": {"should_expose": one.get("exposed", True)}},
            }
            for one in self.entities
            if one["id"] in asked["entity_ids"]
        }

    async def _process(self, request: aioweb.Request) -> aioweb.Response:
        if self.is_banned:
            raise aioweb.HTTPForbidden
        self.logins += 1
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise aioweb.HTTPUnauthorized
        asked = await request.json()
        if asked.get("conversation_id", "") is None:
            raise aioweb.HTTPBadRequest
        return aioweb.json_response(await self._answer({**asked, "via": "rest"}))

    async def _mcp(self, request: aioweb.Request) -> aioweb.Response:
        self.mcp_requests += 1
        if self.mcp is None:
            raise aioweb.HTTPNotFound
        if request.headers.get("Authorization") != f"Bearer {self.mcp_token or self.token}":
            raise aioweb.HTTPUnauthorized
        return await self.mcp(request)

    async def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.sentences.append(asked)
        self.asked.set()
        await self.released.wait()
        return self.answer(asked)


@asynccontextmanager
async def fake_home(**how: Any) -> AsyncIterator[FakeHome]:
    """Runs one, which answers sentences at once."""
    home = FakeHome(**how)
    home.released.set()
    await home.start()
    try:
        yield home
    finally:
        home.released.set()
        await home.stop()
