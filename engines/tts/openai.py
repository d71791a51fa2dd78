"""Engine for voices of another server's `/v1/audio/speech`, whose raw PCM is played as it arrives.

Each clause is one request. So the first clause is spoken while the language model still writes, and
the next clause is requested while one is played. Cancelling closes the connection, so that the
server stops its work.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from core.audio import AudioFrame, Pcm
from core.errors import RemoteProtocolError
from engines.base import TtsInfo, WordMark
from engines.runtime.openai_http.errors import OpenAiHttpError
from engines.tts.shared.text import check_speed, choose_voice, clauses_of

if TYPE_CHECKING:
    import aiohttp

    from engines.runtime.openai_http.client import OpenAiHttpClient


MAX_FRAME_BYTES = 9600
"Longest frame: 200 ms at 24 kHz. The network may deliver much more at once."

_FILE_MARKS = {
    b"RIFF": "a WAV file",
    b"ID3": "an MP3 file",
    b"OggS": "an Ogg file",
    b"fLaC": "FLAC",
}
"First bytes of audio files -> name of their format."
_NON_AUDIO_TYPES = ("application/json", "text/html", "text/event-stream")
"Content types of responses without audio."


class PcmStream:
    """Turns raw 16-bit PCM from a network, in pieces of any length, into samples.

    A half sample at the end of the stream is dropped.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._half_sample = b""

    def push(self, data: bytes) -> Iterator[Pcm]:
        """Yields the samples of `data` in pieces of at most `max_bytes` bytes."""
        data = self._half_sample + data
        even = len(data) - len(data) % 2
        self._half_sample = data[even:]
        for start in range(0, even, self._max_bytes):
            piece = data[start : min(start + self._max_bytes, even)]
            yield np.frombuffer(piece, "<i2").astype(np.int16)


class PcmResponseReader:
    """A `ResponseReader` for the PCM of one response. Its items are never empty."""

    def __init__(self, response: "aiohttp.ClientResponse") -> None:
        self._response = response

    async def first(self) -> bytes | None:
        """Returns the first bytes. Raises RemoteProtocolError for anything but PCM, which would be
        played as loud noise."""
        data = b""
        # The longest entry of _FILE_MARKS has 4 bytes.
        while len(data) < 4 and (more := await self._response.content.readany()):
            data += more
        wrong_format = next(
            (file_format for mark, file_format in _FILE_MARKS.items() if data.startswith(mark)), ""
        )
        if self._response.content_type in _NON_AUDIO_TYPES:
            wrong_format = self._response.content_type
        if wrong_format:
            raise RemoteProtocolError(f"{wrong_format} where PCM was asked for")
        return data or None

    async def next(self) -> bytes | None:
        """Returns the next bytes; None at the end."""
        return await self._response.content.readany() or None


VoiceNames = Annotated[tuple[str, ...], Meta(min_length=1)]


def _default_voices() -> dict[str, tuple[str, ...]]:
    return {"en": ("alloy",)}


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `openai`."""

    base_url: str = ""
    "Address of the API including its version: `http://127.0.0.1:8880/v1`."
    model: str = "tts-1"
    voices: dict[Annotated[str, Meta(min_length=2)], VoiceNames] = field(
        default_factory=_default_voices
    )
    "Language (ISO 639-1) -> voices that speak it; the first is its default."
    rate_hz: Annotated[int, Meta(ge=8000, le=48_000)] = 24_000
    "Sample rate of the server's `pcm` (mono, 16 bits, little-endian), which it does not announce."
    api_key: str = ""
    api_key_file: str = ""
    "File with the key, read at start; replaces `api_key`."
    instructions: str = ""
    "Instructions on how to speak, for models that take them."
    speed: Annotated[float, Meta(ge=0.5, le=2.5)] = 1.0
    "Factor on the speed of every request."
    connect_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    first_audio_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    "Longest wait for the first audio, including the retry."
    audio_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    "Longest wait between two pieces of audio."

    def __repr__(self) -> str:
        """Returns the settings without the key, for logs and tracebacks."""
        shown = (
            f"{name}={'***' if name == 'api_key' and value else value!r}"
            for name, value in asdict(self).items()
        )
        return f"Settings({', '.join(shown)})"


class OpenAiTts:
    """A `Tts` over HTTP. It connects on first use; call `aclose` at the end."""

    def __init__(self, settings: Settings, client: "OpenAiHttpClient") -> None:
        self.info = TtsInfo("openai", settings.rate_hz, settings.voices)
        self._settings = settings
        self._client = client

    async def aclose(self) -> None:
        """Closes idle connections."""
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
        """Streams the speech (see `Tts.speak`). The protocol has no word times.

        Raises RequestError for an unknown language, voice or speed; PayloadTooLarge for a chunk
        beyond MAX_CHUNK_CHARS; EngineError; OverloadedError.
        """
        name = choose_voice(self.info, language, voice)
        factor = check_speed(speed) * self._settings.speed
        start = 0
        async for chunk in text:
            for _, clause in clauses_of(chunk):
                stream = PcmStream(MAX_FRAME_BYTES)
                async with aclosing(self._request(clause, name, factor)) as pieces:
                    async for data in pieces:
                        for pcm in stream.push(data):
                            yield AudioFrame(pcm, self.info.rate_hz, start)
                            start += len(pcm)

    async def _request(self, clause: str, voice: str, factor: float) -> AsyncGenerator[bytes, None]:
        """Streams the PCM of one clause."""
        pieces = self._client.stream(
            "/audio/speech",
            self._body(clause, voice, factor),
            PcmResponseReader,
            first_item_name="audio",
            first_timeout_s=self._settings.first_audio_timeout_s,
            next_timeout_s=self._settings.audio_timeout_s,
        )
        try:
            async with aclosing(pieces):
                async for data in pieces:
                    yield data
        except OpenAiHttpError as exc:
            raise exc.public_error([clause]) from None

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
    """Returns the engine. Raises ConfigError for bad settings, EngineMissing without address."""
    from engines.runtime.openai_http.client import OpenAiHttpClient

    client = OpenAiHttpClient(
        "tts",
        "openai",
        base_url=settings.base_url,
        api_key=settings.api_key,
        api_key_file=settings.api_key_file,
        connect_timeout_s=settings.connect_timeout_s,
    )
    return OpenAiTts(settings, client)
