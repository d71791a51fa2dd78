"""Clients of the other systems, each like the system's own clients, and the times of their texts.

All get the same audio at the same moments, and end an utterance WAIT_MS after the last speech
sample.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import (
    ClientConnectionError,
    ClientError,
    ClientSession,
    ClientWebSocketResponse,
    WSMsgType,
)

from bench.client.realtime import ConnectionLost, background
from bench.peers.environments import PeerKind
from bench.peers.systems import AsrClient, PeerProcess, UtteranceResult, peer_process
from bench.tools.utterance_audio import (
    PAUSE_MS,
    WAIT_MS,
    BenchUtterance,
    send_in_real_time,
    sleep_until,
)
from core.audio import ASR_RATE_HZ, Pcm
from media.pcm import to_bytes

FINAL_TIMEOUT_S = 30.0
"""Limit for a final text. A server that is overloaded by eight clients takes seconds; later texts
count as lost."""

MONO = {"rate": ASR_RATE_HZ, "width": 2, "channels": 1}


@dataclass(frozen=True, slots=True)
class PeerSystem:
    """A running peer; a `SystemUnderTest`."""

    name: PeerKind
    process: PeerProcess

    @property
    def pid(self) -> int:
        return self.process.pid

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[AsrClient, None]:
        """Yields a client. It connects for each utterance, before the speech begins."""
        kinds: dict[PeerKind, type[_PeerClient]] = {
            "wyoming": WyomingClient,
            "whisper-live": WhisperLiveClient,
            "bare": BareClient,
        }
        yield kinds[self.name](self.process.port)


@asynccontextmanager
async def peer(
    kind: PeerKind, model: Path, threads: int, log: Path
) -> AsyncGenerator[PeerSystem, None]:
    """Runs a peer while the body runs. Raises MissingPeer."""
    async with peer_process(kind, model, threads, log) as process:
        yield PeerSystem(kind, process)


class _PeerClient(ABC):
    """Base class: the clock, and the measured times."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._clock = asyncio.get_running_loop().time

    async def say(self, utterance: BenchUtterance) -> UtteranceResult:
        """See `AsrClient`."""
        pcm, end = utterance.at_asr_rate()
        try:
            async with asyncio.timeout(len(pcm) / ASR_RATE_HZ + FINAL_TIMEOUT_S):
                text, speech_ended_at, final_at = await self._say(pcm, end)
        except (TimeoutError, OSError, ValueError, EOFError, ClientError) as error:
            raise ConnectionLost(f"{type(self).__name__}: {str(error) or 'no answer'}") from error
        return UtteranceResult(
            text, 1000 * (final_at - speech_ended_at), speech_ended_at + PAUSE_MS / 1000
        )

    @abstractmethod
    async def _say(self, pcm: Pcm, end: int) -> tuple[str, float, float]:
        """Sends the audio; returns the text, the time of the end of speech and the time of the
        final text."""


class WyomingClient(_PeerClient):
    """Client that sends `audio-stop` when the wait is over, and then gets the transcript."""

    async def _say(self, pcm: Pcm, end: int) -> tuple[str, float, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            self._send(writer, "transcribe", {"language": "en"})
            self._send(writer, "audio-start", MONO)
            began_at = self._clock()
            speech_ended_at = began_at + end / ASR_RATE_HZ
            heard = pcm[: end + WAIT_MS * ASR_RATE_HZ // 1000]

            async def send(audio: bytes) -> None:
                self._send(writer, "audio-chunk", MONO, audio)

            await send_in_real_time(heard, began_at, send)
            await sleep_until(speech_ended_at + WAIT_MS / 1000, self._clock)
            self._send(writer, "audio-stop", {})
            while (event := await self._event(reader))["type"] != "transcript":
                continue
            return str(event["data"]["text"]).strip(), speech_ended_at, self._clock()
        finally:
            writer.close()

    def _send(
        self,
        writer: asyncio.StreamWriter,
        kind: str,
        data: Mapping[str, object],
        payload: bytes = b"",
    ) -> None:
        header: dict[str, object] = {"type": kind, "data": data}
        if payload:
            header["payload_length"] = len(payload)
        writer.write(json.dumps(header).encode() + b"\n" + payload)

    async def _event(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await reader.readline() or b"{}")
        if not event:
            raise EOFError("the server closed the connection")
        data = json.loads(await reader.readexactly(event.get("data_length") or 0) or b"{}")
        await reader.readexactly(event.get("payload_length") or 0)
        return {"type": event["type"], "data": {**event.get("data", {}), **data}}


class BareClient(_PeerClient):
    """Client without streaming: it sends all audio when the wait is over."""

    async def _say(self, pcm: Pcm, end: int) -> tuple[str, float, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            speech_ended_at = self._clock() + end / ASR_RATE_HZ
            await sleep_until(speech_ended_at + WAIT_MS / 1000, self._clock)
            audio = to_bytes(pcm[: end + WAIT_MS * ASR_RATE_HZ // 1000])
            writer.write(len(audio).to_bytes(4, "big") + audio)
            answer = json.loads(await reader.readline())
            return str(answer["text"]), speech_ended_at, self._clock()
        finally:
            writer.close()


class WhisperLiveClient(_PeerClient):
    """Client of WhisperLive, which decodes its audio again and again and detects no end of speech.

    The final text is the first whose decoding began after all speech had arrived; each decoding
    begins when the previous text was sent. If it comes within the wait, the wait counts as its
    time.
    """

    async def _say(self, pcm: Pcm, end: int) -> tuple[str, float, float]:
        async with (
            ClientSession() as http,
            http.ws_connect(f"ws://127.0.0.1:{self._port}", max_msg_size=0) as ws,
        ):
            await ws.send_json(self._options())
            while "SERVER_READY" not in str(await self._message(ws)):
                continue
            began_at = self._clock()
            speech_ended_at = began_at + end / ASR_RATE_HZ
            is_said = asyncio.Event()

            async def speak() -> None:
                with suppress(ClientConnectionError):  # the reader reports the reason
                    await send_in_real_time(pcm, began_at, ws.send_bytes)
                is_said.set()

            async with background(speak()):
                text, at = await self._final(ws, speech_ended_at)
                await is_said.wait()
            await ws.send_bytes(b"END_OF_AUDIO")
            return text, speech_ended_at, max(at, speech_ended_at + WAIT_MS / 1000)

    async def _final(
        self, ws: ClientWebSocketResponse, speech_ended_at: float
    ) -> tuple[str, float]:
        """Returns the first text of a decoding that began after `speech_ended_at`, and its time."""
        previous_at = -inf
        while True:
            message = await self._message(ws)
            now = self._clock()
            if "segments" not in message:
                continue
            if previous_at >= speech_ended_at:
                return " ".join(
                    str(segment["text"]).strip() for segment in message["segments"]
                ), now
            previous_at = now

    def _options(self) -> dict[str, Any]:
        return {
            "uid": uuid4().hex,
            "language": "en",
            "task": "transcribe",
            "model": "custom",
            "use_vad": False,
            "audio_format": "int16",
            "no_speech_thresh": 1.0,  # it sends nothing when it takes nonsense for silence
        }

    async def _message(self, ws: ClientWebSocketResponse) -> dict[str, Any]:
        message = await ws.receive()
        if message.type is not WSMsgType.TEXT:
            raise ConnectionLost("WhisperLive: the server closed the connection")
        found: dict[str, object] = json.loads(message.data)
        return found
