"""Latency of the client itself: from its microphone to its player, with no server in between.

Each response latency contains it twice: on the way to the server, and on the way back.
"""

import asyncio
from base64 import b64encode

from aiohttp import ClientSession, WSMsgType
from aiohttp import web as aioweb
from msgspec.json import decode, encode

from bench.client.microphone import FRAME_SAMPLES
from bench.client.realtime import ClientTransport
from bench.voice import jitter
from core.audio import PTIME_MS

JITTER_DEPTH = 1
"Depth of the client's own jitter buffer, in packets."

FRAMES = 100
"Number of frames that are sent over the WebSocket."


async def one_way_ms(transport: ClientTransport) -> list[float]:
    """Returns the latencies of a transport, in ms, one for each beep or event.

    WebRTC: a beep from one peer to another in this process, with Opus, encryption and jitter
    buffer. WebSocket: half of an event's round trip to a server in this process.
    """
    if transport == "webrtc":
        return (await jitter.measure(JITTER_DEPTH, phases=1)).clean
    return await _over_websocket()


async def _over_websocket() -> list[float]:
    runner = aioweb.AppRunner(_echo())
    await runner.setup()
    try:
        site = aioweb.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with ClientSession() as http, http.ws_connect(f"http://127.0.0.1:{port}/") as ws:
            clock = asyncio.get_running_loop().time
            event = {
                "type": "input_audio_buffer.append",
                "audio": b64encode(bytes(2 * FRAME_SAMPLES)).decode(),
            }
            took_ms = []
            for _ in range(FRAMES):
                sent_at = clock()
                await ws.send_str(encode(event).decode())
                decode(await ws.receive_str())
                took_ms.append(1000 * (clock() - sent_at) / 2)
                await asyncio.sleep(PTIME_MS / 1000)
            return took_ms
    finally:
        await runner.cleanup()


def _echo() -> aioweb.Application:
    async def echo(request: aioweb.Request) -> aioweb.WebSocketResponse:
        ws = aioweb.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            if message.type is WSMsgType.TEXT:
                await ws.send_str(encode(decode(message.data)).decode())
        return ws

    app = aioweb.Application()
    app.router.add_get("/", echo)
    return app
