"""A client of `POST /api/rtc/asr`: a WebRTC peer with a channel `chat`, and clips for a voice."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import ClientSession

from core.audio import AudioFrame, Pcm
from media.webrtc.peer import Peer, PeerCallbacks, PeerSettings

Message = dict[str, Any]
FRAME = 960


@dataclass
class Caller:
    """Sends `clip` once, as soon as it is set; silence otherwise."""

    clip: Pcm = field(default_factory=lambda: np.zeros(0, np.int16))
    "At 48 kHz."
    messages: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    said: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        callbacks = PeerCallbacks(
            self._speak, lambda frame: None, self._note, on_open=self.opened.set
        )
        self.peer = Peer(callbacks, PeerSettings(channel_label="chat"))

    async def call(self, client: ClientSession, query: Mapping[str, str] | None = None) -> None:
        offer = {"sdp": _as_wis_has_it(await self.peer.offer()), "type": "offer"}
        response = await client.post("/api/rtc/asr", json=offer, params=query or {})
        assert response.status == 200, await response.text()
        answer = await response.json()
        assert set(answer) == {"sdp", "type"}
        assert answer["type"] == "answer"
        await self.peer.accept(answer["sdp"])

    def send(self, kind: str, message: str | None = None, obj: Any = None) -> None:
        fields = {"type": kind, "message": message, "obj": obj}
        self.peer.send(json.dumps({k: v for k, v in fields.items() if v is not None}))

    async def say(self, clip: Pcm) -> None:
        """Waits until the last frame is with the encoder."""
        self.said.clear()
        self.clip = clip
        await self.said.wait()

    async def expect(self, kind: str) -> Message:
        """Returns the next message of that type; only `log` messages may come before it."""
        while True:
            message = await self.messages.get()
            assert message["type"] in (kind, "log"), message
            if message["type"] == kind:
                return message

    def _speak(self) -> AudioFrame | None:
        if not len(self.clip):
            self.said.set()
            return None
        part, self.clip = self.clip[:FRAME], self.clip[FRAME:]
        return AudioFrame(np.pad(part, (0, FRAME - len(part))), 48_000, 0)

    def _note(self, text: str | bytes) -> None:
        assert isinstance(text, str)
        self.messages.put_nowait(json.loads(text))


def _as_wis_has_it(sdp: str) -> str:
    """Changes the offer as WIS's browser client does: it requests the bandwidth of speech."""
    found = re.search(r"a=rtpmap:(\d+) opus/48000/2\r\n", sdp)
    assert found is not None
    wish = "minptime=10;useinbandfec=1;sprop-maxcapturerate=16000;stereo=0"
    return sdp.replace(found[0], f"{found[0]}a=fmtp:{found[1]} {wish}\r\n", 1)


@asynccontextmanager
async def calling(
    client: ClientSession, query: Mapping[str, str] | None = None
) -> AsyncIterator[Caller]:
    """Yields a connected caller and closes it afterwards."""
    caller = Caller()
    await caller.call(client, query)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(caller.peer.run())
        await caller.opened.wait()
        yield caller
        caller.peer.stop()
