"""One Wyoming connection: receives events and serves one request at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import Any

from wyoming.event import Event
from wyoming.handle import Handled, HandledChunk, HandledStart, HandledStop
from wyoming.info import Info
from wyoming.ping import Pong

from devices.fleet.directory import Device
from devices.fleet.presence import DeviceActivity
from devices.fleet.wake_arbiter import WakeArbiter
from devices.wyoming.asr import AudioChunkQueue, serve_transcribe
from devices.wyoming.framing import WyomingStream
from devices.wyoming.info import info_of
from devices.wyoming.requests import (
    conversation_of,
    read_format,
    read_text,
    read_transcribe,
    read_voice_request,
    text_language,
)
from devices.wyoming.tts import TextChunkQueue, WyomingSynthesizer
from devices.wyoming.wake import WakeDetection
from pipeline.services import EngineSet
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.transcription.recording import Transcriber

IDLE_S = 300.0
"""Limit of the time without an event, in either direction. Home Assistant makes a connection for
each request."""

DOING: Mapping[str, DeviceActivity] = {
    "hear": "listening",
    "answer": "thinking",
    "speak": "speaking",
}
"Activity by the name of the work."


@dataclass(frozen=True, slots=True)
class WyomingServices:
    """Services that connections use."""

    engines: EngineSet
    transcriber: Transcriber
    synthesizer: WyomingSynthesizer
    one_shot_responses: OneShotResponses
    wake_arbiter: WakeArbiter
    version: str

    def info(self) -> Info:
        return info_of(self.engines, self.version)


class WyomingConnection:
    """Serves one connection; `run` returns when the client is gone.

    Unknown events are ignored: new ones appear every few months. One piece of work runs at a time:
    a request that comes before the last one is answered waits, and so does everything that the
    client sends after it. A request in the middle of an utterance, or of a text in pieces, ends
    that work: its remaining pieces could not be received while the client waits.
    """

    def __init__(
        self,
        wire: WyomingStream,
        services: WyomingServices,
        tasks: asyncio.TaskGroup,
        changed: Callable[[], None],
        device: Device | None = None,
    ) -> None:
        """changed: called when the activity changes. device: the client; None: this machine."""
        self._wire, self._services, self._tasks = wire, services, tasks
        self._changed, self._device = changed, device
        self.activity: DeviceActivity = "idle"
        self._work: asyncio.Task[None] | None = None
        self._transcribe: Event | None = None
        "The request that incoming audio belongs to; None: the audio is ignored."
        self._wake_detection: WakeDetection | None = None
        "The wake word detection that incoming audio is for; None: there is none."
        self._detection_end = ExitStack()
        "Ends the detection's part in the arbitration of wake words."
        self._audio_chunks: AudioChunkQueue | None = None
        "Audio of the utterance in progress."
        self._text_chunks: TextChunkQueue | None = None
        "Pieces of the text that is spoken while it arrives."

    async def run(self) -> None:
        """Reads events until the client is gone. Raises EarshotError, ConnectionError.

        Errors of the work come from the TaskGroup, which cancels `run`.
        """
        try:
            while (event := await self._wire.read(IDLE_S)) is not None:
                await self._handle(event)
        finally:
            self._detection_end.close()
            if self._work is not None:
                self._work.cancel()

    async def _handle(self, event: Event) -> None:
        services = self._services
        match event.type:
            case "describe":
                await self._wire.send(services.info())
            case "ping":
                text = event.data.get("text")
                await self._wire.send(Pong(text=text if isinstance(text, str) else None))
            case "transcribe":
                # checked now, so that errors are reported at once
                read_transcribe(event, services.engines)
                if self._audio_chunks is not None:
                    await self._cancel_work()
                self._transcribe = event
                self._detect(None)
            case "detect":
                detection = WakeDetection(
                    self._wire, event, services.engines.wake, self._device, services.wake_arbiter
                )
                if self._audio_chunks is not None:
                    await self._cancel_work()
                self._transcribe = None
                self._detect(detection)
            case "audio-start" | "audio-chunk" | "audio-stop" if self._wake_detection is not None:
                await self._wake_detection.handle(event)
            case "audio-start" | "audio-chunk" | "audio-stop":
                await self._take_audio(event)
            case "transcript":
                await self._begin(
                    serve_handle(self._wire, event, services.one_shot_responses), "answer"
                )
            case "synthesize" if self._text_chunks is None:
                text, voice_request = read_text(event), read_voice_request(event, services.engines)
                await self._begin(
                    services.synthesizer.text(self._wire, text, voice_request), "speak"
                )
            case "synthesize-start" | "synthesize-chunk" | "synthesize-stop":
                await self._speak(event)

    def _detect(self, detection: WakeDetection | None) -> None:
        self._wake_detection = detection
        self._detection_end.close()
        if detection is not None:
            arbiter = self._services.wake_arbiter
            self._detection_end.callback(arbiter.forget, detection.contender_id)
            self._detection_end.enter_context(arbiter.connected(detection, only_wakes=True))

    async def _take_audio(self, event: Event) -> None:
        is_stop = event.type == "audio-stop"
        audio_format = None if is_stop else read_format(event)
        # the last utterance was given up in the middle
        if event.type == "audio-start" and self._audio_chunks is not None:
            await self._cancel_work()
        if self._audio_chunks is None:
            if self._transcribe is None:
                return  # audio without a request; also the rest of a cancelled utterance
            model, options = read_transcribe(self._transcribe, self._services.engines)
            audio_chunks = AudioChunkQueue()
            work = serve_transcribe(
                self._wire, audio_chunks, self._services.transcriber, model, options
            )
            await self._begin(work, "hear")
            self._audio_chunks = audio_chunks
        if audio_format is not None and event.payload:
            await self._audio_chunks.put(audio_format, event.payload)
        if is_stop:
            self._audio_chunks.end()
            self._audio_chunks = self._transcribe = None

    async def _speak(self, event: Event) -> None:
        match event.type:
            case "synthesize-start":
                voice_request, texts = (
                    read_voice_request(event, self._services.engines),
                    TextChunkQueue(),
                )
                speech = self._services.synthesizer.stream(self._wire, texts, voice_request)
                await self._begin(speech, "speak")
                self._text_chunks = texts
            case "synthesize-chunk" if self._text_chunks is not None:
                self._text_chunks.add(read_text(event))
            case "synthesize-stop" if self._text_chunks is not None:
                self._text_chunks.end()
                self._text_chunks = None

    async def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            if self._audio_chunks is not None or self._text_chunks is not None:
                await self._cancel_work()
            if self._work is not None:
                await asyncio.wait((self._work,))
        except asyncio.CancelledError:
            work.close()
            raise
        self._work = self._tasks.create_task(work, name=f"wyoming-{name}")
        self._set_activity(DOING[name])
        self._work.add_done_callback(lambda _: self._set_activity("idle"))

    def _set_activity(self, activity: DeviceActivity) -> None:
        self.activity = activity
        self._changed()

    async def _cancel_work(self) -> None:
        assert self._work is not None
        self._work.cancel()
        await asyncio.wait((self._work,))
        self._audio_chunks = self._text_chunks = None


async def serve_handle(wire: WyomingStream, event: Event, responses: OneShotResponses) -> None:
    """Serves Wyoming's "handle": answers the event `transcript` with the assistant's answer.

    Sends the answer as it is written, then as a whole, which is all that older clients read.

    The whole answer has no fillers.

    Raises EngineError, OverloadedError, RequestError, Conflict, ConnectionError.
    """
    question = OneShotRequest(
        " ".join(read_text(event).split()),
        conversation_id=conversation_of(event),
        language=text_language(event),
        is_spoken=True,
    )
    context = event.data.get("context")
    async with responses.open(question) as response, aclosing(response.texts()) as texts:
        await wire.send(HandledStart())
        async for text in texts:
            await wire.send(HandledChunk(text=text))
    await wire.send(Handled(text=response.answer.strip(), context=context), HandledStop())
