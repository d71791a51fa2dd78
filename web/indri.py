"""Serves the calls of Indri's own server: text and a speaker in, a sound file and timings out."""

from asyncio import get_running_loop
from contextlib import aclosing

import msgspec
from aiohttp import web as aioweb
from msgspec import Struct

from core.http.client_connection import while_connected
from core.http.routes import JSON
from pipeline.shared.settings import DEFAULT
from pipeline.speech.file import SpeechFiles
from pipeline.speech.voices import list_voices
from web.openai.json_body import decode_json, read_json
from web.openai.limits import RequestLimit
from web.openai.speech.door import SpeechDoor, nothing_to_speak, token_counts
from web.openai.speech.fields import SpeechFields, check_length

METRICS_HEADER = "x-metrics"

FILE_NAME = "speech_completion.mp3"


class IndriSpeechFields(Struct, frozen=True):
    """Body of `POST /tts`."""

    text: str
    "Text to speak, at most 4096 characters."
    speaker: str
    "A voice, by a name or id of any door."


class IndriSpeakerFields(Struct, frozen=True):
    """Body of `POST /speaker_text`."""

    speaker: str


class IndriSpeakers(Struct, frozen=True):
    """The speakers."""

    speakers: tuple[str, ...]
    "Ids of the voices. Unlike Indri's display names, no two are equal."


class IndriSpeakerText(Struct, frozen=True):
    """A sentence to try a speaker with."""

    speaker_text: str


class IndriMetrics(Struct, frozen=True, kw_only=True):
    """Times in seconds since the request was read, and counts; one number for each text."""

    time_to_first_token: tuple[float, ...]
    "Until the first bytes of the file."
    time_to_last_token: tuple[float, ...]
    time_to_encode_audio: float = 0.0
    "Always 0: no sound was sent."
    time_to_decode_audio: float = 0.0
    "Always 0: sound is decoded while it is written."
    input_tokens: tuple[int, ...]
    "Words of the text."
    decoding_tokens: tuple[int, ...]
    "Pieces of 50 ms of the sound."
    generate_end_to_end_time: float
    end_to_end_time: float


class IndriDoor:
    """Handles the requests of Indri's clients with all voices of this server."""

    def __init__(self, speech: SpeechDoor, files: SpeechFiles, limit: RequestLimit) -> None:
        self.speech, self._files, self._limit = speech, files, limit

    async def speakers(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /speakers`: the voices of the preferred engine."""
        voices = list_voices(self._files.voices())
        return _json(IndriSpeakers(tuple(v.id for v in voices if v.engine == voices[0].engine)))

    async def speaker_text(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /speaker_text`. Raises RequestError voice_not_found."""
        fields = decode_json(await read_json(request), IndriSpeakerFields)
        return _json(IndriSpeakerText(self.speech.sample_text(fields.speaker)))

    async def tts(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /tts`. The file is sent as a whole, because its headers have the times.

        Raises RequestError, OverloadedError, EngineError.
        """
        fields = decode_json(await read_json(request), IndriSpeechFields)
        check_length(fields.text, "text")
        async with self._limit.take():
            return await while_connected(request, self._make(fields))

    async def _make(self, fields: IndriSpeechFields) -> aioweb.Response:
        now = get_running_loop().time
        began, first_s, sound = now(), 0.0, bytearray()
        options = SpeechFields(model=DEFAULT, input=fields.text, voice=fields.speaker)
        file = await self.speech.open_file(options)
        async with aclosing(file.chunks()) as chunks:
            async for chunk in chunks:
                first_s = first_s or now() - began
                sound += chunk
        if not sound:
            raise nothing_to_speak("text")
        last_s = round(now() - began, 4)
        words, pieces = token_counts(fields.text, file.audio_ms)
        end_s = round(now() - began, 4)
        metrics = IndriMetrics(
            time_to_first_token=(round(first_s, 4),),
            time_to_last_token=(last_s,),
            input_tokens=(words,),
            decoding_tokens=(pieces,),
            generate_end_to_end_time=last_s,
            end_to_end_time=end_s,
        )
        headers = {
            METRICS_HEADER: msgspec.json.encode(metrics).decode(),
            "Content-Disposition": f"attachment; filename={FILE_NAME}",
            "Cache-Control": "no-store",
        }
        return aioweb.Response(body=bytes(sound), content_type=file.content_type, headers=headers)


def _json(body: Struct) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(body), content_type=JSON)
