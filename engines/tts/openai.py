"""A voice behind another server's `/v1/audio/speech`: raw PCM, played while it is made.

Each clause is one request, so that the first one is spoken while the model still writes, and the
next is asked for while one plays. Leaving closes the connection, which ends the work over there.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from core.audio import AudioFrame, Pcm
from engines.base import TtsInfo, WordMark
from engines.tts.text import checked_speed, chosen_voice, clauses_of

if TYPE_CHECKING:
    from engines.tts.openai_client import SpeechApiClient

# Raw 16-bit PCM as it comes over a network.


class PcmStream:
    """Bytes cut anywhere -> samples. A last half sample is no sound and stays here."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._odd = b""

    def push(self, data: bytes) -> Iterator[Pcm]:
        """Pieces of at most `max_bytes`."""
        data = self._odd + data
        even = len(data) - len(data) % 2
        self._odd = data[even:]
        for start in range(0, even, self._max_bytes):
            piece = data[start : min(start + self._max_bytes, even)]
            yield np.frombuffer(piece, "<i2").astype(np.int16)


MAX_FRAME_BYTES = 9600
"200 ms at 24 kHz: what the network hands over at once may be much longer."


VoiceNames = Annotated[tuple[str, ...], Meta(min_length=1)]


def _usual_voices() -> dict[str, tuple[str, ...]]:
    return {"en": ("alloy",)}


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    base_url: str = ""
    "Up to and with its version: `http://127.0.0.1:8880/v1`."
    model: str = "tts-1"
    voices: dict[Annotated[str, Meta(min_length=2)], VoiceNames] = field(
        default_factory=_usual_voices
    )
    "Language (ISO 639-1) -> voices that speak it; the first is its default."
    rate_hz: Annotated[int, Meta(ge=8000, le=48_000)] = 24_000
    "Of the server's `pcm`, which does not say it: mono, 16 bits, little-endian."
    api_key: str = ""
    api_key_file: str = ""
    "Read at start; in place of `api_key`."
    instructions: str = ""
    "How to speak, for models that take it."
    speed: Annotated[float, Meta(ge=0.5, le=2.5)] = 1.0
    "Factor on every request's own speed."
    connect_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    first_audio_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    "A retry included. A person on the line gives up sooner."
    audio_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    "Between two pieces."

    def __repr__(self) -> str:
        """The key stays out of logs and tracebacks."""
        shown = (
            f"{name}={'***' if name == 'api_key' and value else value!r}"
            for name, value in asdict(self).items()
        )
        return f"Settings({', '.join(shown)})"


class OpenAiTts:
    """A `Tts`; it connects on first use, `aclose` when the server stops."""

    def __init__(self, settings: Settings, client: "SpeechApiClient") -> None:
        self.info = TtsInfo("openai", settings.rate_hz, settings.voices)
        self._settings = settings
        self._client = client

    async def aclose(self) -> None:
        """Close idle connections."""
        await self._client.aclose()

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """See `Tts.speak`; the protocol has no times of words. Raises RequestError for an unknown
        language, voice or speed, TooLarge for a chunk beyond MAX_CHUNK_CHARS."""
        name = chosen_voice(self.info, language, voice)
        factor = checked_speed(speed) * self._settings.speed
        start = 0
        async for chunk in text:
            for _, clause in clauses_of(chunk):
                stream = PcmStream(MAX_FRAME_BYTES)
                pieces = self._client.stream(self._body(clause, name, factor))
                async with aclosing(pieces):
                    async for data in pieces:
                        for pcm in stream.push(data):
                            yield AudioFrame(pcm, self.info.rate_hz, start)
                            start += len(pcm)

    def _body(self, clause: str, voice: str, factor: float) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self._settings.model,
            "input": clause,
            "voice": voice,
            "response_format": "pcm",
            "speed": min(max(round(factor, 3), 0.25), 4.0),
        }
        if self._settings.instructions:
            body["instructions"] = self._settings.instructions
        return body


def create(settings: Settings) -> OpenAiTts:
    """Raises ConfigError."""
    from engines.tts.openai_client import SpeechApiClient

    client = SpeechApiClient(
        "openai",
        base_url=settings.base_url,
        api_key=settings.api_key,
        api_key_file=settings.api_key_file,
        connect_timeout_s=settings.connect_timeout_s,
        first_audio_timeout_s=settings.first_audio_timeout_s,
        audio_timeout_s=settings.audio_timeout_s,
    )
    return OpenAiTts(settings, client)
