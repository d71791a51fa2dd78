"""How soon a xiaozhi board hears its answer: alone, and among many.

    python -m bench.xiaozhi [--turns 10] [--idle 200] [--talking 20] [--stubs 50,150,80]

From the last sample of speech to the first Opus packet, with engines that take set times. What the
browser's door takes with the same ones: `python -m bench voice --stubs 50,150,80`.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSMsgType

from bench.clips import COMMANDS, spoken
from bench.own_server import own_server
from bench.peers.sound import Utterance, utterance
from bench.stats import machine, percentile
from bench.voice.stubs import Stubs, stubs
from core.audio import ASR_RATE_HZ
from core.errors import EarshotError
from media.opus import OpusEncoder, OpusSettings

PACKET_MS = 60
TURN_TIMEOUT_S = 30

HELLO = {
    "type": "hello",
    "version": 1,
    "transport": "websocket",
    "features": {},
    "audio_params": {"format": "opus", "sample_rate": 16000, "channels": 1, "frame_duration": 60},
}


class NoAnswer(EarshotError):
    code = "no_answer"


class Board:
    """One connection; `turn` gives ms."""

    def __init__(self, ws: ClientWebSocketResponse) -> None:
        self._ws = ws
        settings = OpusSettings(24_000, "voip", PACKET_MS, complexity=0)
        self._encoder = OpusEncoder(ASR_RATE_HZ, settings)

    async def listen(self) -> None:
        start = {"type": "listen", "state": "start", "mode": "auto"}
        await self._ws.send_str(json.dumps(start))

    async def close(self) -> None:
        await self._ws.close()

    async def turn(self, said: Utterance) -> float:
        """From the last sample to the first packet. Raises NoAnswer."""
        await self.listen()
        pcm, end = said.narrow()
        size = self._encoder.frame_samples
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def speak() -> None:
            for at in range(0, len(pcm) - size, size):
                await asyncio.sleep(began + (at + size) / ASR_RATE_HZ - loop.time())
                await self._ws.send_bytes(self._encoder.encode(pcm[at : at + size]))

        async with asyncio.timeout(TURN_TIMEOUT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(speak())
            heard_at = await self._hear()
        return 1000 * (heard_at - began - end / ASR_RATE_HZ)

    async def _hear(self) -> float:
        """When the first packet came, once all was said. Raises NoAnswer."""
        loop, first = asyncio.get_running_loop(), None
        async for message in self._ws:
            if message.type is WSMsgType.BINARY:
                first = first or loop.time()
            elif message.type is WSMsgType.TEXT and json.loads(message.data).get("state") == "stop":
                break
        if first is None:
            raise NoAnswer("nothing was answered")
        return first


async def connect(http: ClientSession, number: int) -> Board:
    device = {"Device-Id": f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"}
    async with http.post("/xiaozhi/ota/", headers=device) as answer:
        told = (await answer.json())["websocket"]
    headers = device | {"Authorization": f"Bearer {told['token']}", "Protocol-Version": "1"}
    ws = await http.ws_connect(told["url"], headers=headers)
    await ws.send_str(json.dumps(HELLO))
    await ws.receive_str()
    return Board(ws)


async def talk(
    board: Board, clips: Sequence[Utterance], turns: int, begins_s: float
) -> list[float]:
    await asyncio.sleep(begins_s)
    return [await board.turn(clips[number % len(clips)]) for number in range(turns)]


async def measure(
    http: ClientSession, clips: Sequence[Utterance], turns: int, idle: int, talking: int
) -> list[float]:
    """ms of every turn, but each board's first: it warms up."""
    boards = [await connect(http, number) for number in range(idle + talking)]
    async with asyncio.TaskGroup() as tasks:
        work = [
            tasks.create_task(talk(board, clips, turns + 1, number * 0.13))
            for number, board in enumerate(boards[idle:])
        ]
    for board in boards:
        await board.close()
    return [ms for one in work for ms in one.result()[1:]]


async def run(turns: int, idle: int, talking: int, engines: Stubs) -> None:
    clips = [utterance(text, spoken(text), seed) for seed, text in enumerate(COMMANDS)]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        config = engines.write(folder)
        limit = f"\n[server]\nmax_sessions = {idle + talking + 10}\n"
        config.write_text(config.read_text("utf-8") + limit, "utf-8")
        server = await stack.enter_async_context(own_server(["--config", str(config)]))
        connector = TCPConnector(limit=0)  # each board has a connection of its own
        http = await stack.enter_async_context(
            ClientSession(server.address.url, connector=connector)
        )
        print(f"{machine()}; engines of {engines} ms; {turns} turns each")
        for name, others, talkers in (("alone", 0, 1), (f"{idle} idle", idle, talking)):
            found = await measure(http, clips, turns, others, talkers)
            told = ", ".join(f"p{p} {percentile(found, p):.0f} ms" for p in (50, 95))
            print(f"{name}, {talkers} talking: {told} of {len(found)}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.xiaozhi", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--turns", type=int, default=10, help="of each board (10)")
    parser.add_argument("--idle", type=int, default=200, help="boards that say nothing (200)")
    parser.add_argument("--talking", type=int, default=20, help="boards at once (20)")
    parser.add_argument("--stubs", type=stubs, default=Stubs(50, 150, 80), metavar="ASR,LLM,TTS")
    options = parser.parse_args(arguments)
    asyncio.run(run(options.turns, options.idle, options.talking, options.stubs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
