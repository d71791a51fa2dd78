"""A client that sends events as fast as the server takes them, up to a rate: URL RATE SECONDS.

It prints when it begins, and at the end how many it sent and how many answers it read.
"""

import asyncio
import json
import sys

from aiohttp import ClientSession, ClientWebSocketResponse

EVENT = '{"type":"response.cancel"}'
BURST = 100


async def send(ws: ClientWebSocketResponse, rate: float, seconds: float) -> int:
    loop = asyncio.get_running_loop()
    begun, sent = loop.time(), 0
    while (passed := loop.time() - begun) < seconds:
        for _ in range(BURST):
            await ws.send_str(EVENT)
        sent += BURST
        await asyncio.sleep(max(0, sent / rate - passed))
    return sent


async def read(ws: ClientWebSocketResponse, answers: list[int]) -> None:
    async for _ in ws:
        answers[0] += 1


async def main(url: str, rate: float, seconds: float) -> None:
    answers = [0]
    async with ClientSession() as http, http.ws_connect(f"{url}/v1/realtime") as ws:
        async with asyncio.TaskGroup() as tasks:
            print("begun", flush=True)
            reading = tasks.create_task(read(ws, answers))
            sent = await send(ws, rate, seconds)
            reading.cancel()
        print(json.dumps({"sent": sent, "answers": answers[0]}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
