"""Minimal servers on the same libraries, with which Earshot is compared.

    python -m bench.capacity.bare_servers stock|media|public|quiet|echo

`stock`: aiortc alone; each caller gets a tone, and received audio is dropped. `media`: the same
with Earshot's own peer, without a session behind it. `public`: the same peer on aiortc's public
interface. `quiet`: Earshot's own peer, which sends silence. `echo`: a WebSocket that sends each
text back, unread. All run on uvloop, as Earshot does.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from fractions import Fraction
from typing import Any

from aiohttp import WSMsgType
from aiohttp import web as aioweb
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame as AvFrame
from uvloop import new_event_loop

from bench.client.webrtc import CREATED
from bench.server.stub_engines.tts import TONE_HZ, tone
from core.audio import PTIME_MS, AudioFrame, Pcm, ms_to_samples
from media.codecs.opus import OPUS_RATE_HZ
from media.resample import Resampler
from media.webrtc.ice.settings import IceSettings
from media.webrtc.peer import Peer, PeerCallbacks, PeerSettings

FRAME_SAMPLES = ms_to_samples(PTIME_MS, OPUS_RATE_HZ)
"Samples of a packet of 20 ms at 48 kHz."

OfferHandler = Callable[[str, asyncio.TaskGroup], Coroutine[Any, Any, str]]
"Function that answers an SDP offer; the call's tasks belong to the group."


def frame_of_tone() -> Pcm:
    """Returns 20 ms of the stub voice's tone at Opus's rate: whole periods, so that it can be
    repeated."""
    assert PTIME_MS * TONE_HZ % 1000 == 0
    resampler = Resampler(24_000, OPUS_RATE_HZ)
    return resampler.push(tone(10 * PTIME_MS))[FRAME_SAMPLES : 2 * FRAME_SAMPLES]


class StockTone(MediaStreamTrack):
    """Track that sends a frame whenever it is due, as aiortc's own examples do."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._pcm = frame_of_tone().reshape(1, -1)
        self._clock = asyncio.get_running_loop().time
        self._origin: float | None = None
        self._tick = 0

    async def recv(self) -> AvFrame:
        self._origin = self._clock() if self._origin is None else self._origin
        due = self._origin + self._tick * PTIME_MS / 1000
        await asyncio.sleep(max(0.0, due - self._clock()))
        frame = AvFrame.from_ndarray(self._pcm, format="s16", layout="mono")
        frame.sample_rate = OPUS_RATE_HZ
        frame.time_base = Fraction(1, OPUS_RATE_HZ)
        frame.pts = self._tick * FRAME_SAMPLES
        self._tick += 1
        return frame


async def stock(offer: str, tasks: asyncio.TaskGroup) -> str:
    """Answers a call with aiortc alone."""
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTrack(StockTone())

    async def listen(track: MediaStreamTrack) -> None:
        with suppress(MediaStreamError):
            while True:
                await track.recv()
        await pc.close()

    pc.on("track", lambda track: tasks.create_task(listen(track)))
    await pc.setRemoteDescription(RTCSessionDescription(offer, "offer"))
    await pc.setLocalDescription()
    return pc.localDescription.sdp


async def media(offer: str, tasks: asyncio.TaskGroup) -> str:
    """Answers a call with Earshot's own peer and a tone."""
    return await _peer(offer, tasks, AudioFrame(frame_of_tone(), OPUS_RATE_HZ, 0))


async def public(offer: str, tasks: asyncio.TaskGroup) -> str:
    """Answers a call with Earshot's own peer on aiortc's public interface, and a tone."""
    return await _peer(offer, tasks, AudioFrame(frame_of_tone(), OPUS_RATE_HZ, 0), PUBLIC)


async def quiet(offer: str, tasks: asyncio.TaskGroup) -> str:
    """Answers a call with Earshot's own peer and silence."""
    return await _peer(offer, tasks, None)


SETTINGS, PUBLIC = PeerSettings(), PeerSettings(ice=IceSettings(wants_fast_path=False))
"Shared by all peers, as in the server."


async def _peer(
    offer: str,
    tasks: asyncio.TaskGroup,
    frame: AudioFrame | None,
    settings: PeerSettings = SETTINGS,
) -> str:
    def drop(_: object) -> None:
        pass

    peer = Peer(PeerCallbacks(pull=lambda: frame, on_frame=drop, on_message=drop), settings)
    answer = await peer.answer(offer)
    tasks.create_task(peer.run())
    return answer


async def echo(request: aioweb.Request) -> aioweb.WebSocketResponse:
    """Sends each text back."""
    ws = aioweb.WebSocketResponse(compress=False, protocols=("realtime",))
    await ws.prepare(request)
    async for message in ws:
        if message.type is WSMsgType.TEXT:
            await ws.send_str(message.data)
    return ws


async def serve(kind: str) -> None:
    """Serves on a free port until a signal stops it. kind: stock, media, public, quiet or echo (see
    above)."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as tasks:
        answer: OfferHandler = {
            "stock": stock,
            "public": public,
            "quiet": quiet,
        }.get(kind, media)

        async def call(request: aioweb.Request) -> aioweb.Response:
            offer = (await request.post())["sdp"]
            assert isinstance(offer, bytes | bytearray)
            return aioweb.Response(text=await answer(offer.decode(), tasks), status=CREATED)

        app = aioweb.Application()
        app.router.add_post("/v1/realtime/calls", call)
        app.router.add_get("/v1/realtime", echo)
        runner = aioweb.AppRunner(app, access_log=None)
        await runner.setup()
        await aioweb.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"ready in 0 s at http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await stop.wait()
        raise SystemExit(0)  # open calls end with the process


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(sys.argv[1]))
