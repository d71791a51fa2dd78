"""Sends a corpus through a server, with several parallel tasks that each have a share of the
recordings."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Literal

import numpy as np
from aiohttp import ClientSession

from bench.asr.corpus import CorpusClip, shares
from bench.asr.streaming import (
    SILENCE_MS,
    StreamedTranscript,
    StreamingClient,
    open_streaming_client,
)
from bench.asr.upload import UploadClient, wav_bytes
from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import TRANSCRIPTION_MODEL, ClientTransport, SessionRequest
from bench.talk.command import read_recording
from core.audio import Pcm

UploadWay = Literal["rest", "ws", "webrtc"]
"Upload (`rest`), or streaming in real time."


@dataclass(frozen=True, slots=True)
class CorpusPlan:
    """Parameters of a run."""

    address: Address
    way: UploadWay
    tasks: int
    model: str | None = None
    language: str | None = None
    timeout_s: float = 30.0
    "Limit for the answer to one recording."
    decoding: Mapping[str, str] = field(default_factory=dict)
    "Uploads: form fields of the decoder, such as `beam_size`."
    padding_ms: int = 0
    "Silence before and after each recording. An upload with it is sent as WAV of 24 kHz."


@dataclass(frozen=True, slots=True)
class ClipResult:
    """One recording and its result."""

    clip: CorpusClip
    audio_s: float
    answer: StreamedTranscript


@dataclass(frozen=True, slots=True)
class CorpusRun:
    """Results of all recordings."""

    results: Sequence[ClipResult]
    wall_s: float
    "Time from the first opened file to the last answer, of all tasks together."

    @property
    def audio_s(self) -> float:
        """Length of all recordings, without padding."""
        return sum(result.audio_s for result in self.results)

    @property
    def rtf(self) -> float:
        """Real-time factor: below 1 is faster than real time. N tasks that stream in real time come
        near 1/N."""
        return self.wall_s / self.audio_s


async def run(
    plan: CorpusPlan, clips: Sequence[CorpusClip], on_answer: Callable[[], object] = lambda: None
) -> CorpusRun:
    """Runs the plan. `on_answer`: called after each recording. Raises EarshotError: no connection,
    a lost connection, or an unreadable recording."""
    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        work = partial(_upload, plan) if plan.way == "rest" else partial(_speak, plan, plan.way)
        tasks = [group.create_task(work(share, on_answer)) for share in shares(clips, plan.tasks)]
    results = [result for task in tasks for result in task.result()]
    return CorpusRun(results, perf_counter() - began)


async def _upload(
    plan: CorpusPlan, share: Sequence[CorpusClip], on_answer: Callable[[], object]
) -> list[ClipResult]:
    results = []
    async with ClientSession(headers=plan.address.headers) as http:
        model = plan.model or TRANSCRIPTION_MODEL
        uploader = UploadClient(http, plan.address, model, plan.timeout_s, plan.decoding)
        for clip in share:
            data, audio_s = await asyncio.to_thread(_read, clip, plan.padding_ms)
            language = plan.language or clip.language
            results.append(
                ClipResult(clip, audio_s, await uploader.send(clip.path.name, data, language))
            )
            on_answer()
    return results


async def _speak(
    plan: CorpusPlan,
    transport: ClientTransport,
    share: Sequence[CorpusClip],
    on_answer: Callable[[], object],
) -> list[ClipResult]:
    """Streams over one connection; a recording in another language than the last one needs a new
    connection."""
    results: list[ClipResult] = []
    while rest := share[len(results) :]:
        language = plan.language or rest[0].language
        request = SessionRequest(
            language=language,
            turn_detection="server_vad",
            transcription_model=plan.model or TRANSCRIPTION_MODEL,
            silence_ms=SILENCE_MS,
            creates_response=False,
        )
        async with open_streaming_client(
            plan.address, transport, request, plan.timeout_s
        ) as speaker:
            for clip in rest:
                if (plan.language or clip.language) != language:
                    break
                results.append(await _spoken(speaker, clip, plan.padding_ms))
                on_answer()
    return results


async def _spoken(speaker: StreamingClient, clip: CorpusClip, padding_ms: int) -> ClipResult:
    pcm = await asyncio.to_thread(read_recording, clip.path)
    return ClipResult(clip, len(pcm) / RATE_HZ, await speaker.say(_padded(pcm, padding_ms)))


def _read(clip: CorpusClip, padding_ms: int) -> tuple[bytes, float]:
    """Returns the file, or a WAV file with silence around it, and the recording's length in
    seconds."""
    pcm = read_recording(clip.path)
    data = wav_bytes(_padded(pcm, padding_ms), RATE_HZ) if padding_ms else clip.path.read_bytes()
    return data, len(pcm) / RATE_HZ


def _padded(pcm: Pcm, padding_ms: int) -> Pcm:
    """Returns the sound with silence before and after it."""
    return np.pad(pcm, RATE_HZ * padding_ms // 1000)
