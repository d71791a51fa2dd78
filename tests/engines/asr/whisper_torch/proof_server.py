"""`earshot serve` with this engine: its worker process, the scheduler, and the REST API."""

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
import pytest

from core.audio import ASR_RATE_HZ, Pcm
from tests.engines.asr.whisper_torch import checkpoints
from tests.server.process import Running, serving, workers
from tests.speech import say
from tests.web.openai.transcriptions.harness import TRANSCRIPTIONS, wav

pytestmark = pytest.mark.live

WORDS = "turn on the kitchen lights"
PATIENCE_S = 60
CLIPS_OF_LONG = 150
"Six minutes: a dozen windows at least, which take some seconds."
SHORT_AFTER, UNDER_WAY = 30, 3
"The number of short requests after the abandoned one, and the most calls that it may have had."


def client(server: Running) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(server.url, timeout=aiohttp.ClientTimeout(PATIENCE_S))


def asked(http: aiohttp.ClientSession, pcm: Pcm, **options: str) -> Coroutine[Any, Any, Any]:
    form = aiohttp.FormData({"model": "default", "language": "en", **options})
    form.add_field("file", wav(pcm), filename="clip.wav")

    async def ask() -> Any:
        async with http.post(TRANSCRIPTIONS, data=form) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    return ask()


async def calls(http: aiohttp.ClientSession) -> int:
    """Returns the number of calls that the worker has answered."""
    async with http.get("/metrics") as response:
        found = re.findall(
            r"earshot_asr_compute_seconds_count(?:\{.*\})? (\d+)", await response.text()
        )
    return sum(map(int, found))


def words(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalpha() or c == " ").strip()


@pytest.fixture(scope="module")
def pcm() -> Pcm:
    return say(WORDS, lead_ms=200, tail_ms=500)


@asynccontextmanager
async def leaving(request: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Runs the request during the body; at the end its client disconnects."""
    task = asyncio.create_task(request)
    yield
    assert not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_the_server_survives_a_disconnect_and_a_crash_of_its_worker(
    tmp_path: Path, pcm: Pcm
) -> None:
    folder = checkpoints.nano(tmp_path / "nano")
    recogniser = {
        "EARSHOT_ASR__ENGINE": "whisper_torch",
        "EARSHOT_ASR__OPTIONS__MODEL": str(folder),
    }

    async def scene(server: Running) -> None:
        async with client(server) as http:
            assert words((await asked(http, pcm))["text"]) == WORDS
            timed = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
            several = [asked(http, pcm), asked(http, pcm, **timed), asked(http, pcm)]
            plain, verbose, again = await asyncio.gather(*several)
            assert [words(one["text"]) for one in (plain, verbose, again)] == [WORDS] * 3
            assert [words(one["word"]) for one in verbose["words"]] == WORDS.split()
            times = [one[edge] for one in verbose["words"] for edge in ("start", "end")]
            assert times == sorted(times)
            assert 0 <= times[0] < 0.5 < times[-1] <= len(pcm) / ASR_RATE_HZ

            before = await calls(http)
            async with leaving(asked(http, np.tile(pcm, CLIPS_OF_LONG))):
                while await calls(http) == before:
                    assert server.process.poll() is None
            for _ in range(SHORT_AFTER):
                assert words((await asked(http, pcm))["text"]) == WORDS
            assert await calls(http) - before <= SHORT_AFTER + UNDER_WAY

            (worker,) = workers(server)
            worker.kill()
            psutil.wait_procs([worker], timeout=PATIENCE_S)
            assert words((await asked(http, pcm))["text"]) == WORDS
            (successor,) = workers(server)
            assert successor.pid != worker.pid

    with serving(tmp_path, recogniser=recogniser) as server:
        asyncio.run(scene(server))
        assert server.stop() == 0
    assert not [line for line in server.said if "Traceback" in line]
