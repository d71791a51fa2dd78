"""A kitchen with tools behind HTTP, a Realtime server, and a model that calls the tools named in
the text."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import ClientWebSocketResponse

from core.http.fetch_policy import HostAllowlist
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from pipeline.services import SessionServices
from pipeline.shared.mcp_servers import ClientMcpPolicy
from tests.pipeline.fakes import EchoLlm, World
from tests.pipeline.tools.mcp.kitchens import KITCHEN, Kitchen
from tests.ports import reserved_port
from tests.shared import ROOT
from tests.signaling.realtime.servers import Server, Setup, running

Event = dict[str, Any]
DEADLINE_S = 30
"A kitchen takes seconds to open on a busy machine."

PATH = "/v1/realtime?model=default"


class ToldLlm(EchoLlm):
    """A model that calls tools for the text `call NAME JSON; ...`, with arguments in two pieces;
    after the results it repeats the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: list[list[str]] = []
        self.must_call: list[bool] = []

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall, None]:
        self.asked.append(list(messages))
        self.offered.append([tool.name for tool in tools])
        self.must_call.append(options.must_call)
        last = messages[-1] if messages else Message("user", "nothing")
        if last.role == "user" and last.text.startswith("call "):
            for index, wanted in enumerate(last.text.split(";")):
                _, name, arguments = wanted.strip().split(" ", 2)
                for piece in (arguments[:3], arguments[3:]):
                    yield CallDelta(f"call_{index}", name, piece)
                yield ToolCall(f"call_{index}", name, json.loads(arguments))
            return
        yield TextDelta(last.text)


@dataclass
class RemoteWorld(World):
    policy: ClientMcpPolicy = field(default_factory=ClientMcpPolicy)

    def services(self) -> SessionServices:
        return replace(super().services(), mcp_policy=self.policy)


@dataclass
class House:
    """A server, the kitchen, and one client of the server."""

    server: Server
    kitchen: Kitchen
    llm: ToldLlm
    ws: ClientWebSocketResponse

    @property
    def url(self) -> str:
        return self.kitchen.settings().url

    def tool(self, **fields: Any) -> Event:
        return {"type": "mcp", "server_label": "kitchen", "server_url": self.url, **fields}

    async def update(self, **session: Any) -> Event:
        await self.ws.send_json(
            {
                "type": "session.update",
                "session": {"type": "realtime", "output_modalities": ["text"], **session},
            }
        )
        return (await self.until("session.updated"))[-1]["session"]  # type: ignore[no-any-return]

    async def given(self, **fields: Any) -> list[Event]:
        """Adds the kitchen's tools to the session; returns all events until they were listed."""
        await self.update(tools=[self.tool(**fields)])
        return await self.until("conversation.item.done")

    async def until(self, kind: str) -> list[Event]:
        """Returns all events up to the first one of this type."""
        seen: list[Event] = []
        while not seen or seen[-1]["type"] != kind:
            seen.append(await self.ws.receive_json())
        return seen

    async def write(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        await self.ws.send_json({"type": "conversation.item.create", "item": item})
        await self.until("conversation.item.done")

    async def ask(self, text: str, **response: Any) -> list[Event]:
        """Sends the text and requests a response; returns all events up to its end."""
        await self.write(text)
        await self.ws.send_json({"type": "response.create", "response": response})
        return await self.until("response.done")

    async def decide(self, request_id: str, *, approve: bool, reason: str | None = None) -> None:
        item = {
            "type": "mcp_approval_response",
            "approval_request_id": request_id,
            "approve": approve,
            "reason": reason,
        }
        await self.ws.send_json({"type": "conversation.item.create", "item": item})


def kinds(events: Sequence[Event]) -> list[str]:
    """Returns the types of events, with runs of the same type joined."""
    out: list[str] = []
    for event in events:
        if not out or out[-1] != event["type"]:
            out.append(event["type"])
    return out


def of(kind: str, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["type"] == kind]


@contextmanager
def cooking(folder: Path) -> Iterator[Kitchen]:
    """Opens a kitchen, which takes seconds, so tests share it."""
    with reserved_port() as port:
        arguments = [sys.executable, *KITCHEN, str(folder), str(port)]
        nowhere = subprocess.DEVNULL
        with subprocess.Popen(arguments, cwd=ROOT, stdout=nowhere, stderr=nowhere) as process:
            try:
                _wait_for(port)
                yield Kitchen(folder, port)
            finally:
                process.kill()


def _wait_for(port: int) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < ends_at
            time.sleep(0.05)  # in another process, which reports nothing
        else:
            return


def in_house(
    kitchen: Kitchen,
    scene: Callable[[House], Awaitable[Any]],
    policy: ClientMcpPolicy | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Runs a scene in a house. `policy`: None for one that allows the kitchen."""
    llm = ToldLlm()

    async def main() -> None:
        allowed = policy or ClientMcpPolicy(HostAllowlist([f"127.0.0.1:{kitchen.port}"]))
        setup = Setup(world=RemoteWorld(llm=llm, policy=allowed))
        async with (
            asyncio.timeout(DEADLINE_S),
            running(setup) as server,
            server.client.ws_connect(PATH, headers=headers) as ws,
        ):
            house = House(server, kitchen, llm, ws)
            await house.until("conversation.created")
            await scene(house)

    asyncio.run(main())
