"""Wyoming's request `transcribe`: recognises audio as it is spoken and sends its text."""

import asyncio

from wyoming.asr import Transcript, TranscriptChunk, TranscriptStart, TranscriptStop

from core.audio import ASR_RATE_HZ
from core.errors import PayloadTooLarge
from core.tasks import run_in_thread, single_error
from devices.wyoming.framing import WyomingStream
from devices.wyoming.requests import WyomingAudioFormat
from engines.base import AsrOptions
from media.files.raw import RawDecoder
from pipeline.transcription.recording import RecordingTranscription, Transcriber
from pipeline.transcription.stitching import join_texts
from serving.asr.scheduling import DecodePriority

MAX_AUDIO_S = 600
"Limit of one utterance. Home Assistant stops after 15 s; dictation is longer."

MAX_WAITING_BYTES = 256 * 1024
"""Limit of the audio that waits for the recogniser, about 8 s from a satellite. Beyond it the
client has to wait."""

MIN_PIECE_BYTES = 1024
"""Smallest size that a piece is counted with, because even a short piece needs memory for its
Python objects."""


class AudioChunkQueue:
    """Queue of the pieces of an utterance. It may exceed its limit by one piece."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[tuple[WyomingAudioFormat, bytes] | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def put(self, audio_format: WyomingAudioFormat, payload: bytes) -> None:
        """Adds a piece; waits for room."""
        await self._has_room.wait()
        self._count(max(len(payload), MIN_PIECE_BYTES))
        self._pieces.put_nowait((audio_format, payload))

    def end(self) -> None:
        """Marks the end of the utterance."""
        self._pieces.put_nowait(None)

    async def get(self) -> tuple[WyomingAudioFormat, bytes] | None:
        """Returns the next piece; None: the utterance is over."""
        piece = await self._pieces.get()
        if piece is not None:
            self._count(-max(len(piece[1]), MIN_PIECE_BYTES))
        return piece

    def _count(self, size_bytes: int) -> None:
        self._waiting_bytes += size_bytes
        if self._waiting_bytes < MAX_WAITING_BYTES:
            self._has_room.set()
        else:
            self._has_room.clear()


async def serve_transcribe(
    wire: WyomingStream,
    audio_chunks: AudioChunkQueue,
    transcriber: Transcriber,
    model: str,
    options: AsrOptions,
) -> None:
    """Sends the words segment by segment if the speech has several, then all of them once more.

    Clients that do not know segments need the text as a whole.
    Raises EngineError, OverloadedError, RequestError, ConnectionError.
    """
    opened = transcriber.open(model, options, priority=DecodePriority.FINAL, eager=True)
    async with opened as recording:
        with single_error():
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(_send_segments(wire, recording), name="wyoming-parts")
                await _push(audio_chunks, recording)
                recording.end()
        text, language = sending.result()
        await wire.send(Transcript(text=text, language=language), TranscriptStop())


async def _push(audio_chunks: AudioChunkQueue, recording: RecordingTranscription) -> None:
    last_format: WyomingAudioFormat | None = None
    decoder: RawDecoder | None = None
    samples = 0
    while (piece := await audio_chunks.get()) is not None:
        audio_format, payload = piece
        if audio_format != last_format or decoder is None:
            if decoder is not None:
                await recording.push(decoder.flush())
            last_format, decoder = (
                audio_format,
                RawDecoder(audio_format.rate_hz, audio_format.bits, audio_format.channels),
            )
        pcm = await run_in_thread(decoder.push, payload)  # decoding a megabyte takes 30 ms
        samples += len(pcm)
        if samples > MAX_AUDIO_S * ASR_RATE_HZ:
            raise PayloadTooLarge(
                f"an utterance of more than {MAX_AUDIO_S} s, the limit", code="audio_too_long"
            )
        if len(pcm):
            await recording.push(pcm)
    if decoder is not None:
        await recording.push(decoder.flush())


async def _send_segments(wire: WyomingStream, recording: RecordingTranscription) -> tuple[str, str]:
    text, language = "", ""
    async for part in recording.segment_results():
        if not language:
            language = part.language
            await wire.send(TranscriptStart(language=language))
        whole = join_texts([text, part.text])
        if whole != text:
            await wire.send(TranscriptChunk(text=whole[len(text) :]))
        text = whole
    return text, language
