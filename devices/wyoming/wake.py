"""Wyoming's request `detect`: looks for wake words in the client's audio."""

from dataclasses import dataclass

from wyoming.event import Event
from wyoming.wake import Detection, NotDetected

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.tasks import run_in_thread
from devices.wyoming.framing import WyomingStream
from devices.wyoming.requests import WyomingAudioFormat, read_detect, read_format, read_timestamp
from engines.base.wake import WakeWordDetection as Found
from engines.base.wake import WakeWordDetector, WakeWordEngine
from media.files.raw import RawDecoder


@dataclass(slots=True)
class _DetectStream:
    """One stream of audio, from `audio-start` to `audio-stop`."""

    wake: WakeWordDetector
    began_ms: int
    "Time of its first sample, on the client's own clock, in ms."
    audio_format: WyomingAudioFormat | None = None
    decoder: RawDecoder | None = None
    samples: int = 0
    "Number of samples so far, at 16 kHz."
    is_found: bool = False

    def push(self, audio_format: WyomingAudioFormat, payload: bytes) -> tuple[Found, ...]:
        """Adds audio and returns the wake words in it. Blocks."""
        parts: list[Pcm] = []
        if audio_format != self.audio_format or self.decoder is None:
            if self.decoder is not None:
                parts.append(self.decoder.flush())
            self.audio_format = audio_format
            self.decoder = RawDecoder(
                audio_format.rate_hz, audio_format.bits, audio_format.channels
            )
        parts.append(self.decoder.push(payload))
        return self._listen(parts)

    def end(self) -> tuple[Found, ...]:
        """Ends the audio and returns the wake words in what the resampler held back. Blocks."""
        return () if self.decoder is None else self._listen([self.decoder.flush()])

    def _listen(self, parts: list[Pcm]) -> tuple[Found, ...]:
        found: list[Found] = []
        for pcm in parts:
            found += self.wake.push(pcm)
            self.samples += len(pcm)
        self.is_found = self.is_found or bool(found)
        return tuple(found)


class WakeDetection:
    """One `detect` request, until the connection gets another request.

    Each piece of audio is processed as it arrives, and the client waits meanwhile, so no queue
    builds up.
    """

    def __init__(self, wire: WyomingStream, event: Event, engine: WakeWordEngine | None) -> None:
        """Raises RequestError if the request is wrong or there is no engine."""
        self._wire = wire
        self._engine, self._names = read_detect(event, engine)
        context = event.data.get("context")
        self._context = context if isinstance(context, dict) else None
        self._stream: _DetectStream | None = None

    async def handle(self, event: Event) -> None:
        """Handles `audio-start`, `audio-chunk` and `audio-stop`. Raises RequestError,
        ConnectionError."""
        if event.type == "audio-stop":
            await self._end()
            return
        audio_format, at_ms = read_format(event), read_timestamp(event)
        if event.type == "audio-start" or self._stream is None:
            wake = await run_in_thread(self._engine.open, self._names)
            self._stream = _DetectStream(wake, at_ms or 0)
        if event.type == "audio-start" or not event.payload:
            return
        stream = self._stream
        if at_ms is not None:
            stream.began_ms = at_ms - round(samples_to_ms(stream.samples, ASR_RATE_HZ))
        await self._send_detections(
            stream, await run_in_thread(stream.push, audio_format, event.payload)
        )

    async def _end(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await self._send_detections(stream, await run_in_thread(stream.end))
        if stream is None or not stream.is_found:
            await self._wire.send(NotDetected(context=self._context))

    async def _send_detections(self, stream: _DetectStream, found: tuple[Found, ...]) -> None:
        for wake_word in found:
            at_ms = stream.began_ms + round(samples_to_ms(wake_word.position, ASR_RATE_HZ))
            await self._wire.send(Detection(wake_word.name, timestamp=at_ms, context=self._context))
