"""`transcribe`: sound in as it is spoken, its text out. Sheet section 4, ASR sequence."""

import asyncio

from wyoming.asr import Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioStop
from wyoming.event import Event

from core.audio import ASR_RATE_HZ
from core.errors import TooLarge
from core.tasks import unwrapped
from devices.wyoming.asked import SoundFormat, read_format
from devices.wyoming.wire import Wire
from engines.base import AsrOptions
from media.raw import RawDecoder
from pipeline.recording import Recording, Transcriber
from pipeline.writing import join_texts
from serving.scheduler import Priority

MAX_AUDIO_S = 600
"Of one utterance. Home Assistant stops after 15 s; dictation is longer."


async def hear(
    wire: Wire,
    events: asyncio.Queue[Event],
    transcriber: Transcriber,
    model: str,
    options: AsrOptions,
) -> None:
    """`events`: chunks, then the stop. Words go out stretch by stretch, where the speech is longer
    than one, then all of them once more, as clients want that know no stretches.

    Raises EngineError, Overloaded, RequestError, ConnectionError.
    """
    opened = transcriber.open(model, options, priority=Priority.FINAL, eager=True)
    async with opened as recording:
        with unwrapped():
            async with asyncio.TaskGroup() as tasks:
                telling = tasks.create_task(_tell(wire, recording), name="wyoming-parts")
                await _push(events, recording)
                recording.end()
        text, language = telling.result()
        await wire.send(Transcript(text=text, language=language), TranscriptStop())


async def _push(events: asyncio.Queue[Event], recording: Recording) -> None:
    found: SoundFormat | None = None
    decoder: RawDecoder | None = None
    samples = 0
    while not AudioStop.is_type((event := await events.get()).type):
        if (form := read_format(event)) != found or decoder is None:
            if decoder is not None:
                await recording.push(decoder.flush())
            found, decoder = form, RawDecoder(form.rate_hz, form.bits, form.channels)
        pcm = decoder.push(event.payload or b"")
        samples += len(pcm)
        if samples > MAX_AUDIO_S * ASR_RATE_HZ:
            raise TooLarge(
                f"an utterance of more than {MAX_AUDIO_S} s, the limit", code="audio_too_long"
            )
        if len(pcm):
            await recording.push(pcm)
    if decoder is not None:
        await recording.push(decoder.flush())


async def _tell(wire: Wire, recording: Recording) -> tuple[str, str]:
    text, language = "", ""
    async for part in recording.parts():
        if not language:
            language = part.language
            await wire.send(TranscriptStart(language=language))
        whole = join_texts([text, part.text])
        if whole != text:
            await wire.send(TranscriptChunk(text=whole[len(text) :]))
        text = whole
    return text, language
