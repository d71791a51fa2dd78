"""A client that sends events as fast as the server takes them, up to a rate: URL KIND RATE SECONDS.

It prints a line when it begins. At the end it prints how many events it sent, how many answers it
read, and how often it found the server idle although it was behind its rate (then it was no flood).
"""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass

from aiohttp import ClientSession, ClientWebSocketResponse

TOOLS = [
    {
        "type": "function",
        "name": f"tool_{number}",
        "description": "Does one of many things. " * 4,
        "parameters": {
            "type": "object",
            "properties": {f"field_{one}": {"type": "string"} for one in range(8)},
        },
    }
    for number in range(128)
]

EVENTS = {
    "small": json.dumps({"type": "response.cancel"}),
    "large": json.dumps(
        {"type": "session.update", "session": {"type": "realtime", "tools": TOOLS}}
    ),
}
"What costs the server least, and what it checks, keeps and sends back in full."

BURSTS_PER_S = 100


@dataclass
class Count:
    sent: int = 0
    answers: int = 0
    bursts: int = 0
    idle: int = 0
    "Bursts before which everything was answered and more should have been sent."


async def send(
    ws: ClientWebSocketResponse, event: str, rate: float, seconds: float, count: Count
) -> None:
    loop = asyncio.get_running_loop()
    burst = max(1, round(rate / BURSTS_PER_S))
    begun = loop.time()
    while (passed := loop.time() - begun) < seconds:
        is_behind = count.sent + burst < rate * passed
        count.idle += is_behind and count.answers >= count.sent
        for _ in range(burst):
            await ws.send_str(event)
        count.sent += burst
        count.bursts += 1
        await asyncio.sleep(max(0, count.sent / rate - passed))


async def read(ws: ClientWebSocketResponse, count: Count) -> None:
    async for _ in ws:
        count.answers += 1


async def main(url: str, kind: str, rate: float, seconds: float) -> None:
    count = Count()
    async with ClientSession() as http, http.ws_connect(f"{url}/v1/realtime") as ws:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):  # what a session begins with
                await ws.receive()
            print("begun", flush=True)
            reading = tasks.create_task(read(ws, count))
            await send(ws, EVENTS[kind], rate, seconds, count)
            reading.cancel()
        print(json.dumps(asdict(count)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
