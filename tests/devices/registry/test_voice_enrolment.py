"""Voices that are learned in a conversation, while somebody allowed it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.access.named_key import CALLER_KEY, NamedKey
from core.conversation.speakers import HeardVoice, SpeakerMatch
from core.errors import RequestError
from core.ports import SpeakerConfirmation, ToolContext, ToolOutcome
from devices.registry.database import open_database
from devices.registry.speakers import EnrolledSpeakers, VoiceSample
from devices.registry.voice_enrolment import LEARN, RECORDINGS, VoiceEnrolment, all_sentences
from tests.devices.registry.harness import Moment

pytestmark = pytest.mark.live

VECTOR = np.array([1, 0], np.float32)


def spoken(
    speech_ms: int | None = 3000, *, speaker: SpeakerMatch | None = None, language: str = "en"
) -> ToolContext:
    """Returns the context of a turn with so much speech; None: written words."""

    async def hear() -> HeardVoice | None:
        return None if speech_ms is None else HeardVoice("ge2e", VECTOR, speech_ms)

    async def confirm() -> SpeakerConfirmation:
        return SpeakerConfirmation(speaker, is_owners=True)

    return ToolContext("conv_1", language, confirm_speaker=confirm, hear_voice=hear)


class Scene:
    def __init__(self, people: EnrolledSpeakers, clock: Moment) -> None:
        self.people, self.clock = people, clock
        self.learning = VoiceEnrolment(people, clock)

    async def learn(self, name: str = "Anna", context: ToolContext | None = None) -> ToolOutcome:
        return await self.learning.call(LEARN, {"name": name}, context or spoken())


def play(folder: Path, act: Callable[[Scene], Awaitable[Any]]) -> None:
    async def main() -> None:
        clock = Moment()
        async with open_database(f"sqlite:///{folder}/devices.db") as database:
            await act(Scene(EnrolledSpeakers(database, clock), clock))

    asyncio.run(main())


def test_a_voice_is_learned_from_the_sentences_that_the_user_reads(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.learning.allow(5)
        assert [spec.name for spec in scene.learning.tools(spoken())] == [LEARN]
        first = await scene.learn(context=spoken(600, language="de"))  # "Lerne meine Stimme!"
        assert first.data == {
            "read_aloud": all_sentences()["de"][0],
            "sentences_left": RECORDINGS,
        }
        for left in range(RECORDINGS - 1, 0, -1):
            assert (await scene.learn()).data["sentences_left"] == left
        assert (await scene.learn("anna")).data == {"learned": True, "name": "Anna"}
        (anna,) = scene.people.list_all()
        assert (anna.name, len(anna.samples)) == ("Anna", RECORDINGS)

    play(tmp_path, act)


def test_nothing_is_learned_before_it_is_allowed_nor_after_the_time(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        assert scene.learning.tools(spoken()) == ()
        assert (await scene.learn()).error == "not_allowed"
        scene.learning.allow(5)
        scene.clock.at += timedelta(minutes=5)
        assert scene.learning.tools(spoken()) == ()
        assert (await scene.learn()).error == "not_allowed"
        scene.learning.allow(5)
        scene.learning.allow(0)
        assert (await scene.learn()).error == "not_allowed"
        scene.learning.allow(5)
        CALLER_KEY.set(NamedKey("key_1", "ben", ("talk",)))
        assert scene.learning.tools(spoken()) == ()  # another key's permission
        assert scene.people.list_all() == ()

    play(tmp_path, act)


def test_nobody_becomes_a_person_whose_voice_is_known(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        anna = await scene.people.add("Anna", VoiceSample("ge2e", VECTOR, 3000))
        scene.learning.allow(5)
        assert (await scene.learn()).error == "name_taken"
        ben = SpeakerMatch("spk_0", "Anna", 0.9)
        assert (await scene.learn("ANNA", spoken(speaker=ben))).error == "name_taken"
        herself = spoken(speaker=SpeakerMatch(anna.id, "Anna", 0.9))
        assert (await scene.learn(context=herself)).error is None
        (known,) = scene.people.list_all()
        assert len(known.samples) == 2

    play(tmp_path, act)


def test_written_words_and_wrong_names_teach_no_voice(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.learning.allow(5)
        assert "read_aloud" in (await scene.learn(context=spoken(None))).data
        with pytest.raises(RequestError, match="no name for a person"):
            await scene.learn("<b>")
        assert scene.people.list_all() == ()

    play(tmp_path, act)


def test_there_are_sentences_for_all_recordings() -> None:
    assert {len(sentences) for sentences in all_sentences().values()} == {RECORDINGS}
