"""A WebRTC client of the Realtime API, with a tone for a voice."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import FormData

from core.audio import AudioFrame
from media.webrtc.peer import Peer, PeerCallbacks, PeerSettings
from tests.signaling.realtime.servers import Server

Event = dict[str, Any]
CALLS = "/v1/realtime/calls"
SDP = {"Content-Type": "application/sdp"}


@dataclass
class Caller:
    """A client with a tone for a voice; `level` is its present level."""

    level: int = 0
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    call_id: str = ""

    def __post_init__(self) -> None:
        self.peer = Peer(PeerCallbacks(self._speak, self._hear, self._note), PeerSettings())

    async def call(self, server: Server, session: Event | None = None) -> None:
        response = await server.client.post(CALLS, data=form(await self.peer.offer(), session))
        assert response.status == 201, await response.text()
        assert response.content_type == "application/sdp"
        assert response.headers["Access-Control-Expose-Headers"] == "Location"
        self.call_id = response.headers["Location"].removeprefix(f"{CALLS}/")
        assert self.call_id.startswith("rtc_")
        await self.peer.accept(await response.text())

    async def expect(self, kind: str) -> list[Event]:
        """Returns all events up to the first one of this type."""
        seen: list[Event] = []
        while not seen or seen[-1]["type"] != kind:
            seen.append(await self.events.get())
        return seen

    def send(self, **event: Any) -> None:
        self.peer.send(json.dumps(event))

    def _speak(self) -> AudioFrame:
        wave = self.level * np.sign(np.sin(np.arange(960) * 2 * np.pi * 300 / 48_000) + 1e-9)
        return AudioFrame(wave.astype(np.int16), 48_000, 0)

    def _hear(self, frame: AudioFrame) -> None:
        if np.abs(frame.pcm).max() > 2000:
            self.heard.set()

    def _note(self, text: str | bytes) -> None:
        assert isinstance(text, str)
        self.events.put_nowait(json.loads(text))


def form(sdp: str, session: Event | str | None = None) -> FormData:
    data = FormData()
    data.add_field("sdp", sdp, content_type="application/sdp")
    if session is not None:
        text = session if isinstance(session, str) else json.dumps(session)
        data.add_field("session", text, content_type="application/json")
    return data


@asynccontextmanager
async def talking(server: Server, session: Event | None = None) -> AsyncIterator[Caller]:
    """Yields a connected caller, and hangs up afterwards."""
    caller = Caller()
    await caller.call(server, session)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(caller.peer.run())
        await caller.expect("conversation.created")
        yield caller
        caller.peer.stop()
