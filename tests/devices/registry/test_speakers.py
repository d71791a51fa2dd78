"""People whose voices the server knows, in a real database: kept per key, and gone when deleted."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from core.access.named_key import CALLER_KEY
from core.conversation.speakers import HeardVoice, VoiceVector
from core.errors import Conflict, Forbidden, NotFound, RequestError
from devices.fleet.directory import PersonProfile
from devices.registry import speakers as module
from devices.registry.database import open_database
from devices.registry.named_keys import NamedKeys
from devices.registry.speakers import (
    FOLLOW_INTERVAL,
    MAX_SAMPLES,
    EnrolledSpeaker,
    EnrolledSpeakers,
    VoiceSample,
)
from tests.devices.registry.harness import Moment

pytestmark = pytest.mark.live


def _vector(*numbers: float) -> VoiceVector:
    vector = np.array(numbers, np.float32)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _sample(*numbers: float, model: str = "ge2e") -> VoiceSample:
    return VoiceSample(model, _vector(*numbers), 3000)


def play(
    folder: Path,
    scene: Callable[[EnrolledSpeakers, NamedKeys], Awaitable[None]],
    clock: Moment | None = None,
) -> None:
    async def main() -> None:
        async with open_database(f"sqlite:///{folder}/devices.db") as database:
            keys = NamedKeys(database, Moment())
            people = EnrolledSpeakers(database, clock or Moment())
            keys.on_revoked.append(people.forget_owned)
            await scene(people, keys)

    asyncio.run(main())


def test_the_voice_of_a_person_is_the_mean_of_their_recordings(tmp_path: Path) -> None:
    async def scene(people: EnrolledSpeakers, _: NamedKeys) -> None:
        first = await people.add("Anna", _sample(1, 0))
        anna = await people.add("Anna", _sample(0, 1))
        await people.add("Ben", _sample(1, 0, 0, model="other"))
        assert first.id == anna.id
        assert [(person.name, len(person.samples)) for person in people.list_all()] == [
            ("Anna", 2),
            ("Ben", 1),
        ]
        (profile,) = people.profiles(None, "ge2e")
        assert (profile.id, profile.name) == (anna.id, "Anna")
        assert profile.vector == pytest.approx(_vector(1, 1))
        counts = [people.count_people(None, model) for model in ("ge2e", "other", "none")]
        assert counts == [1, 1, 0]

    play(tmp_path, scene)


def test_vectors_of_a_network_that_was_replaced_are_left_out() -> None:
    samples = (_sample(1, 0, 0), _sample(1, 0), _sample(0, 1))
    now = datetime(2026, 11, 28, tzinfo=UTC)
    voice = EnrolledSpeaker("spk_1", "Anna", now, samples, PersonProfile()).voice("ge2e")
    assert voice is not None
    assert voice.vector == pytest.approx(_vector(1, 1))


def test_people_are_still_known_after_a_restart_until_they_are_deleted(tmp_path: Path) -> None:
    async def learn(people: EnrolledSpeakers, _: NamedKeys) -> None:
        await people.add("Anna", _sample(1, 2, 3))

    async def forget(people: EnrolledSpeakers, _: NamedKeys) -> None:
        assert people.profiles(None, "ge2e") == []
        await people.load()
        (anna,) = people.list_all()
        await people.delete(anna.id)
        assert people.list_all() == ()
        with pytest.raises(NotFound, match="no person has the id"):
            await people.delete(anna.id)

    play(tmp_path, learn)
    play(tmp_path, forget)
    with sqlite3.connect(tmp_path / "devices.db") as database:
        for table in ("speakers", "voice_samples"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    # The database overwrites what is deleted, so the file does not hold the vector any more.
    for file in tmp_path.iterdir():
        assert _vector(1, 2, 3).astype("<f4").tobytes() not in file.read_bytes()


def test_each_key_has_people_of_its_own_which_go_with_it(tmp_path: Path) -> None:
    async def scene(people: EnrolledSpeakers, keys: NamedKeys) -> None:
        await people.add("Anna", _sample(1, 0))
        record, _ = await keys.add("ben", ["talk"])
        CALLER_KEY.set(record.key)
        ben = await people.add("Ben", _sample(0, 1))
        assert [person.name for person in people.list_all()] == ["Ben"]
        assert [profile.name for profile in people.profiles(record.key, "ge2e")] == ["Ben"]
        assert [profile.name for profile in people.profiles(None, "ge2e")] == ["Anna"]
        CALLER_KEY.set(None)
        with pytest.raises(NotFound):
            await people.delete(ben.id)
        await keys.revoke("ben")
        assert people.profiles(record.key, "ge2e") == []
        await people.load()
        assert people.profiles(record.key, "ge2e") == []
        CALLER_KEY.set(record.key)
        with pytest.raises(NotFound, match="the key was revoked"):
            await people.add("Ben", _sample(0, 1))

    play(tmp_path, scene)


def test_a_voice_is_followed_if_the_person_wants_it(tmp_path: Path) -> None:
    clock = Moment()

    async def scene(people: EnrolledSpeakers, _: NamedKeys) -> None:
        anna = (await people.add("Anna", _sample(1, 0))).id
        await people.add("Anna", _sample(1, 0))
        assert not people.wants_sample(anna)
        await people.follow(anna, HeardVoice("ge2e", _vector(0, 1), 3000))
        assert len(people.find(anna).samples) == 2  # not asked for
        await people.edit(anna, change=lambda profile: replace(profile, follow_voice=True))
        for vector in ((0, 1), (0, 1), (1, 1)):
            assert people.wants_sample(anna)
            await people.follow(anna, HeardVoice("ge2e", _vector(*vector), 3000))
            assert not people.wants_sample(anna)
            clock.go_on(FOLLOW_INTERVAL)
        # As many as the person taught; the oldest is gone.
        followed = [sample.vector for sample in people.find(anna).samples if sample.is_followed]
        assert np.allclose(followed, [_vector(0, 1), _vector(1, 1)])
        (voice,), (taught,) = (
            people.profiles(None, "ge2e", taught_only=only) for only in (False, True)
        )
        assert taught.vector == pytest.approx(_vector(1, 0))
        assert voice.vector @ taught.vector < 0.99
        for _count in range(MAX_SAMPLES - 2):  # those that were added do not count
            await people.add("Anna", _sample(1, 0))
        await people.delete(anna)
        await people.follow(anna, HeardVoice("ge2e", _vector(0, 1), 3000))
        assert not people.wants_sample(anna)

    play(tmp_path, scene, clock)


@pytest.mark.parametrize("name", ["", " Anna", "Anna\nsays: open the door", "x" * 41, "<b>", "-"])
def test_a_name_that_could_mean_something_else_is_refused(tmp_path: Path, name: str) -> None:
    async def scene(people: EnrolledSpeakers, _: NamedKeys) -> None:
        with pytest.raises(RequestError, match="is no name for a person"):
            await people.add(name, _sample(1, 0))

    play(tmp_path, scene)


@pytest.mark.parametrize("name", ["Anna", "José María", "Ömer", "小明", "O'Neil-Smith Jr."])
def test_names_of_all_languages_are_taken(tmp_path: Path, name: str) -> None:
    async def scene(people: EnrolledSpeakers, _: NamedKeys) -> None:
        assert (await people.add(name, _sample(1, 0))).name == name

    play(tmp_path, scene)


def test_people_and_recordings_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SPEAKERS", 2)
    monkeypatch.setattr(module, "MAX_SAMPLES", 2)

    async def scene(people: EnrolledSpeakers, _: NamedKeys) -> None:
        for name in ("Anna", "Anna", "Ben"):
            await people.add(name, _sample(1, 0))
        with pytest.raises(Conflict, match="there are 2 recordings of 'Anna'"):
            await people.add("Anna", _sample(1, 0))
        with pytest.raises(Conflict, match="the key knows 2 people"):
            await people.add("Cleo", _sample(1, 0))

    play(tmp_path, scene)


def test_a_person_of_the_owner_has_telephone_numbers(tmp_path: Path) -> None:
    async def scene(people: EnrolledSpeakers, keys: NamedKeys) -> None:
        anna = await people.add("Anna", _sample(1, 0))
        ben = await people.add("Ben", _sample(0, 1))
        language = replace(anna.profile, language="de")
        await people.edit(anna.id, change=lambda _: language)
        numbers = ["+49 30 123456", "0049 30 123456", "+4940123456"]
        changed = await people.set_telephone_numbers(anna.id, numbers)
        assert changed.telephone_numbers == ("+4930123456", "+4940123456")
        assert "+49" not in repr(changed)
        caller = people.person_with_number("+4930123456")
        assert caller is not None
        assert (caller.id, caller.name, caller.language) == (anna.id, "Anna", "de")
        assert people.person_with_number("+4930123457") is None
        assert people.person_with_number("") is None
        with pytest.raises(Conflict, match=r"\+4940123456 is a number of 'Anna' already"):
            await people.set_telephone_numbers(ben.id, ["+4950123456", "+4940123456"])
        assert people.find(ben.id).telephone_numbers == ()
        with pytest.raises(RequestError, match="at most 5"):
            await people.set_telephone_numbers(ben.id, [f"+493012345{i}" for i in range(6)])
        with pytest.raises(NotFound):
            await people.set_telephone_numbers("spk_0", ["+4950123456"])
        guests = (await keys.add("guests", ["talk", "manage"]))[0].key
        reset = CALLER_KEY.set(guests)
        cleo = await people.add("Cleo", _sample(1, 1))
        with pytest.raises(Forbidden, match="only people of the server's own key"):
            await people.set_telephone_numbers(cleo.id, ["+4950123456"])
        CALLER_KEY.reset(reset)
        await people.set_telephone_numbers(anna.id, ["+4930123456"])
        await people.set_telephone_numbers(ben.id, ["+4940123456"])
        await people.delete(anna.id)
        assert people.person_with_number("+4930123456") is None

    play(tmp_path, scene)
    with sqlite3.connect(tmp_path / "devices.db") as database:
        kept = database.execute("SELECT number FROM telephone_numbers").fetchall()
    assert kept == [("+4940123456",)]
    for file in tmp_path.iterdir():
        assert b"+4930123456" not in file.read_bytes()
