"""A GPT-Live client over a WebSocket, and a model that delegates."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from aiohttp import ClientWebSocketResponse
from openai.types.live import ServerEvent as StockServerEvent
from pydantic import TypeAdapter

from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from tests.pipeline.fakes import EchoLlm
from tests.signaling.realtime.servers import Server
from tests.signaling.realtime.webrtc_client import Caller

Json = dict[str, Any]

PATH = "/v1/live/sessions"
STOCK: TypeAdapter[Any] = TypeAdapter(StockServerEvent)
"The official client's types of server events, which check every field."

LEVEL_ONE, LEVEL_TWO = 1000, 2000
"Levels that the scripted recogniser takes for the words `one` and `two`."


class DelegatingLlm(EchoLlm):
    """A model that calls the client's tool when it hears `two`, says what it is told last, and
    repeats anything else."""

    def __init__(self, tool: str = "delegate") -> None:
        super().__init__()
        self.tool = tool

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall, None]:
        self.asked.append(list(messages))
        self.tools_asked.append(tools)
        last = messages[-1]
        if last.role == "user" and last.text == "two":
            yield ToolCall("call_1", self.tool, {})
            return
        said = "you said" if last.role == "user" else "it says"
        yield TextDelta(f"{said} {last.text.rpartition(': ')[2]}. ")


def pcm(*runs: tuple[int, int]) -> str:
    """Returns runs of (level, ms) at 24 kHz, in base64."""
    samples = np.concatenate([np.full(24 * ms, level, "<i2") for level, ms in runs])
    return b64encode(samples.tobytes()).decode()


class LiveClient:
    """The client's end. Every event that it gets is one of the official client's types."""

    def __init__(self, ws: ClientWebSocketResponse, types: TypeAdapter[Any] = STOCK) -> None:
        self.ws, self.types = ws, types
        self.got: list[Json] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.ws.send_json({"type": kind, **fields})

    async def say(self, *runs: tuple[int, int]) -> None:
        for run in runs:
            await self.send("session.input_audio.append", audio=pcm(run))

    async def expect(self, kind: str) -> list[Json]:
        """Returns all events up to the first one of this type."""
        seen: list[Json] = []
        while not seen or seen[-1]["type"] != kind:
            event = await self.ws.receive_json()
            self.types.validate_python(event)
            seen.append(event)
        self.got += seen
        return seen

    async def start(self, **session: Any) -> Json:
        await self.send("session.start", event_id="c1", session={"model": "gpt-live-1", **session})
        [started] = await self.expect("session.started")
        shown: Json = started["session"]
        return shown

    def words(self, kind: str) -> str:
        return "".join(e["delta"] for e in self.got if e["type"] == f"session.{kind}.delta")


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[LiveClient]:
    async with server.client.ws_connect(PATH) as ws:
        yield LiveClient(ws)


@asynccontextmanager
async def calling(server: Server, **session: Any) -> AsyncIterator[Caller]:
    """Yields a caller whose session has started, and hangs up afterwards."""
    caller = Caller()
    body = {
        "session": {"model": "gpt-live-1", **session},
        "transport": {"type": "webrtc", "sdp": await caller.peer.offer()},
    }
    response = await server.client.post(PATH, json=body)
    assert response.status == 201, await response.text()
    answer = await response.json()
    caller.call_id = answer["session"]["id"]
    await caller.peer.accept(answer["transport"]["sdp"])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(caller.peer.run())
        started = (await caller.expect("session.started"))[-1]
        STOCK.validate_python(started)
        assert started["session"]["id"] == caller.call_id
        assert "format" not in started["session"]["audio"]
        yield caller
        caller.peer.stop()


def sound_s(events: Sequence[Json], rate_hz: int = 24_000, sample_bytes: int = 2) -> float:
    """Returns the seconds of sound in these events."""
    deltas = [e["delta"] for e in events if e["type"] == "session.output_audio.delta"]
    return sum(len(b64decode(delta)) for delta in deltas) / sample_bytes / rate_hz
