"""People who have taught the server their voices, in the database of the devices.

A voice is kept as vectors, one for each recording; the recordings themselves are not kept. Each
person belongs to the named key of the request, or to the server's owner, whose people the devices
of the house know, too. All vectors are in memory, so that a turn costs no query.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from core.access.named_key import CALLER_KEY, NamedKey
from core.conversation.ids import new_id
from core.conversation.speakers import HeardVoice, SpeakerProfile, VoiceVector, mean_vector
from core.errors import Conflict, Forbidden, NotFound, RequestError, StorageError
from core.ports import Clock
from devices.fleet.directory import CallingPerson, PersonProfile
from devices.registry.database import Database
from devices.registry.kept_conversations import check_key
from devices.registry.queries import known_profile
from devices.registry.tables import speakers, telephone_numbers, voice_samples
from devices.telephone.number import telephone_number
from pipeline.shared.settings import SessionSettings

logger = logging.getLogger(__name__)

MAX_SPEAKERS = 50
"Most people of one key: a house, not a crowd, in which some would have almost the same voice."

MAX_NUMBERS = 5
"Most telephone numbers of one person: at home, mobile, at work, and some that are old."

MAX_SAMPLES = 20
"Most recordings of one person. More of them change the mean no longer."

MAX_FOLLOWED = 5
"""Most recordings of a person that the server added by itself. They are never more than those that
the person taught, so that the voice cannot become that of somebody else."""

FOLLOW_INTERVAL = timedelta(hours=6)
"Least time between two of them: a voice changes in months."

MIN_ENROLMENT_MS = 2000
"""Shortest speech from which a voice is learned. A vector of less is that of a few sounds rather
than of a voice."""

NAME_PATTERN = r"\w[\w .'-]{0,39}"
"Names are read by a language model and stand in log lines: letters of any language, in one line."

RELOAD_S = 60.0
"""Interval at which people are read again, in seconds: another server may have added or deleted
one."""

OWNER = ""
"Owner of the people of the server's own key and of its devices."


@dataclass(frozen=True, slots=True)
class VoiceSample:
    """One recording of a person, of which only the vector is kept."""

    model: str
    "Name of the model that made the vector."
    vector: VoiceVector = field(repr=False)
    speech_ms: int
    "Length of the speech in the recording."
    is_followed: bool = False
    "Whether the server added it by itself."


@dataclass(frozen=True, slots=True)
class EnrolledSpeaker:
    """A person whose voice the server knows."""

    id: str
    name: str
    created: datetime
    samples: tuple[VoiceSample, ...]
    "At least one."
    profile: PersonProfile
    followed: datetime | None = None
    "Time when the server last added a recording by itself."
    telephone_numbers: tuple[str, ...] = field(default=(), repr=False)
    "Numbers from which the person calls, in the form of E.164."

    def is_known_to(self, model: str) -> bool:
        """Returns whether a recording of the person was learned by this model."""
        return any(sample.model == model for sample in self.samples)

    def voice(self, model: str, *, taught_only: bool = False) -> SpeakerProfile | None:
        """Returns the person's voice as this model hears it; None if it never heard it.
        `taught_only`: without the recordings that the server added by itself."""
        vectors = [
            sample.vector
            for sample in self.samples
            if sample.model == model and not (taught_only and sample.is_followed)
        ]
        # A folder may hold another network by now, whose vectors have another length.
        same = [vector for vector in vectors if vector.shape == vectors[-1].shape]
        return SpeakerProfile(self.id, self.name, mean_vector(same)) if same else None


class EnrolledSpeakers:
    """All people whose voices the server knows. `add`, `list_all`, `find`, `edit` and `delete` are
    about those of the owner that `CALLER_KEY` names. `run` must be active while the server is
    up."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._people: Mapping[str, tuple[EnrolledSpeaker, ...]] = {}
        "Owner -> people by name."

    def count_people(self, key: NamedKey | None, model: str) -> int:
        """Returns the number of people whom the sessions of a key know by `model`. `key`: see
        `profiles`."""
        people = self._people.get(OWNER if key is None else key.id, ())
        return sum(person.is_known_to(model) for person in people)

    def profiles(
        self, key: NamedKey | None, model: str, *, taught_only: bool = False
    ) -> Sequence[SpeakerProfile]:
        """Returns the voices that the sessions of a key know, as `model` hears them. `key`: None
        for the owner's key and for devices. `taught_only`: without the recordings that the server
        added by itself."""
        people = self._people.get(OWNER if key is None else key.id, ())
        voices = (person.voice(model, taught_only=taught_only) for person in people)
        return [voice for voice in voices if voice is not None]

    def apply_profile(self, speaker_id: str, settings: SessionSettings) -> SessionSettings:
        """Returns the settings for answers to a person. Without a profile, and for a person who was
        deleted meanwhile, they are `settings`."""
        return self._profile(speaker_id).apply_to(settings)

    def volume_of(self, speaker_id: str) -> int | None:
        """Returns the volume that a person wants; None: that of the device."""
        return self._profile(speaker_id).volume

    def _profile(self, speaker_id: str) -> PersonProfile:
        person = self._person(speaker_id)
        return PersonProfile() if person is None else person.profile

    def _person(self, speaker_id: str) -> EnrolledSpeaker | None:
        everybody = (person for people in self._people.values() for person in people)
        return next((person for person in everybody if person.id == speaker_id), None)

    def person_with_number(self, number: str) -> CallingPerson | None:
        """Returns the owner's person with this telephone number, in the form of E.164."""
        for person in self._people.get(OWNER, ()):
            if number in person.telephone_numbers:
                language = person.profile.language
                return CallingPerson(id=person.id, name=person.name, language=language)
        return None

    def wants_sample(self, speaker_id: str) -> bool:
        """Returns whether the server follows the voice of this person, and a new recording is
        due."""
        person = self._person(speaker_id)
        if person is None or not person.profile.follow_voice:
            return False
        return person.followed is None or self._clock.wall() >= person.followed + FOLLOW_INTERVAL

    async def follow(self, speaker_id: str, voice: HeardVoice) -> None:
        """Adds a recording to those of a person whose voice the server follows, in place of the
        oldest such recording if there are as many as there may be. Does nothing if the person no
        longer wants it. Raises StorageError."""
        now = self._clock.wall()

        def work(connection: Connection) -> None:
            found = select(speakers).where(speakers.c.id == speaker_id).with_for_update()
            row = connection.execute(found).one_or_none()
            if row is None or not _profile(row).follow_voice:
                return
            sample = VoiceSample(voice.model, voice.vector, voice.speech_ms, is_followed=True)
            connection.execute(insert(voice_samples).values(_row(speaker_id, sample, now)))
            listed = select(voice_samples.c.id, voice_samples.c.is_followed).where(
                voice_samples.c.speaker_id == speaker_id
            )
            rows = connection.execute(listed.order_by(voice_samples.c.added.desc())).all()
            followed = [one.id for one in rows if one.is_followed]
            most = min(MAX_FOLLOWED, len(rows) - len(followed))
            connection.execute(delete(voice_samples).where(voice_samples.c.id.in_(followed[most:])))

        await self._database.run(work)
        await self.load()
        logger.info("= a recording of a known voice was added: %s", speaker_id)

    def list_all(self) -> Sequence[EnrolledSpeaker]:
        """Returns the caller's people by name."""
        return self._people.get(caller_of(), ())

    async def add(self, name: str, sample: VoiceSample) -> EnrolledSpeaker:
        """Adds a recording of a person, who is new if no person has this name yet.

        Raises RequestError for a wrong name, Conflict too_many_speakers or too_many_samples,
        NotFound key_not_found, StorageError.
        """
        check_name(name)
        owner, now = caller_of(), self._clock.wall()

        def work(connection: Connection) -> str:
            check_key(connection, owner)
            is_mine = speakers.c.owner == owner
            found = select(speakers.c.id).where(is_mine & (speakers.c.name == name))
            speaker_id: str | None = connection.execute(found).scalar_one_or_none()
            if speaker_id is None:
                _check_count(connection, is_mine)
                speaker_id = new_id("spk")
                row = {"id": speaker_id, "owner": owner, "name": name, "created": now}
                row["profile"] = {}
                connection.execute(insert(speakers).values(row))
            taught = (voice_samples.c.speaker_id == speaker_id) & ~voice_samples.c.is_followed
            counted = select(func.count()).select_from(voice_samples).where(taught)
            count = connection.execute(counted).scalar_one()
            if count >= MAX_SAMPLES:
                raise Conflict(
                    f"there are {count} recordings of {name!r}, the limit: delete the person, and"
                    " begin again",
                    code="too_many_samples",
                )
            connection.execute(insert(voice_samples).values(_row(speaker_id, sample, now)))
            return speaker_id

        speaker_id = await self._database.run(work)
        await self.load()
        logger.info("= a voice was learned: %s", speaker_id)
        return self.find(speaker_id)

    def find(self, speaker_id: str) -> EnrolledSpeaker:
        """Returns a person of the caller. Raises NotFound speaker_not_found."""
        for person in self.list_all():
            if person.id == speaker_id:
                return person
        raise _not_found(speaker_id)

    async def edit(
        self,
        speaker_id: str,
        name: str | None = None,
        change: Callable[[PersonProfile], PersonProfile] = lambda profile: profile,
    ) -> EnrolledSpeaker:
        """Changes a person of the caller. `name`: None leaves it. `change` maps the old profile to
        the new one, which holds from the person's next utterance on.

        Raises RequestError for a wrong name, NotFound speaker_not_found, Conflict speaker_exists,
        StorageError.
        """
        if name is not None:
            check_name(name)
        is_mine = speakers.c.owner == caller_of()

        def work(connection: Connection) -> None:
            where = is_mine & (speakers.c.id == speaker_id)
            found = connection.execute(select(speakers).where(where).with_for_update())
            if (row := found.one_or_none()) is None:
                raise _not_found(speaker_id)
            new_name = row.name if name is None else name
            same_name = is_mine & (speakers.c.name == new_name) & (speakers.c.id != speaker_id)
            if connection.execute(select(speakers.c.id).where(same_name)).first() is not None:
                raise Conflict(
                    f"there is a person {new_name!r} already: choose another name",
                    code="speaker_exists",
                    param="name",
                )
            profile = msgspec.to_builtins(change(_profile(row)))
            connection.execute(update(speakers).where(where).values(name=new_name, profile=profile))

        await self._database.run(work)
        await self.load()
        return self.find(speaker_id)

    async def set_telephone_numbers(
        self, speaker_id: str, numbers: Sequence[str]
    ) -> EnrolledSpeaker:
        """Replaces the telephone numbers of a person of the owner. Calls belong to the owner, so
        they do not know the people of named keys.

        Raises RequestError for what is no number and for too many, Forbidden for a person of a
        named key, NotFound speaker_not_found, Conflict number_exists, StorageError.
        """
        if caller_of() != OWNER:
            raise Forbidden(
                "only people of the server's own key can have telephone numbers: calls do not know"
                " those of a named key"
            )
        wanted = tuple(dict.fromkeys(map(telephone_number, numbers)))
        if len(wanted) > MAX_NUMBERS:
            raise RequestError(
                f"{len(wanted)} telephone numbers, at most {MAX_NUMBERS} are allowed",
                code="invalid_value",
                param="telephone_numbers",
            )

        def work(connection: Connection) -> None:
            is_person = (speakers.c.owner == OWNER) & (speakers.c.id == speaker_id)
            if connection.execute(select(speakers.c.id).where(is_person)).first() is None:
                raise _not_found(speaker_id)
            is_theirs = telephone_numbers.c.speaker_id == speaker_id
            connection.execute(delete(telephone_numbers).where(is_theirs))
            taken = select(speakers.c.name, telephone_numbers.c.number).join(telephone_numbers)
            found = connection.execute(taken.where(telephone_numbers.c.number.in_(wanted))).first()
            if found is not None:
                raise Conflict(
                    f"{found.number} is a number of {found.name!r} already",
                    code="number_exists",
                    param="telephone_numbers",
                )
            if wanted:
                rows = [{"number": one, "speaker_id": speaker_id} for one in wanted]
                connection.execute(insert(telephone_numbers), rows)

        await self._database.run(work)
        await self.load()
        return self.find(speaker_id)

    async def delete(self, speaker_id: str) -> None:
        """Deletes a person of the caller with all vectors. Raises NotFound speaker_not_found,
        StorageError."""
        where = (speakers.c.owner == caller_of()) & (speakers.c.id == speaker_id)
        count = await self._database.run(
            lambda connection: connection.execute(delete(speakers).where(where)).rowcount
        )
        if not count:
            raise _not_found(speaker_id)
        await self.load()
        logger.info("= a voice was forgotten: %s", speaker_id)

    def forget_owned(self, key: NamedKey) -> None:
        """Drops the people of a key that was revoked. The database has deleted them already."""
        self._people = {owner: them for owner, them in self._people.items() if owner != key.id}

    async def load(self) -> None:
        """Reads all people, in place of those in memory. Raises StorageError."""
        self._people = await self._database.run(_read_all)

    async def run(self) -> None:
        """Follows changes by other servers, until cancelled."""
        while True:
            with suppress(StorageError):  # the database logs it, and the next try comes
                await self.load()
            await asyncio.sleep(RELOAD_S)


def check_name(name: str) -> None:
    """Raises RequestError for a name that a person cannot have here."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise RequestError(
            f"{name[:64]!r} is no name for a person: 1 to 40 letters, digits, spaces or . ' _ -,"
            " with a letter or a digit first",
            code="invalid_value",
            param="name",
        )


def _read_all(connection: Connection) -> Mapping[str, tuple[EnrolledSpeaker, ...]]:
    samples: dict[str, list[VoiceSample]] = {}
    followed: dict[str, datetime] = {}
    for row in connection.execute(select(voice_samples).order_by(voice_samples.c.added)):
        vector = np.frombuffer(row.vector, "<f4").astype(np.float32)
        sample = VoiceSample(row.model, vector, row.speech_ms, row.is_followed)
        if row.is_followed:
            followed[row.speaker_id] = row.added
        samples.setdefault(row.speaker_id, []).append(sample)
    numbers: dict[str, tuple[str, ...]] = {}
    for row in connection.execute(select(telephone_numbers).order_by(telephone_numbers.c.number)):
        numbers[row.speaker_id] = (*numbers.get(row.speaker_id, ()), row.number)
    people: dict[str, tuple[EnrolledSpeaker, ...]] = {}
    for row in connection.execute(select(speakers).order_by(speakers.c.name)):
        heard = tuple(samples.get(row.id, ()))
        profile, last = _profile(row), followed.get(row.id)
        person = EnrolledSpeaker(
            row.id, row.name, row.created, heard, profile, last, numbers.get(row.id, ())
        )
        people[row.owner] = (*people.get(row.owner, ()), person)
    return people


def _profile(row: Row[Any]) -> PersonProfile:
    return known_profile(row.profile, PersonProfile, f"person {row.id}")


def _check_count(connection: Connection, is_mine: ColumnElement[bool]) -> None:
    """Raises Conflict too_many_speakers if the key knows as many people as it may."""
    counted = select(func.count()).select_from(speakers).where(is_mine)
    count = connection.execute(counted).scalar_one()
    if count >= MAX_SPEAKERS:
        raise Conflict(
            f"the key knows {count} people, the limit: delete one first", code="too_many_speakers"
        )


def _row(speaker_id: str, sample: VoiceSample, now: datetime) -> Mapping[str, object]:
    return {
        "id": new_id("voice"),
        "speaker_id": speaker_id,
        "model": sample.model,
        "vector": sample.vector.astype("<f4").tobytes(),
        "speech_ms": sample.speech_ms,
        "added": now,
        "is_followed": sample.is_followed,
    }


def caller_of() -> str:
    """Returns the owner of the people whom the running task reaches."""
    key = CALLER_KEY.get()
    return OWNER if key is None else key.id


def _not_found(speaker_id: str) -> NotFound:
    return NotFound(f"no person has the id {speaker_id[:64]!r}", code="speaker_not_found")
