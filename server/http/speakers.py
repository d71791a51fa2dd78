"""`/v1/speakers`: people who have taught the server their voices. No recording is kept."""

from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

import msgspec
import numpy as np
from aiohttp import web as aioweb
from msgspec import UNSET, Meta, Struct, UnsetType

from core.access.named_key import CALLER_KEY
from core.audio import ASR_RATE_HZ, Pcm
from core.errors import RequestError
from core.http.client_connection import while_connected
from core.http.json_body import decode_json_body, decode_json_body_or_empty
from core.http.routes import JSON, Route
from devices.api.profile_check import PROFILE_ERRORS, check_profile
from devices.api.views import PersonProfileEdit
from devices.fleet.directory import PersonProfile
from devices.registry.speakers import (
    MAX_NUMBERS,
    MIN_ENROLMENT_MS,
    EnrolledSpeaker,
    EnrolledSpeakers,
    VoiceSample,
    check_name,
)
from devices.registry.voice_enrolment import MAX_MINUTES, VoiceEnrolment
from engines.base.speaker import VoiceQuality
from media.files.decode import FileDecoder
from media.files.upload_spool import UploadSpool, UploadSpools
from serving.speaker.model import SpeakerPriority
from serving.speaker.recognition import SpeakerRecognition, vector_of
from web.openai.transcriptions.fields import File
from web.openai.transcriptions.multipart import FILE_FIELD, FORM, read_form

SPEAKER_UPLOADS = 2
"Most recordings that are decoded at once. Learning a voice is rare."

MAX_BODY_BYTES = 32 * 1024 * 1024
"Largest request: a minute of uncompressed stereo at 96 kHz has 23 MB."

MAX_AUDIO_S = 60
"Seconds of a recording that are used. More of them change a vector hardly."

_TAG = "speakers"
_UPLOAD_CODES = (
    *("engine_busy", "engine_crashed", "engine_failed", "engine_missing", "invalid_form"),
    *("missing_required_parameter", "unsupported_audio", "unsupported_media_type"),
)


class NewVoiceForm(Struct, frozen=True, kw_only=True):
    """A recording of a person."""

    name: Annotated[str, Meta(description="Name of the person. A known one gets a recording more.")]
    file: File


class VoiceForm(Struct, frozen=True, kw_only=True):
    """A recording whose speaker is looked for."""

    file: File


class QualityView(Struct, frozen=True):
    """Quality of a recording."""

    speech_ms: int
    "Length of the speech in it."
    level_dbfs: float
    "Level of the speech in dB of full scale."
    snr_db: float
    "Level of the speech above that of the sound between the words, in dB; an estimate."


class SpeakerView(Struct, frozen=True):
    """A person whose voice the server knows."""

    id: str
    name: str
    samples: int
    "Number of recordings that the voice was learned from."
    speech_ms: int
    "Length of the speech in all of them."
    created: datetime
    "ISO 8601 in UTC."
    profile: PersonProfile
    "Settings of the answers to this person."
    telephone_numbers: tuple[str, ...] = ()
    "Numbers from which the person calls, in the form of E.164."
    must_teach_again: bool = False
    """True: the recordings were learned by another model than the present one, which therefore does
    not know the person. One recording more is enough, three are better."""


class NumbersEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """All telephone numbers of a person."""

    telephone_numbers: Annotated[
        list[Annotated[str, Meta(max_length=40)]],
        Meta(max_length=MAX_NUMBERS, description="With + and the country; empty: none."),
    ]


class SpeakerEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a person. Fields that are not given stay."""

    name: str | UnsetType = UNSET
    profile: PersonProfileEdit = PersonProfileEdit()


class LearningRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Permission to learn voices in conversations."""

    minutes: Annotated[int, Meta(ge=0, le=MAX_MINUTES)] = 5
    "0: voices are not learned any more."


class LearningView(Struct, frozen=True):
    """Time in which conversations of the key may learn voices."""

    until: datetime
    "ISO 8601."


class SpeakerList(Struct, frozen=True):
    """The people of the key that asks, by name."""

    speakers: tuple[SpeakerView, ...]


class LearnedVoice(Struct, frozen=True):
    """Answer to a recording that was learned."""

    speaker: SpeakerView
    quality: QualityView


class HeardSpeaker(Struct, frozen=True):
    """Person whose voice a recording has."""

    id: str
    name: str
    score: float
    "Similarity of the voices, up to 1."


class TriedVoice(Struct, frozen=True):
    """Answer to a recording whose speaker was looked for."""

    speaker: HeardSpeaker | None
    "None: a guest, or too little speech."
    threshold: float
    "Score from which a voice counts as known."
    quality: QualityView


class SpeakersDoor:
    """HTTP handlers for the people of the caller's key."""

    def __init__(
        self,
        people: EnrolledSpeakers,
        recognition: SpeakerRecognition,
        spools: UploadSpools,
        decoder: FileDecoder,
        check: Callable[[PersonProfile], None],
        learning: VoiceEnrolment,
    ) -> None:
        """check: as `check_profile` wants it."""
        self._learning = learning
        self._check = check
        self._people, self._recognition = people, recognition
        self._spools, self._decoder = spools, decoder

    async def list_all(self, _: aioweb.Request) -> aioweb.Response:
        return _json(SpeakerList(tuple(map(self._view, self._people.list_all()))))

    async def learn(self, request: aioweb.Request) -> aioweb.Response:
        return _json(await while_connected(request, self._learn(request)))

    async def recognise(self, request: aioweb.Request) -> aioweb.Response:
        return _json(await while_connected(request, self._recognise(request)))

    async def allow_learning(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), LearningRequest)
        return _json(LearningView(self._learning.allow(body.minutes)))

    async def edit(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), SpeakerEdit)
        person = self._people.find(request.match_info["id"])
        check_profile(body.profile.apply_to(person.profile), self._check)
        name = None if body.name is UNSET else body.name.strip()
        return _json(self._view(await self._people.edit(person.id, name, body.profile.apply_to)))

    async def set_telephone_numbers(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body(await request.read(), NumbersEdit)
        person_id, numbers = request.match_info["id"], body.telephone_numbers
        return _json(self._view(await self._people.set_telephone_numbers(person_id, numbers)))

    async def delete(self, request: aioweb.Request) -> aioweb.Response:
        await self._people.delete(request.match_info["id"])
        return aioweb.Response(status=HTTPStatus.NO_CONTENT)

    async def _learn(self, request: aioweb.Request) -> LearnedVoice:
        fields, pcm = await self._read(request, ("name",))
        name = fields.get("name", "").strip()
        if not name:
            raise RequestError(
                "The field 'name' is missing.", code="missing_required_parameter", param="name"
            )
        check_name(name)
        model, result = await self._recognition.listen(pcm, SpeakerPriority.ENROLMENT)
        vector, speech_ms = vector_of(result), result.quality.speech_ms
        if vector is None or speech_ms < MIN_ENROLMENT_MS:
            raise RequestError(
                f"the recording has {speech_ms / 1000:.1f} s of speech; a voice is learned from"
                f" {MIN_ENROLMENT_MS / 1000:.0f} s and more, best in three recordings",
                code="too_little_speech",
                param=FILE_FIELD,
            )
        person = await self._people.add(name, VoiceSample(model, vector, speech_ms))
        return LearnedVoice(self._view(person), _quality(result.quality))

    async def _recognise(self, request: aioweb.Request) -> TriedVoice:
        _, pcm = await self._read(request, ())
        key = CALLER_KEY.get()
        match, result = await self._recognition.compare(pcm, key, SpeakerPriority.ENROLMENT)
        heard = HeardSpeaker(match.id, match.name, match.score) if match else None
        return TriedVoice(heard, self._recognition.thresholds.known, _quality(result.quality))

    def _view(self, person: EnrolledSpeaker) -> SpeakerView:
        model = self._recognition.model_name
        return SpeakerView(
            person.id,
            person.name,
            len(person.samples),
            sum(sample.speech_ms for sample in person.samples),
            person.created,
            person.profile,
            person.telephone_numbers,
            must_teach_again=model is not None and not person.is_known_to(model),
        )

    async def _read(
        self, request: aioweb.Request, known: tuple[str, ...]
    ) -> tuple[dict[str, str], Pcm]:
        """Returns the fields of the form and the sound of its file. Raises RequestError."""
        with self._spools.open() as spool:
            form = await read_form(request, spool, lambda name: name in known)
            if form.other_fields:
                allowed = ", ".join((*known, FILE_FIELD))
                name = form.other_fields[0][0][:64]
                message = f"Unknown field {name!r}; allowed: {allowed}."
                raise RequestError(message, code="unknown_parameter", param=name)
            try:
                return dict(form.fields), await self._decode(spool)
            except RequestError as error:
                error.param = FILE_FIELD
                raise

    async def _decode(self, spool: UploadSpool) -> Pcm:
        """Returns the first MAX_AUDIO_S of the file."""
        pieces: list[Pcm] = []
        missing = MAX_AUDIO_S * ASR_RATE_HZ
        async with aclosing(self._decoder.blocks(await spool.file(), ASR_RATE_HZ)) as blocks:
            async for block in blocks:
                pieces.append(block[:missing])
                missing -= len(pieces[-1])
                if not missing:
                    break
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int16)


def speaker_routes(door: SpeakersDoor) -> tuple[Route, ...]:
    """Returns the routes. Each key has people of its own, so the scope is that of conversations."""
    return (*_voice_routes(door), *_person_routes(door))


def _voice_routes(door: SpeakersDoor) -> tuple[Route, ...]:
    """Returns the routes about all people, and their voices."""
    return (
        Route(
            "GET",
            "/v1/speakers",
            door.list_all,
            "List the people whose voices the key has taught the server.",
            _TAG,
            responses={200: SpeakerList},
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/speakers",
            door.learn,
            "Learn a person's voice from a recording. The recording is not kept.",
            _TAG,
            request=NewVoiceForm,
            request_content_types=(FORM,),
            max_body_bytes=MAX_BODY_BYTES,
            responses={200: LearnedVoice},
            error_codes=(
                *_UPLOAD_CODES,
                *("invalid_value", "key_not_found", "storage_failed", "too_little_speech"),
                *("too_many_samples", "too_many_speakers", "unknown_parameter"),
            ),
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/speakers/try",
            door.recognise,
            "Say whose voice a recording has. The recording is not kept.",
            _TAG,
            request=VoiceForm,
            request_content_types=(FORM,),
            max_body_bytes=MAX_BODY_BYTES,
            responses={200: TriedVoice},
            error_codes=(*_UPLOAD_CODES, "unknown_parameter"),
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/speakers/learning",
            door.allow_learning,
            "Let conversations of the key learn voices for some minutes: a language model then has"
            " the tool `learn_my_voice`.",
            _TAG,
            request=LearningRequest,
            responses={200: LearningView},
            error_codes=("invalid_json", "invalid_value"),
            scope="talk",
        ),
    )


def _person_routes(door: SpeakersDoor) -> tuple[Route, ...]:
    """Returns the routes about one person."""
    return (
        Route(
            "PATCH",
            "/v1/speakers/{id}",
            door.edit,
            "Change a person's name, and the settings of the answers to this person. Fields that"
            " are left out keep their values.",
            _TAG,
            request=SpeakerEdit,
            responses={200: SpeakerView},
            error_codes=(
                *("invalid_json", "invalid_value", *PROFILE_ERRORS),
                *("speaker_exists", "speaker_not_found", "storage_failed"),
            ),
            scope="talk",
        ),
        Route(
            "PUT",
            "/v1/speakers/{id}/telephone_numbers",
            door.set_telephone_numbers,
            "Replace the telephone numbers from which a person of the server's own key calls.",
            _TAG,
            request=NumbersEdit,
            responses={200: SpeakerView},
            error_codes=(
                *("forbidden", "invalid_json", "invalid_value", "number_exists"),
                *("speaker_not_found", "storage_failed"),
            ),
            scope="manage",
        ),
        Route(
            "DELETE",
            "/v1/speakers/{id}",
            door.delete,
            "Forget a person's voice, with everything that was computed of it.",
            _TAG,
            responses={204: None},
            error_codes=("speaker_not_found", "storage_failed"),
            scope="talk",
        ),
    )


def _quality(quality: VoiceQuality) -> QualityView:
    return QualityView(quality.speech_ms, quality.level_dbfs, quality.snr_db)


def _json(answer: object) -> aioweb.Response:
    headers = {"Cache-Control": "no-store"}
    return aioweb.Response(body=msgspec.json.encode(answer), content_type=JSON, headers=headers)
