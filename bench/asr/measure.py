"""A corpus through a server: so many tasks side by side, each with a share of the recordings."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Literal

from aiohttp import ClientSession

from bench.asr.corpus import CorpusClip, shares
from bench.asr.streaming import SILENCE_MS, StreamedTranscript, StreamingClient, speaking
from bench.asr.upload import UploadClient
from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import TRANSCRIPTION_MODEL, ClientTransport, SessionRequest
from bench.talk.command import read_recording

UploadWay = Literal["rest", "ws", "webrtc"]
"Uploaded, or spoken in real time."


@dataclass(frozen=True, slots=True)
class CorpusPlan:
    """How a corpus is sent."""

    address: Address
    way: UploadWay
    tasks: int
    model: str | None = None
    language: str | None = None
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ClipResult:
    """One recording and what came of it."""

    clip: CorpusClip
    audio_s: float
    answer: StreamedTranscript


@dataclass(frozen=True, slots=True)
class CorpusRun:
    """All of them."""

    results: Sequence[ClipResult]
    wall_s: float
    "From the first file opened to the last answer, all tasks together."

    @property
    def audio_s(self) -> float:
        """Of the recordings as they are; no padding counts."""
        return sum(result.audio_s for result in self.results)

    @property
    def rtf(self) -> float:
        """Below 1 is faster than real time; N tasks that speak in real time come near 1/N."""
        return self.wall_s / self.audio_s


async def run(plan: CorpusPlan, clips: Sequence[CorpusClip]) -> CorpusRun:
    """Raises EarshotError: no connection, it was lost, or a recording cannot be read."""
    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        work = partial(_upload, plan) if plan.way == "rest" else partial(_speak, plan, plan.way)
        tasks = [group.create_task(work(share)) for share in shares(clips, plan.tasks)]
    results = [result for task in tasks for result in task.result()]
    return CorpusRun(results, perf_counter() - began)


async def _upload(plan: CorpusPlan, share: Sequence[CorpusClip]) -> list[ClipResult]:
    results = []
    async with ClientSession(headers=plan.address.headers) as http:
        model = plan.model or TRANSCRIPTION_MODEL
        uploader = UploadClient(http, plan.address, model, plan.timeout_s)
        for clip in share:
            data, audio_s = await asyncio.to_thread(_read, clip)
            language = plan.language or clip.language
            results.append(
                ClipResult(clip, audio_s, await uploader.send(clip.path.name, data, language))
            )
    return results


async def _speak(
    plan: CorpusPlan, transport: ClientTransport, share: Sequence[CorpusClip]
) -> list[ClipResult]:
    """One connection; a recording in another language than the last one needs a new one."""
    results: list[ClipResult] = []
    while rest := share[len(results) :]:
        language = plan.language or rest[0].language
        wish = SessionRequest(
            language=language,
            turn_detection="server_vad",
            recogniser=plan.model or TRANSCRIPTION_MODEL,
            silence_ms=SILENCE_MS,
            is_answered=False,
        )
        async with speaking(plan.address, transport, wish, plan.timeout_s) as speaker:
            for clip in rest:
                if (plan.language or clip.language) != language:
                    break
                results.append(await _spoken(speaker, clip))
    return results


async def _spoken(speaker: StreamingClient, clip: CorpusClip) -> ClipResult:
    pcm = await asyncio.to_thread(read_recording, clip.path)
    return ClipResult(clip, len(pcm) / RATE_HZ, await speaker.say(pcm))


def _read(clip: CorpusClip) -> tuple[bytes, float]:
    """The file, and how many seconds it lasts."""
    pcm = read_recording(clip.path)
    return clip.path.read_bytes(), len(pcm) / RATE_HZ
