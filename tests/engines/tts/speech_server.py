"""HTTP server with `/v1/audio/speech`, spoken by eSpeak. A test may set other handlers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web

from tests.speech import say

RATE_HZ = 24_000

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pcm_bytes(text: str, speed: float = 1) -> bytes:
    return say(text, speed=speed, rate_hz=RATE_HZ).astype("<i2").tobytes()


async def speech(request: web.Request) -> web.StreamResponse:
    """Answers with speech, in chunks of odd size."""
    body: dict[str, Any] = await request.json()
    response = web.StreamResponse(headers={"Content-Type": "audio/pcm"})
    await response.prepare(request)
    data = pcm_bytes(body["input"], body["speed"])
    for start in range(0, len(data), 3333):
        await response.write(data[start : start + 3333])
    await response.write_eof()
    return response


@asynccontextmanager
async def serving(handler: Handler = speech) -> AsyncIterator[str]:
    """Yields the base address of the server."""
    app = web.Application()
    app.router.add_post("/v1/audio/speech", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@contextmanager
def serving_in_thread() -> Iterator[str]:
    """Runs the server in a thread, for tests that run loops of their own."""
    ready, address = threading.Event(), list[str]()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving() as url:
            address.append(url)
            ready.set()
            await stop.wait()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=work, name="speech-server")
    thread.start()
    assert ready.wait(10)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
