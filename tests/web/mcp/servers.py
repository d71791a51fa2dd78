"""A house with four tools behind the MCP server's routes, mounted as the server mounts them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from core.access.named_key import CALLER_KEY, NamedKey
from core.ports import ToolContext
from pipeline.conversation.conversation import Conversations
from pipeline.tools.functions import FunctionTools, tool
from pipeline.tools.guards import Guards, GuardSettings
from pipeline.tools.skills.arguments import ToolError
from pipeline.tools.toolbox import Toolbox
from server.http.app import build
from server.http.auth import AccessGate
from tests.pipeline.fakes import Counts, LoopClock
from tests.web.client import Client
from web.mcp.door import McpDoor
from web.mcp.revisions import CAPABILITIES_KEY, REVISION_KEY, STATELESS_REVISION
from web.mcp.routes import mcp_routes
from web.mcp.sessions import McpSessions
from web.mcp.settings import McpDoorSettings
from web.mcp.tools import OfferedTools

ANNA = NamedKey("key_1", "anna", ("talk",))
BEN = NamedKey("key_2", "ben", ("talk",))

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@contextmanager
def called_by(key: NamedKey | None) -> Iterator[None]:
    """Makes calls those of a key; None: the server's own."""
    reset = CALLER_KEY.set(key)
    try:
        yield
    finally:
        CALLER_KEY.reset(reset)


@dataclass
class House:
    """Tools with what they did, and the door in front of them."""

    allow: frozenset[str] | None = None
    tools_of_keys: Mapping[str, Collection[str]] = field(default_factory=dict)
    "Tools that a named key may use, by the key's name."
    heartbeat_s: float = 15.0
    done: list[str] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    "Set when a call of `wait` runs."
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    "Set when a call of `wait` was cancelled."
    released: asyncio.Event = field(default_factory=asyncio.Event)
    "Lets calls of `wait` end."
    more: list[str] = field(default_factory=list)
    "Names of tools that came later."

    def __post_init__(self) -> None:
        conversations = Conversations()
        settings = McpDoorSettings("en", "1.2.3", self.allow, "kitchen")
        guards = Guards({"door": GuardSettings(("Anna",), tools=("unlock",))}, LoopClock())
        toolbox = Toolbox([self._functions(), _LaterTools(self)], Counts(), guards=guards)
        self.tools = OfferedTools(toolbox, conversations, settings, self._tools_of_caller)
        self.sessions = McpSessions(LoopClock())
        self.door = McpDoor(
            self.tools, self.sessions, settings, heartbeat_s=self.heartbeat_s, look_s=0.02
        )

    def _tools_of_caller(self) -> Collection[str] | None:
        key = CALLER_KEY.get()
        return self.tools_of_keys.get(key.name) if key is not None else None

    def _functions(self) -> FunctionTools:
        @tool(read_only=True)
        def lamps(*, context: ToolContext) -> dict[str, Any]:
            """Tells which lamps are on."""
            return {"room": context.place.area, "on": ["shelf"], "for": context.conversation_id}

        @tool()
        def switch(lamp: str) -> None:
            """Switches a lamp."""
            if lamp != "shelf":
                raise ToolError("there is no such lamp", code="no_such_device", lamps=["shelf"])
            self.done.append(lamp)

        @tool()
        def unlock() -> None:
            """Unlocks the door."""
            self.done.append("unlock")

        @tool(timeout_s=60)
        async def wait() -> str:
            """Waits until it may end."""
            self.began.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.done.append("cancelled")
                self.cancelled.set()
                raise
            return "done"

        return FunctionTools([lamps, switch, unlock, wait])

    @asynccontextmanager
    async def open(self, key: str | None = None) -> AsyncIterator[Client]:
        """Yields a client of a server with the access rules of the real one."""
        gate = AccessGate(is_local=key is None, key=key)
        app = build(mcp_routes(self.door), gate, Counts(), max_body_bytes=2**20)
        async with asyncio.timeout(20), TestClient(TestServer(app)) as client:
            yield client


class _LaterTools:
    """Tools that appear while the server runs, as those of Home Assistant do."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._known: tuple[str, ...] = ()
        self._functions = FunctionTools([])

    def tools(self, context: ToolContext) -> Any:
        if self._known != tuple(self._house.more):
            self._known = tuple(self._house.more)
            self._functions = FunctionTools([_named(name) for name in self._known])
        return self._functions.tools(context)

    async def call(self, name: str, arguments: Mapping[str, object], context: ToolContext) -> Any:
        return await self._functions.call(name, arguments, context)


def _named(name: str) -> Any:
    def later() -> None:
        """Does nothing."""

    later.__name__ = name
    return tool()(later)


def stateless(method: str, params: Mapping[str, Any] | None = None, **id_of: Any) -> dict[str, Any]:
    """Returns the body and headers of a request without a session, for `Client.post`."""
    meta = {REVISION_KEY: STATELESS_REVISION, CAPABILITIES_KEY: {}}
    whole = {**(params or {}), "_meta": meta}
    body = {"jsonrpc": "2.0", "id": id_of.get("id", 1), "method": method, "params": whole}
    headers = {**HEADERS, "MCP-Protocol-Version": STATELESS_REVISION, "Mcp-Method": method}
    if "name" in whole:
        headers["Mcp-Name"] = str(whole["name"])
    return {"json": body, "headers": headers}


async def begin(client: Client) -> dict[str, str]:
    """Begins a session and returns the headers of its requests."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    answer = await client.post("/mcp", json=rpc("initialize", params), headers=HEADERS)
    assert answer.status == 200
    session_id = answer.headers["Mcp-Session-Id"]
    return {**HEADERS, "Mcp-Session-Id": session_id, "MCP-Protocol-Version": "2025-11-25"}


def rpc(method: str, params: Mapping[str, Any] | None = None, **id_of: Any) -> dict[str, Any]:
    """Returns a request of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": id_of.get("id", 1), "method": method, "params": params or {}}


async def until(holds: Callable[[], bool]) -> None:
    """Waits until `holds()`; the time limit of the server ends it."""
    while not holds():  # noqa: ASYNC110 - a provider of tools reports no changes
        await asyncio.sleep(0.01)
