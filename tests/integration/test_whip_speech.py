"""A WHIP client of plain aiortc publishes a recording; the server transcribes and answers it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession

from pipeline.conversation.conversation import Conversations
from pipeline.services import SessionServices
from pipeline.session.sessions import Sessions
from pipeline.tools.toolbox import Toolbox
from server.compose.engines import run_engines
from server.config.load import load
from server.runtime.clock import SystemClock
from server.runtime.metrics import PrometheusMetrics
from signaling.whip.door import WhipDoor
from signaling.whip.routes import whip_routes
from tests.raw_peer import RATE_HZ
from tests.server.http.harness import serving
from tests.signaling.whip.client import Event, publishing, read_events
from tests.speech import say

pytestmark = pytest.mark.live

DEADLINE_S = 90
WORDS = "turn on the kitchen lights?"


@asynccontextmanager
async def server() -> AsyncIterator[ClientSession]:
    """A server with the engines that need no download."""
    config = load({"EARSHOT_ASR__MODEL": "pocketsphinx"}).config
    metrics, clock = PrometheusMetrics(), SystemClock()
    toolbox = Toolbox((), metrics)

    async def guard(work: Awaitable[None], name: str) -> None:
        await work

    async with run_engines(config, toolbox, clock, metrics) as engines:
        around = SessionServices(engines.engine_set("en"), toolbox, clock, metrics)
        door = WhipDoor(Sessions(around, Conversations(), 2), metrics, guard)
        async with asyncio.TaskGroup() as tasks:
            publications = tasks.create_task(door.run())
            async with serving(whip_routes(door), metrics=metrics) as http:
                yield http
            publications.cancel()


def test_published_speech_is_transcribed() -> None:
    async def main() -> None:
        clip = say(WORDS.strip("?"), rate_hz=RATE_HZ, lead_ms=1_000, tail_ms=20_000)
        async with (
            asyncio.timeout(DEADLINE_S),
            server() as http,
            publishing(http, clip, "/whip?language=en", channel="events") as publisher,
            http.get(f"{publisher.location}/events") as response,
        ):
            seen: list[Event] = []
            async for event in read_events(response):
                seen.append(event)
                if event.kind == "completed":
                    break
            assert re.fullmatch(WORDS, seen[-1].data["transcript"])
            assert seen[-1].data["language"] == "en"
            received = [json.loads(await publisher.raw.texts.get()) for _ in seen]
            assert received == [event.data for event in seen]
            await publisher.end()

    asyncio.run(main())
