"""A xiaozhi board that is talked to: what a measurement hears of it."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from bench.client.latency_probe import AudioReceiver
from bench.peers.utterance_audio import BenchUtterance, until
from core.audio import ASR_RATE_HZ, AudioFrame
from core.errors import EarshotError
from media.codecs.opus import OpusDecoder, OpusEncoder, OpusSettings

PACKET_MS = 60
TURN_TIMEOUT_S = 30
DOWN_RATE_HZ = 24_000

HELLO = {
    "type": "hello",
    "version": 1,
    "transport": "websocket",
    "features": {},
    "audio_params": {"format": "opus", "sample_rate": 16000, "channels": 1, "frame_duration": 60},
}


class NoAnswer(EarshotError):
    code = "no_answer"


@dataclass(frozen=True, slots=True)
class EncodedClip:
    """Something to say, encoded before anybody's time is taken."""

    packets: Sequence[bytes]
    end_s: float
    "When its last sample of speech is spoken."


@dataclass(frozen=True, slots=True)
class BoardTurn:
    """One turn: ms from the last sample of speech."""

    packet_ms: float
    "To the first Opus packet."
    audible_ms: float
    "To the first audible sample, as a board without a buffer of its own plays it."


def clip_of(said: BenchUtterance) -> EncodedClip:
    settings = OpusSettings(24_000, "voip", PACKET_MS, complexity=0)
    encoder = OpusEncoder(ASR_RATE_HZ, settings)
    pcm, end = said.narrow()
    size = encoder.frame_samples
    whole = range(0, len(pcm) - size + 1, size)
    return EncodedClip([encoder.encode(pcm[at : at + size]) for at in whole], end / ASR_RATE_HZ)


class Board:
    """One connection."""

    def __init__(self, ws: ClientWebSocketResponse) -> None:
        self._ws = ws
        self._decoder = OpusDecoder(DOWN_RATE_HZ)
        self._played = 0
        "Samples, since it was connected."

    async def close(self) -> None:
        await self._ws.close()

    async def turn(self, clip: EncodedClip) -> BoardTurn:
        """Say it, hear the answer to its end. Raises NoAnswer."""
        start = {"type": "listen", "state": "start", "mode": "auto"}
        await self._ws.send_str(json.dumps(start))
        clock = asyncio.get_running_loop().time
        began = clock()

        async def speak() -> None:
            for number, packet in enumerate(clip.packets, 1):
                await until(began + number * PACKET_MS / 1000, clock)
                await self._ws.send_bytes(packet)

        async with asyncio.timeout(TURN_TIMEOUT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(speak())
            first_at, heard_at = await self._hear()
        ended = began + clip.end_s
        return BoardTurn(1000 * (first_at - ended), 1000 * (heard_at - ended))

    async def _hear(self) -> tuple[float, float]:
        """When the first packet came, and when its first audible sample was played, once all was
        said. Raises NoAnswer."""
        clock, ear = asyncio.get_running_loop().time, AudioReceiver(is_paced=False)
        first: float | None = None
        async for message in self._ws:
            if message.type is WSMsgType.BINARY:
                now = clock()
                first = now if first is None else first
                pcm = self._decoder.decode(message.data)
                ear.hear(AudioFrame(pcm, DOWN_RATE_HZ, self._played), now)
                self._played += len(pcm)
            elif message.type is WSMsgType.TEXT and json.loads(message.data).get("state") == "stop":
                break
        if first is None or ear.heard_at is None:
            raise NoAnswer("nothing was answered")
        return first, ear.heard_at


async def connect(http: ClientSession, number: int) -> Board:
    """`number` makes its MAC."""
    device = {"Device-Id": f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"}
    async with http.post("/xiaozhi/ota/", headers=device) as answer:
        told = (await answer.json())["websocket"]
    headers = device | {"Authorization": f"Bearer {told['token']}", "Protocol-Version": "1"}
    ws = await http.ws_connect(told["url"], headers=headers)
    await ws.send_str(json.dumps(HELLO))
    await ws.receive_str()
    return Board(ws)
