"""A WHIP client written from RFC 9725, with plain HTTP and plain aiortc."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiohttp import ClientResponse, ClientSession

from core.audio import Pcm
from tests.raw_peer import RATE_HZ, RawPeer, candidates_of, without_candidates

SDP = {"Content-Type": "application/sdp"}
FRAGMENT = {"Content-Type": "application/trickle-ice-sdpfrag"}


def beeps(*lengths_ms: int) -> Pcm:
    """Returns loud and silent parts in turn, loud first; the scripted VAD takes the loud ones for
    speech."""
    parts = []
    for index, ms in enumerate(lengths_ms):
        samples = np.arange(ms * RATE_HZ // 1000)
        wave = 4000 * np.sin(2 * np.pi * 300 * samples / RATE_HZ)
        parts.append(np.zeros(len(samples)) if index % 2 else wave)
    pcm: Pcm = np.concatenate(parts).astype(np.int16)
    return pcm


@dataclass
class Publisher:
    """One publication."""

    http: ClientSession
    raw: RawPeer
    location: str = ""
    etag: str = ""
    offer: str = ""

    async def publish(
        self,
        path: str = "/whip",
        *,
        trickles: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> ClientResponse:
        """Posts the offer and accepts the answer, if there is one. `headers`: more than those of
        the RFC."""
        self.offer = await self.raw.offer()
        body = without_candidates(self.offer) if trickles else self.offer
        response = await self.http.post(path, data=body, headers={**SDP, **(headers or {})})
        if response.status == 201:
            self.location, self.etag = response.headers["Location"], response.headers["ETag"]
            answer = await response.text()
            await self.raw.accept(without_candidates(answer) if trickles else answer)
        return response

    def fragment(self, candidates: list[str] | None = None) -> str:
        """Returns a fragment as in figure 5 of the RFC."""
        lines = ["a=group:BUNDLE 0", "m=audio 9 UDP/TLS/RTP/SAVPF 111", "a=mid:0"]
        lines += re.findall(r"a=ice-(?:ufrag|pwd):[^\r\n]*", self.offer)[:2]
        lines += [f"a={one}" for one in candidates or candidates_of(self.offer)]
        return "\r\n".join([*lines, "a=end-of-candidates"]) + "\r\n"

    async def patch(self, body: str | bytes, **headers: str) -> ClientResponse:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.patch(self.location, data=body, headers={**FRAGMENT, **given})

    async def end(self) -> ClientResponse:
        return await self.http.delete(self.location)


@asynccontextmanager
async def publishing(
    http: ClientSession, pcm: Pcm, path: str = "/whip", *, channel: str = ""
) -> AsyncIterator[Publisher]:
    """Yields a connected publisher, and closes it afterwards."""
    publisher = Publisher(http, RawPeer(pcm, "sendonly"))
    if channel:
        publisher.raw.channel(channel)
    try:
        response = await publisher.publish(path)
        assert response.status == 201, await response.text()
        await publisher.raw.connected.wait()
        yield publisher
    finally:
        await publisher.raw.close()


@dataclass
class Event:
    kind: str
    number: int
    data: dict[str, Any]


async def read_events(response: ClientResponse) -> AsyncIterator[Event]:
    """Yields server-sent events, to the end of the stream."""
    fields: dict[str, str] = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Event(fields["event"], int(fields["id"]), json.loads(fields["data"]))
            fields = {}


async def first(response: ClientResponse, kind: str) -> Event:
    async for event in read_events(response):
        if event.kind == kind:
            return event
    raise AssertionError(f"the stream ended without {kind}")


async def until_gone(http: ClientSession, location: str) -> None:
    """Waits, within the test's deadline, until the publication has ended."""
    while True:
        if (await http.get(location)).status == 404:
            return
        await asyncio.sleep(0.02)
