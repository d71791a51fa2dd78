"""Wyoming's request `detect`: looks for wake words in the client's audio.

A satellite stays idle until it gets a `detection`. So where another device of its room answers the
wake word, it gets none.
"""

from dataclasses import dataclass, field

from wyoming.event import Event
from wyoming.wake import Detection, NotDetected

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.conversation.ids import new_id
from core.tasks import run_in_thread
from devices.fleet.arbitration import WakeLevel
from devices.fleet.directory import Device
from devices.fleet.sound_level import SoundLevelMeter
from devices.fleet.wake_arbiter import WakeArbiter, plain_wake_word
from devices.wyoming.framing import WyomingStream
from devices.wyoming.requests import WyomingAudioFormat, read_detect, read_format, read_timestamp
from engines.base.wake import WakeWordDetection as Found
from engines.base.wake import WakeWordDetector, WakeWordEngine, wake_words
from media.files.raw import RawDecoder

WORD_MS = 1500
"Sound that is measured for the level of a wake word: its length, and the delay of the detection."


@dataclass(slots=True)
class _DetectStream:
    """One stream of audio, from `audio-start` to `audio-stop`."""

    wake: WakeWordDetector
    began_ms: int
    "Time of its first sample, on the client's own clock, in ms."
    audio_format: WyomingAudioFormat | None = None
    decoder: RawDecoder | None = None
    meter: SoundLevelMeter = field(default_factory=lambda: SoundLevelMeter(WORD_MS))
    samples: int = 0
    "Number of samples so far, at 16 kHz."
    is_found: bool = False
    "True: the client was sent a detection."

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
            self.meter.push(pcm)
            self.samples += len(pcm)
        return tuple(found)


class WakeDetection:
    """One `detect` request, until the connection gets another request. Also implements
    `WakeContender`.

    Each piece of audio is processed as it arrives, and the client waits meanwhile, so no queue
    builds up.
    """

    connects_when_woken = False

    def __init__(
        self,
        wire: WyomingStream,
        event: Event,
        engine: WakeWordEngine | None,
        device: Device | None,
        wake_arbiter: WakeArbiter,
    ) -> None:
        """device: None: this machine, which has no room. Raises RequestError if the request is
        wrong or there is no engine."""
        self._wire, self._wake_arbiter = wire, wake_arbiter
        self._engine, self._names = read_detect(event, engine)
        self._phrases = {
            word.name: word.phrase for word in wake_words(self._engine) if word.name in self._names
        }
        # Home Assistant is one device with a stream for each of its satellites.
        self.contender_id = new_id(device.id if device else "wyoming")
        self.contender_area = device.area if device else ""
        context = event.data.get("context")
        self._context = context if isinstance(context, dict) else None
        self._stream: _DetectStream | None = None

    def listens_for(self, wake_word: str) -> bool:
        known = (plain_wake_word(phrase) for phrase in self._phrases.values())
        return self._stream is not None and wake_word in known

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
            if not await self._is_won(stream, wake_word):
                continue
            stream.is_found = True
            at_ms = stream.began_ms + round(samples_to_ms(wake_word.position, ASR_RATE_HZ))
            await self._wire.send(Detection(wake_word.name, timestamp=at_ms, context=self._context))

    async def _is_won(self, stream: _DetectStream, found: Found) -> bool:
        """Waits for the decision whether this microphone's wake word is answered."""
        level_dbfs = stream.meter.level_dbfs
        level = None if level_dbfs is None else WakeLevel(level_dbfs, "wake_word")
        phrase = self._phrases[found.name]
        return await self._wake_arbiter.report(self, phrase, level).is_won()
