"""The Willow inference door: its parts and its HTTP handlers."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec
from aiohttp import web as aioweb

from core.access.named_key import KeySessions
from core.errors import EngineTimeout, RequestError
from core.http.client_connection import ClientDisconnected, while_connected
from core.ports import Clock, WorkGuard
from devices.fleet.ip_allowlist import KeylessPageSettings
from devices.willow.wis.asr import WisTranscript, WisTranscription, open_transcription
from devices.willow.wis.asr_params import AsrParams, AsrParamsReader
from devices.willow.wis.asr_reply import device_reply, file_reply, short_errors
from devices.willow.wis.chat_params import check_site
from devices.willow.wis.chatbot import Chatbot
from devices.willow.wis.chatbot_ws import ChatbotSocket
from devices.willow.wis.own_voices import WisSpeakerDoor
from devices.willow.wis.params import switch_of
from devices.willow.wis.rtc.calls import WillowCalls, call_settings
from devices.willow.wis.sts import SpeechToSpeech
from devices.willow.wis.tts import (
    RATE_HZ,
    file_options,
    head_only,
    read_language,
    read_text,
    read_tts_params,
    speak,
    spoken_language,
)
from devices.willow.wis.upload import (
    WillowAudioFormat,
    body_of,
    spool_form,
    transcribe_file,
    transcribe_stream,
)
from devices.willow.wis.voice_auth import DEFAULT_THRESHOLD, VoiceAuthorisation
from media.files.decode import FileDecoder
from media.files.upload_spool import UploadSpools
from media.webrtc.peer import PeerSettings
from pipeline.services import EngineSet
from pipeline.session.one_shot import OneShotResponses
from pipeline.speech.file import SpeechFiles
from pipeline.speech.own_voices import OwnVoices
from pipeline.speech.requested_text import RequestedText
from pipeline.transcription.recording import Transcriber
from serving.asr.scheduling import DecodePriority
from serving.speaker.recognition import SpeakerRecognition


class DeviceUtterance(Protocol):
    """One `POST /api/willow` of a known device."""

    @property
    def language(self) -> str:
        """Language that is spoken to the device; empty: not set."""
        ...

    async def should_recognise(self) -> bool:
        """Returns False if another device of the room answers: this one's speech is not
        recognised."""
        ...

    async def take_transcript(self, transcript: WisTranscript) -> bool:
        """Takes the words before they are sent to the device.

        Returns False if another device turned out to be the one that answers: the words are then
        dropped.
        """
        ...

    def end(self) -> None:
        """Ends the utterance: the device has its response, or is gone."""
        ...


class DeviceLookup(Protocol):
    """Finds the device behind a request."""

    def utterance(self, request: aioweb.Request) -> DeviceUtterance | None:
        """Returns the utterance of the device that sent it. None: unknown device; its speech is
        only recognised."""
        ...


logger = logging.getLogger(__name__)

JSON = "application/json"

FORM_BYTES = 64 * 1024
"Size of a form without its recording."


@dataclass(frozen=True, slots=True)
class WillowSettings:
    """Limits of the door."""

    reply_timeout_s: float = 9.0
    "Time limit after a device's last byte. Devices give up after 10 s (5 s in old firmware)."
    max_stream_s: float = 600.0
    """Limit of speech in one `POST /api/willow`, or between start and stop of a call. Devices stop
    at 5 s."""
    max_file_s: float = 2 * 3600.0
    "Limit of an uploaded recording, in seconds."
    max_calls: int = 32
    "Limit of open WebRTC calls, and also of open chat connections."
    speaker_threshold: float = DEFAULT_THRESHOLD
    "Score from which the voice of a speaker is known, for requests with `voice_auth`."
    peer: PeerSettings = field(default_factory=call_settings)
    pages: KeylessPageSettings = field(default_factory=KeylessPageSettings)
    "Pages of other sites that may use the door without a key."


class WisSessionDescription(msgspec.Struct, frozen=True):
    """Body of `POST /api/rtc/asr`, and of its response."""

    sdp: str
    type: str


class WisPong(msgspec.Struct, frozen=True):
    """Response of the ping."""

    message: str


class WillowDoor:
    """The inference server. `run` must be running while calls are taken; cancelling it ends
    them."""

    def __init__(
        self,
        engines: EngineSet,
        transcriber: Transcriber,
        spools: UploadSpools,
        decoder: FileDecoder,
        clock: Clock,
        guard: WorkGuard,
        speech_files: SpeechFiles,
        one_shot_responses: OneShotResponses,
        key_sessions: KeySessions,
        settings: WillowSettings | None = None,
        device_lookup: DeviceLookup | None = None,
        speakers: SpeakerRecognition | None = None,
        own_voices: OwnVoices | None = None,
    ) -> None:
        self._voices = VoiceAuthorisation(
            speakers, (settings or WillowSettings()).speaker_threshold
        )
        self.settings = settings = settings or WillowSettings()
        self._engines, self._transcriber, self._clock = engines, transcriber, clock
        self._spools, self._decoder = spools, decoder
        self._speech_files, self._device_lookup = speech_files, device_lookup
        self.chatbot = Chatbot(engines, one_shot_responses, speech_files)
        self.chat_socket = ChatbotSocket(
            self.chatbot, one_shot_responses, key_sessions, max_open=settings.max_calls
        )
        self.speech_to_speech = SpeechToSpeech(
            engines, self.chatbot, speech_files, self._transcribe_upload
        )
        self.speaker_door = WisSpeakerDoor(own_voices, spools, decoder, self.max_body_bytes)
        self._params_reader = AsrParamsReader(engines, transcriber)
        self.calls = WillowCalls(
            transcriber,
            self._params_reader,
            clock,
            guard,
            key_sessions,
            peer=settings.peer,
            max_calls=settings.max_calls,
            max_audio_s=settings.max_stream_s,
        )

    @property
    def max_body_bytes(self) -> int:
        """Limit of an upload, including the form around it."""
        return self._spools.limits.max_bytes + FORM_BYTES

    async def run(self) -> None:
        await self.calls.run()

    async def ping(self, request: aioweb.Request) -> aioweb.Response:
        return _json(msgspec.json.encode(WisPong("pong")))

    async def file(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/asr`."""
        transcript = await self._transcribe_upload(
            request, self._read(request.query), DecodePriority.BATCH
        )
        return _json(file_reply(transcript))

    async def device(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/willow`."""
        with short_errors():
            stats = switch_of(request.query, "stats")
            if switch_of(request.query, "save_audio"):
                logger.info("save_audio was asked for; speech is never stored")
            audio_format = WillowAudioFormat.of(request.headers)
            utterance = self._device_lookup.utterance(request) if self._device_lookup else None
            params = self._read(request.query, utterance.language if utterance else "")
        if utterance is not None:
            return await self._answer_known_device(
                request, audio_format, params, utterance, stats=stats
            )
        transcript = await while_connected(
            request, self._transcribe_device(request, audio_format, params)
        )
        return _json(device_reply(transcript, stats=stats))

    async def _answer_known_device(
        self,
        request: aioweb.Request,
        audio_format: WillowAudioFormat,
        params: AsrParams,
        utterance: DeviceUtterance,
        *,
        stats: bool,
    ) -> aioweb.Response:
        """Handles speech of a device that the application server knows.

        The speech of a device that lost the arbitration is read and dropped. The words of the
        winner are run as a command while they are sent back to it.
        """
        try:
            empty = WisTranscript(
                "", params.options.language or self._engines.default_language, 0, 0
            )
            if not await utterance.should_recognise():
                async for _ in body_of(request, self._spools.limits.max_bytes):
                    pass
                return _json(device_reply(empty, stats=stats))
            transcript = await while_connected(
                request, self._transcribe_device(request, audio_format, params)
            )
            if not await utterance.take_transcript(transcript):
                transcript = empty
            response = _json(device_reply(transcript, stats=stats))
            await response.prepare(request)
            await response.write_eof()
            return response
        except ConnectionError as exc:
            raise ClientDisconnected from exc
        finally:
            utterance.end()

    async def offer(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/rtc/asr`."""
        try:
            offer = msgspec.json.decode(await request.read(), type=WisSessionDescription)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise RequestError(
                f'the body must be JSON {{"sdp": "v=0...", "type": "offer"}}: {error}',
                code="invalid_json",
            ) from None
        if offer.type != "offer":
            raise RequestError('type must be "offer"', code="invalid_value", param="type")
        self._read(request.query)
        answer = await self.calls.start(offer.sdp, dict(request.query))
        return _json(msgspec.json.encode(WisSessionDescription(answer, "answer")))

    async def speech(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /api/tts`."""
        check_site(request)
        text = RequestedText.of(read_text(request.query), "text")
        wanted = read_tts_params(request.query, self._engines)
        language = read_language(request.query) or text.language or wanted.voice_language
        language = spoken_language(language, self._engines)
        if head := head_only(request, wanted):
            return head
        file = self._speech_files.file(text, file_options(wanted, language), wanted.kind, RATE_HZ)
        return await while_connected(request, speak(request, file, is_sized=wanted.kind == "wav"))

    async def converse(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /api/sts`."""
        return await self.speech_to_speech.serve(request, self._read(request.query))

    async def clone(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/tts`: refuses, because voices cannot be uploaded."""
        raise RequestError(
            "voices cannot be uploaded; GET /api/tts uses the installed voices",
            code="unsupported_operation",
        )

    async def docs(self, request: aioweb.Request) -> aioweb.Response:
        raise aioweb.HTTPFound("/docs")

    async def openapi(self, request: aioweb.Request) -> aioweb.Response:
        raise aioweb.HTTPFound("/openapi.json")

    def _read(self, query: Mapping[str, str], default_language: str = "") -> AsrParams:
        params = self._params_reader.read(query, default_language)
        if params.note:
            logger.info("%s", params.note)
        return params

    def _open_transcription(
        self, params: AsrParams, priority: DecodePriority, max_audio_s: float
    ) -> AbstractAsyncContextManager[WisTranscription]:
        return open_transcription(
            self._transcriber, params, self._clock, priority=priority, max_audio_s=max_audio_s
        )

    async def _transcribe_upload(
        self, request: aioweb.Request, params: AsrParams, priority: DecodePriority
    ) -> WisTranscript:
        """Recognises the recording in a form."""
        with self._spools.open() as spool:
            await spool_form(request, spool, self.max_body_bytes)
            began = self._clock.now()

            async def recognise() -> WisTranscript:
                async with self._open_transcription(
                    params, priority, self.settings.max_file_s
                ) as transcription:
                    await transcribe_file(transcription, spool, self._decoder)
                    return await transcription.transcript(since=began)

            return await while_connected(request, recognise())

    async def _transcribe_device(
        self, request: aioweb.Request, audio_format: WillowAudioFormat, params: AsrParams
    ) -> WisTranscript:
        settings, spools = self.settings, self._spools
        with short_errors(), spools.open() as spool:
            async with self._open_transcription(
                params, DecodePriority.FINAL, settings.max_stream_s
            ) as transcription:
                body = body_of(request, spools.limits.max_bytes)
                is_pushed = await transcribe_stream(body, audio_format, transcription, spool)
                ended = self._clock.now()
                try:
                    async with asyncio.timeout(settings.reply_timeout_s):
                        if not is_pushed:
                            await transcribe_file(transcription, spool, self._decoder)
                        speaker = None
                        if switch_of(request.query, "voice_auth"):
                            speaker = await self._voices.speaker(transcription.beginning)
                        transcript = await transcription.transcript(since=ended)
                        return replace(transcript, speaker=speaker)
                except TimeoutError:
                    why = f"no text within {settings.reply_timeout_s:g} s"
                    raise EngineTimeout("asr", params.model, why) from None


def _json(body: bytes) -> aioweb.Response:
    return aioweb.Response(body=body, content_type=JSON, headers={"Cache-Control": "no-store"})
