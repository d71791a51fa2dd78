"""The client process in its own network namespace: plain aiortc, which gets its TURN servers from
the server.

`caller.py '{"url": ..., "transport": "udp", ...}'` prints the outcome as one JSON line; with
`"stays": true` it goes on until it is killed.
"""

import asyncio
import json
import re
import sys
from typing import Any

import numpy as np
from aiohttp import ClientSession
from aiortc import RTCIceServer

from tests.media.signals import peak_hz, tone
from tests.network.station import CALLER_HZ, SERVER_HZ
from tests.raw_peer import RATE_HZ, RawPeer
from tests.signaling.whip.client import beeps, first

SDP = {"Content-Type": "application/sdp"}


async def call(http: ClientSession, wishes: dict[str, Any]) -> dict[str, Any]:
    """Exchanges audio and texts in both directions, with the servers of `GET /earshot/ice`."""
    async with http.get("/earshot/ice") as response:
        servers = (await response.json())["iceServers"]
    raw = RawPeer(tone(CALLER_HZ, 60 * RATE_HZ, RATE_HZ), servers=chosen(servers, wishes))
    channel = raw.channel("oai-events")
    async with http.post("/call", data=await raw.offer(), headers=SDP) as response:
        if response.status != 201:
            await raw.close()
            return {"connected": False, "code": (await response.json())["error"]["code"]}
        await raw.accept(await response.text())
    if not await connects(raw, wishes):
        return {"connected": False}
    await raw.hears(lambda pcm: abs(peak_hz(pcm, RATE_HZ) - SERVER_HZ) < 15)
    heard = ""
    while not heard.startswith("heard"):
        channel.send("hello")
        heard = await raw.texts.get()
    return await ended(raw, {"connected": True, "pair": pair(raw), "text": heard}, wishes)


async def converse(http: ClientSession, wishes: dict[str, Any]) -> dict[str, Any]:
    """Makes a Realtime call: a written question, a spoken answer."""
    async with http.get("/earshot/ice") as response:
        servers = (await response.json())["iceServers"]
    raw = RawPeer(np.zeros(0, np.int16), servers=chosen(servers, wishes))
    channel = raw.channel("oai-events")
    async with http.post("/v1/realtime/calls", data=await raw.offer(), headers=SDP) as response:
        await raw.accept(await response.text())
    if not await connects(raw, wishes):
        return {"connected": False}
    await until(raw, "session.created")
    part = {"type": "input_text", "text": "hello"}
    item = {"type": "message", "role": "user", "content": [part]}
    channel.send(json.dumps({"type": "conversation.item.create", "item": item}))
    channel.send(json.dumps({"type": "response.create"}))
    await raw.hears(lambda pcm: bool(np.abs(pcm).max() > 1000))
    await until(raw, "output_audio_buffer.stopped")
    return await ended(raw, {"connected": True, "pair": pair(raw)}, wishes)


async def until(raw: RawPeer, kind: str) -> None:
    while json.loads(await raw.texts.get())["type"] != kind:
        pass


async def ended(raw: RawPeer, said: dict[str, Any], wishes: dict[str, Any]) -> dict[str, Any]:
    """Ends the call politely, or stays until it is killed."""
    if wishes.get("stays"):
        print(json.dumps(said), flush=True)
        await asyncio.Event().wait()
    await raw.close()
    return said


async def publish(http: ClientSession, wishes: dict[str, Any]) -> dict[str, Any]:
    """Publishes with WHIP and the servers of the `Link` headers in the response to a first POST."""
    first_try = RawPeer(beeps(100), "sendonly")
    async with http.post("/whip", data=await first_try.offer(), headers=SDP) as response:
        servers = [linked(link) for link in response.headers.getall("Link")]
        location = response.headers["Location"]
    await http.delete(location)
    await first_try.close()
    raw = RawPeer(beeps(600, 20_000), "sendonly", chosen(servers, wishes))
    async with http.post("/whip", data=await raw.offer(), headers=SDP) as response:
        location = response.headers["Location"]
        await raw.accept(await response.text())
    if not await connects(raw, wishes):
        return {"connected": False}
    async with http.get(f"{location}/events") as response:
        said = (await first(response, "completed")).data["transcript"]
    await http.delete(location)
    await raw.close()
    return {"connected": True, "text": said}


async def connects(raw: RawPeer, wishes: dict[str, Any]) -> bool:
    try:
        async with asyncio.timeout(wishes["patience_s"]):
            await raw.connected.wait()
    except TimeoutError:
        await raw.close()
        return False
    return True


def chosen(servers: list[dict[str, Any]], wishes: dict[str, Any]) -> list[RTCIceServer]:
    """Returns the one TURN URL over the transport of the test: aiortc uses only one."""
    return [
        RTCIceServer(url, server["username"], wishes.get("credential") or server["credential"])
        for server in servers
        for url in server["urls"]
        if url.endswith(wishes["transport"])
    ]


def linked(header: str) -> dict[str, Any]:
    """Parses one `Link` header (RFC 9725, 4.6)."""
    assert 'rel="ice-server"' in header
    url = header[1 : header.index(">")]
    found = dict(re.findall(r'; ([a-z-]+)="([^"]*)"', header))
    assert found["credential-type"] == "password"
    return {"urls": [url], "username": found["username"], "credential": found["credential"]}


def pair(raw: RawPeer) -> list[str]:
    """Returns the types of the candidates in use, ours first."""
    connection = raw.pc.getSenders()[0].transport.transport.iceGatherer._connection
    used = connection._nominated[1]
    return [used.local_candidate.type, used.remote_candidate.type]


async def main(wishes: dict[str, Any]) -> None:
    bearer = {"Authorization": f"Bearer {wishes['key']}"}
    do = {"call": call, "whip": publish, "realtime": converse}[wishes["does"]]
    async with ClientSession(wishes["url"], headers=bearer) as http:
        print(json.dumps(await do(http, wishes)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
