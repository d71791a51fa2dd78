"""Serves the calls of Indri's own server: text and a speaker in, a sound file and timings out."""

from asyncio import get_running_loop
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing
from random import choice
from typing import Literal, Protocol

import msgspec
from aiohttp import web as aioweb
from msgspec import Struct

from core.conversation.ids import new_id
from core.errors import NotFound
from core.http.client_connection import while_connected
from core.http.routes import JSON
from pipeline.shared.settings import DEFAULT
from pipeline.speech.file import SpeechFile, SpeechFiles
from pipeline.speech.voices import VoiceRating, list_voices
from web.openai.json_body import decode_json, read_json
from web.openai.limits import RequestLimit
from web.openai.speech.door import SpeechDoor, nothing_to_speak, token_counts
from web.openai.speech.fields import SpeechFields, check_length

METRICS_HEADER = "x-metrics"

SAMPLE_HEADER = "x-sample-id"

FILE_NAME = "speech_completion.mp3"

MAX_SAMPLES = 256
"Largest number of samples that clients can still rate. The oldest is forgotten first."


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


class IndriFeedback(Struct, frozen=True):
    """Body of `POST /audio_feedback`."""

    id: str
    "Header `x-sample-id` of the sample."
    feedback: Literal[1, -1]
    "1: the voice is good; -1: it is not."


class IndriRating(Struct, frozen=True):
    """Numbers of the caller's good and bad ratings of one voice."""

    voice: str
    good: int
    bad: int


class IndriRatings(Struct, frozen=True):
    """Numbers of the caller's ratings of all voices."""

    ratings: tuple[IndriRating, ...]


class VoiceOpinions(Protocol):
    """Keeps what people think of voices; `devices.registry.voice_ratings.VoiceRatings`."""

    async def rate(self, voice: str, *, is_good: bool) -> None:
        """Counts one more opinion of the caller. `voice`: its id. Raises EarshotError."""

    async def ratings(self) -> Mapping[str, VoiceRating]:
        """Returns the caller's counts by the ids of the voices. Raises StorageError."""


class IndriMetrics(Struct, frozen=True, kw_only=True):
    """Times in seconds since the request was read, and counts. Each list has one number for each
    text."""

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

    def __init__(
        self,
        speech: SpeechDoor,
        files: SpeechFiles,
        limit: RequestLimit,
        opinions: VoiceOpinions,
    ) -> None:
        self.speech, self._files, self._limit = speech, files, limit
        self._opinions = opinions
        self._samples: OrderedDict[str, str] = OrderedDict()
        "Id of a sample -> id of its voice."

    async def speakers(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /speakers`: the voices of the preferred engine."""
        voices = list_voices(self._files.voices())
        return _json(IndriSpeakers(tuple(v.id for v in voices if v.engine == voices[0].engine)))

    async def speaker_text(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /speaker_text`. Raises RequestError voice_not_found."""
        fields = decode_json(await read_json(request), IndriSpeakerFields)
        return _json(IndriSpeakerText(self.speech.sample_text(fields.speaker)))

    async def sample_audio(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /sample_audio`: a sentence by any voice of the preferred engine.

        Raises OverloadedError, EngineError.
        """
        voices = list_voices(self._files.voices())
        voice = choice([one.id for one in voices if one.engine == voices[0].engine])
        fields = IndriSpeechFields(self.speech.sample_text(voice), voice)
        async with self._limit.take():
            response = await while_connected(request, self._make(fields))
        sample_id = new_id("sample")
        self._samples[sample_id] = voice
        if len(self._samples) > MAX_SAMPLES:
            self._samples.popitem(last=False)
        response.headers[SAMPLE_HEADER] = sample_id
        return response

    async def feedback(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /audio_feedback`. Raises RequestError; NotFound sample_not_found, also for
        the second opinion of one sample; StorageError."""
        fields = decode_json(await read_json(request), IndriFeedback)
        if (voice := self._samples.get(fields.id)) is None:
            raise NotFound(
                f"no sample has the id {fields.id[:64]!r}, or it was rated already",
                code="sample_not_found",
                param="id",
            )
        await self._opinions.rate(voice, is_good=fields.feedback > 0)
        self._samples.pop(fields.id, None)
        return aioweb.Response()

    async def ratings(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /audio_feedback`. Raises StorageError."""
        found = await self._opinions.ratings()
        rows = (IndriRating(voice, each.good, each.bad) for voice, each in found.items())
        return _json(IndriRatings(tuple(rows)))

    async def tts(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /tts`. The file is sent as a whole, because its headers have the times.

        Raises RequestError, OverloadedError, EngineError.
        """
        fields = decode_json(await read_json(request), IndriSpeechFields)
        check_length(fields.text, "text")
        async with self._limit.take():
            return await while_connected(request, self._make(fields))

    async def _make(self, fields: IndriSpeechFields) -> aioweb.Response:
        began_s = get_running_loop().time()
        options = SpeechFields(model=DEFAULT, input=fields.text, voice=fields.speaker)
        return await timed_file(fields.text, await self.speech.open_file(options), began_s)


async def timed_file(text: str, file: SpeechFile, began_s: float) -> aioweb.Response:
    """Returns a whole sound file with its times in the header.

    `began_s`: time of the event loop at which the request was read. Raises RequestError for a text
    without anything to speak, OverloadedError, EngineError.
    """
    now = get_running_loop().time
    first_s, sound = 0.0, bytearray()
    async with aclosing(file.chunks()) as chunks:
        async for chunk in chunks:
            first_s = first_s or now() - began_s
            sound += chunk
    if not sound:
        raise nothing_to_speak("text")
    last_s = round(now() - began_s, 4)
    words, pieces = token_counts(text, file.audio_ms)
    end_s = round(now() - began_s, 4)
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
