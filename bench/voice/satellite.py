"""Turns by an ESPHome satellite: the same recordings as through the other doors.

The satellite is the simulated one of the tests. The server that is measured connects to it.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO

import av
import numpy as np

from bench.client.conversation import TurnReport
from bench.client.latency_probe import AudioReceiver
from bench.client.microphone import RATE_HZ
from bench.client.realtime import CannotConnect
from bench.client.satellite import Satellite, api
from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from media.resample import Resampler

CHUNK_SAMPLES = 512
"Samples of a chunk of the microphone: 32 ms, as an ESP32 sends them."

CONNECT_LIMIT_S = 90.0
"Longest wait for the server. It tries again after 1 s, later up to a minute."


class MeasuredSatellite:
    """A satellite that the server connects to, and the settings by which the server finds it."""

    def __init__(self) -> None:
        self._sounds_port, self._port = _free_ports(2)
        # it reports the end of playing when the sound is over, which only this module knows
        self._satellite = Satellite(plays_s=None)

    @property
    def environ(self) -> Mapping[str, str]:
        """Settings of the server, as environment variables."""
        return {
            "EARSHOT_ESPHOME__DEVICES": f'{{bench = {{host = "127.0.0.1", port = {self._port}}}}}',
            "EARSHOT_ESPHOME__SOUNDS_PORT": str(self._sounds_port),
        }

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Lets the server connect while the body runs."""
        async with self._satellite.listening(self._port):
            yield

    @asynccontextmanager
    async def connected(self, timeout_s: float) -> AsyncGenerator["SatelliteConversation", None]:
        """Waits for the server, and yields the satellite for turns. timeout_s: longest wait for an
        answer. Raises CannotConnect."""
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                await self._satellite.subscribed()
        except TimeoutError:
            raise CannotConnect("the server does not connect to the satellite") from None
        yield SatelliteConversation(self._satellite, timeout_s)


class SatelliteConversation:
    """Turns of one satellite, each a run of its own."""

    def __init__(self, satellite: Satellite, timeout_s: float) -> None:
        self._satellite, self._timeout_s = satellite, timeout_s
        self._clock = asyncio.get_running_loop().time

    async def say(self, pcm: Pcm, span: tuple[int, int]) -> TurnReport:
        """Starts a run, sends audio in real time, and waits until the answer would be played.

        pcm: samples at RATE_HZ. span: first and one past the last sample of speech.
        """
        satellite = self._satellite
        narrow = await asyncio.to_thread(Resampler(RATE_HZ, ASR_RATE_HZ).push, pcm)
        satellite.fetched.clear()
        satellite.arrivals.clear()
        receiver, ended_at = AudioReceiver(is_paced=False), 0.0
        try:
            async with asyncio.timeout(len(pcm) / RATE_HZ + self._timeout_s):
                satellite.start()
                await satellite.until(satellite.names)
                began_at = self._clock()
                ended_at = began_at + span[1] / RATE_HZ
                await self._send(narrow, began_at)
                await satellite.until(lambda: "RUN_END" in satellite.names())
                await satellite.until(lambda: satellite.fetched)
                await asyncio.to_thread(self._hear, receiver)
                await asyncio.sleep(receiver.silent_from - self._clock())
        except TimeoutError:
            pass
        satellite.send(api.VoiceAssistantAnnounceFinished(success=True))
        return self._report(receiver, ended_at)

    async def _send(self, pcm: Pcm, began_at: float) -> None:
        """Sends the microphone until the server closes it; after the recording, silence."""
        satellite, sent = self._satellite, 0
        while not satellite.names() & {"STT_VAD_END", "RUN_END"}:
            chunk = pcm[sent : sent + CHUNK_SAMPLES]
            chunk = np.pad(chunk, (0, CHUNK_SAMPLES - len(chunk)))
            sent += CHUNK_SAMPLES
            # a chunk is sent when its last sample was spoken
            await asyncio.sleep(began_at + sent / ASR_RATE_HZ - self._clock())
            satellite.send(api.VoiceAssistantAudio(data=chunk.astype("<i2").tobytes()))

    def _hear(self, receiver: AudioReceiver) -> None:
        """Decodes what was fetched, as far as it was there at each moment."""
        _, data = self._satellite.fetched[0]
        heard = 0
        for at, size_bytes in self._satellite.arrivals:
            pcm, rate_hz = _decoded(data[:size_bytes])
            if len(pcm) > heard:
                receiver.receive(AudioFrame(pcm[heard:], rate_hz, heard), at)
                heard = len(pcm)

    def _report(self, receiver: AudioReceiver, ended_at: float) -> TurnReport:
        heard, audio = receiver.audible_at, receiver.audible_frames()
        data = dict(self._satellite.events)
        return TurnReport(
            status="unanswered" if heard is None else "answered",
            transcript=data.get("STT_END", {}).get("text", ""),
            reply=data.get("TTS_START", {}).get("text", ""),
            error=data.get("ERROR", {}).get("message", ""),
            voice_to_voice_ms=None if heard is None else round(1000 * (heard - ended_at), 1),
            first_words_ms=None,
            transcript_ms=None,
            reply_text_ms=None,
            server_ms=None,
            stages=(),
            answer_ms=round(sum(frame.duration_ms for frame in audio), 1),
            audio=audio,
        )


def _decoded(data: bytes) -> tuple[Pcm, int]:
    """Returns the samples of the first bytes of a sound file, and their rate in Hz."""
    frames: list[Pcm] = []
    rate_hz = ASR_RATE_HZ
    try:
        with av.open(BytesIO(data), "r") as container:
            rate_hz = container.streams.audio[0].rate
            frames.extend(frame.to_ndarray()[0] for frame in container.decode(audio=0))
    except av.FFmpegError:  # the last frame is incomplete
        pass
    pcm = np.concatenate(frames) if frames else np.zeros(0)
    return pcm.astype(np.int16), rate_hz


def _free_ports(count: int) -> list[int]:
    """Returns so many ports that are free at this moment."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
