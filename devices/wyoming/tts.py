"""Wyoming's request `synthesize`, with the text whole or in pieces; the speech begins with the
first clause."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.tts import SynthesizeStopped

from core.errors import PayloadTooLarge
from devices.wyoming.framing import WyomingStream
from devices.wyoming.requests import MAX_TEXT_CHARS, VoiceRequest
from media.files.encode import RAW
from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFileOptions, SpeechFiles
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.requested_text import RequestedText

RATE_HZ = 22_050
"""Sample rate of eSpeak and Piper. It is fixed: Home Assistant writes the header of its WAV file at
the first `audio-start`."""

WIDTH_BYTES, CHANNELS = 2, 1

CHUNK_BYTES = 2048 * WIDTH_BYTES
"Size of a chunk, as satellites play it: 93 ms."


class TextChunkQueue:
    """Queue of the pieces of a text that is still arriving, with a limit for the whole text."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._chars = 0

    def add(self, text: str) -> None:
        """Adds a piece. Raises PayloadTooLarge."""
        self._chars += len(text)
        if self._chars > MAX_TEXT_CHARS:
            raise PayloadTooLarge(f"a text of more than {MAX_TEXT_CHARS} characters, the limit")
        if text:
            self._pieces.put_nowait(text)

    def end(self) -> None:
        """Marks the end of the text."""
        self._pieces.put_nowait(None)

    async def pieces(self) -> AsyncGenerator[str, None]:
        """Yields the pieces as they arrive."""
        while (text := await self._pieces.get()) is not None:
            yield text


class WyomingSynthesizer:
    """Speaks texts for Wyoming clients."""

    def __init__(
        self, engines: EngineSet, speech_files: SpeechFiles, languages: TextLanguageDetector
    ) -> None:
        self._engines, self._speech_files, self._languages = engines, speech_files, languages

    async def text(self, wire: WyomingStream, text: str, voice_request: VoiceRequest) -> None:
        """Speaks a text or an SSML document; without a given language it is detected.

        Raises EngineError, OverloadedError, RequestError, ConnectionError.
        """
        requested = RequestedText.of(text)
        default_language = self._engines.default_language
        spoken = {code for tts in self._engines.tts.values() for code in tts.info.voices}
        language = (
            voice_request.language
            or requested.language
            or await self._languages.detect(requested.plain_text, default_language, spoken)
        )
        await self._speak(wire, requested, SpeechFileOptions(language, voice_request.voice))

    async def stream(
        self, wire: WyomingStream, texts: TextChunkQueue, voice_request: VoiceRequest
    ) -> None:
        """Speaks a text that is still arriving; its default language is the server's.

        Raises the same errors as `text`.
        """
        language = voice_request.language or self._engines.default_language
        async with aclosing(texts.pieces()) as pieces:
            await self._speak(wire, pieces, SpeechFileOptions(language, voice_request.voice))
        await wire.send(SynthesizeStopped())

    async def _speak(
        self,
        wire: WyomingStream,
        text: AsyncGenerator[str, None] | RequestedText,
        options: SpeechFileOptions,
    ) -> None:
        file = self._speech_files.file(text, options, RAW, RATE_HZ)
        await wire.send(AudioStart(rate=RATE_HZ, width=WIDTH_BYTES, channels=CHANNELS))
        sent_bytes = 0
        async with aclosing(file.chunks()) as chunks:
            async for chunk in chunks:
                for start in range(0, len(chunk), CHUNK_BYTES):
                    piece = chunk[start : start + CHUNK_BYTES]
                    await wire.send(_chunk(piece, sent_bytes))
                    sent_bytes += len(piece)
        await wire.send(AudioStop(timestamp=_ms(sent_bytes)))


def _chunk(audio: bytes, before_bytes: int) -> AudioChunk:
    return AudioChunk(
        rate=RATE_HZ,
        width=WIDTH_BYTES,
        channels=CHANNELS,
        audio=audio,
        timestamp=_ms(before_bytes),
    )


def _ms(size_bytes: int) -> int:
    return 1000 * size_bytes // (WIDTH_BYTES * RATE_HZ)
