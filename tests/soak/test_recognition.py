"""Thousands of utterances through all layers of recognition, during which nothing may grow."""

import asyncio
import io
import itertools
import wave
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from bench.client.http import Address
from bench.measurements.resources import Footprint, quiet_footprint
from bench.tools.clips import COMMANDS
from core.audio import ASR_RATE_HZ, Pcm
from tests.server.process import Running, serving
from tests.speech import say

WARM_UP = 500
"Allocators and caches have reached their size."
UTTERANCES = 2000
AT_ONCE = 4
ROOM_MB = 6
"The growth of two processes of 150 MB each, over all utterances: 3 kB for each would exceed it."

pytestmark = pytest.mark.soak


def test_thousands_of_utterances_leave_nothing_behind(tmp_path: Path) -> None:
    clips = [wav(say(text, lead_ms=200, tail_ms=300)) for text in COMMANDS]

    async def main(server: Running) -> tuple[Footprint, Footprint]:
        async with aiohttp.ClientSession(server.url) as http:
            answers = {clip: await transcribed(http, clip) for clip in clips}
        assert len(set(answers.values()) - {""}) >= len(clips) // 2
        await upload(server, answers, WARM_UP)
        before = await quiet_footprint(Address(server.url), server.process.pid)
        await upload(server, answers, UTTERANCES)
        return before, await quiet_footprint(Address(server.url), server.process.pid)

    with serving(tmp_path) as server:
        before, after = asyncio.run(main(server))
    print(f"{before} -> {after}")
    assert after.rss_mb - before.rss_mb < ROOM_MB
    assert (after.threads, after.files, after.tasks) == (before.threads, before.files, before.tasks)


async def upload(server: Running, answers: Mapping[bytes, str], count: int) -> None:
    """Uploads the clips, some at once; each must get the transcript that it got alone."""
    turn = iter(itertools.islice(itertools.cycle(answers.items()), count))

    async def client(http: aiohttp.ClientSession) -> None:
        for clip, answer in turn:
            assert await transcribed(http, clip) == answer

    async with aiohttp.ClientSession(server.url) as http, asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(client(http))


async def transcribed(http: aiohttp.ClientSession, clip: bytes) -> str:
    form = aiohttp.FormData({"model": "default", "language": "en"})
    form.add_field("file", clip, filename="clip.wav")
    async with http.post("/v1/audio/transcriptions", data=form) as response:
        assert response.status == 200, await response.text()
        text: str = (await response.json())["text"]
        return text


def wav(pcm: Pcm) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(ASR_RATE_HZ)
        file.writeframes(pcm.astype("<i2").tobytes())
    return out.getvalue()
