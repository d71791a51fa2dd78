"""Voices made of recordings, in a real database: only their key has them, and deletion is final."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from core.access.named_key import CALLER_KEY
from core.audio import AudioFrame
from core.errors import Conflict, NotFound, RequestError
from devices.registry import own_voices as module
from devices.registry.database import open_database
from devices.registry.named_keys import NamedKeys
from devices.registry.own_voices import OwnVoiceTable
from engines.base import Tts
from pipeline.speech.own_voices import OWN_VOICES, OwnVoices, OwnVoicesTts
from pipeline.speech.voices import choose_voice, find_voices, list_voices
from tests.devices.registry.harness import Moment
from tests.pipeline.cloning import CloningVoice
from tests.pipeline.fakes import ToneTts

pytestmark = pytest.mark.live

CONDITION = b"what the engine made of Anna's recording"


def play(folder: Path, scene: Callable[[OwnVoiceTable, NamedKeys], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_database(f"sqlite:///{folder}/devices.db") as database:
            keys, voices = NamedKeys(database, Moment()), OwnVoiceTable(database, Moment())
            keys.on_revoked.append(voices.forget_owned)
            await voices.load()
            await scene(voices, keys)

    asyncio.run(main())


def test_a_voice_outlives_a_restart_and_its_deletion_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    gone = list[str]()

    async def make(voices: OwnVoiceTable, _: NamedKeys) -> None:
        await voices.add("anna", "en", "I agree", CONDITION)
        with pytest.raises(Conflict, match="there is a voice 'anna' already"):
            await voices.add("anna", "en", "I agree", CONDITION)

    async def delete(voices: OwnVoiceTable, _: NamedKeys) -> None:
        voices.on_gone.append(gone.append)
        (anna,) = voices.list_all()
        assert (anna.name, anna.language, anna.consent) == ("anna", "en", "I agree")
        assert anna.created == Moment().wall()
        assert await voices.condition(anna) == CONDITION
        await voices.delete("anna")
        assert gone == [anna.id]
        assert voices.list_all() == ()
        for lost in (voices.delete("anna"), voices.condition(anna)):
            with pytest.raises(NotFound, match="the key has no voice 'anna'"):
                await lost

    play(tmp_path, make)
    play(tmp_path, delete)
    with sqlite3.connect(tmp_path / "devices.db") as database:
        assert database.execute("SELECT count(*) FROM own_voices").fetchone() == (0,)
    for file in tmp_path.iterdir():
        assert CONDITION not in file.read_bytes()
    assert "anna" not in caplog.text.lower()


def test_each_key_has_voices_of_its_own_which_go_with_it(tmp_path: Path) -> None:
    gone = list[str]()

    async def scene(voices: OwnVoiceTable, keys: NamedKeys) -> None:
        voices.on_gone.append(gone.append)
        await voices.add("anna", "en", "", b"1")
        record, _ = await keys.add("ben", ["talk"])
        CALLER_KEY.set(record.key)
        mine = await voices.add("anna", "en", "", b"2")
        assert await voices.condition(voices.find("anna")) == b"2"
        CALLER_KEY.set(None)
        assert await voices.condition(voices.find("anna")) == b"1"
        await keys.revoke("ben")
        assert gone == [mine.id]
        await voices.load()
        assert [voice.name for voice in voices.list_all()] == ["anna"]
        CALLER_KEY.set(record.key)
        assert voices.list_all() == ()
        with pytest.raises(NotFound, match="the key was revoked"):
            await voices.add("anna", "en", "", b"3")

    play(tmp_path, scene)


def test_voices_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VOICES", 1)

    async def scene(voices: OwnVoiceTable, _: NamedKeys) -> None:
        await voices.add("anna", "en", "", b"")
        with pytest.raises(Conflict, match="the key has 1 voices, the limit"):
            await voices.add("ben", "en", "", b"")

    play(tmp_path, scene)


async def _spoken(tts: Tts, voice: str) -> list[AudioFrame]:
    async def text() -> Any:
        yield "Good morning. "
        yield "How are you?"

    return [frame async for frame in tts.speak(text(), language="en", voice=voice)]


def test_all_doors_see_the_voices_of_the_caller_as_an_engine(tmp_path: Path) -> None:
    async def scene(voices: OwnVoiceTable, keys: NamedKeys) -> None:
        fake = CloningVoice()
        own = OwnVoicesTts(cast("Any", fake), voices)
        OwnVoices(cast("Any", fake), voices)
        engines: dict[str, Tts] = {"tone": ToneTts(), OWN_VOICES: own}
        await voices.add("anna", "en", "", b"7")
        assert [voice.id for voice in list_voices(engines) if voice.engine == OWN_VOICES] == [
            "own/anna"
        ]
        choice = choose_voice(engines, "en", "own/anna")
        frames = await _spoken(choice.tts, choice.voice)
        assert [frame.start for frame in frames] == [0, 2400]
        assert {int(np.max(frame.pcm)) for frame in frames} == {7}
        assert choose_voice(engines, "de", "own/anna").engine == "tone"
        record, _ = await keys.add("ben", ["talk"])
        CALLER_KEY.set(record.key)
        assert not find_voices(engines, "own/anna")
        with pytest.raises(RequestError, match="no voice 'own/anna'"):
            choose_voice(engines, "en", "own/anna")
        with pytest.raises(RequestError):
            await _spoken(own, "anna")
        CALLER_KEY.set(None)
        assert fake.held
        await voices.delete("anna")
        assert not fake.held

    play(tmp_path, scene)


def test_a_voice_that_is_deleted_while_it_speaks_is_not_held_again(tmp_path: Path) -> None:
    async def scene(voices: OwnVoiceTable, _: NamedKeys) -> None:
        fake = CloningVoice()
        own = OwnVoicesTts(cast("Any", fake), voices)
        OwnVoices(cast("Any", fake), voices)
        anna = await voices.add("anna", "en", "", b"7")

        async def text() -> Any:
            yield "Good morning."

        async for _frame in own.speak(text(), language="en", voice="anna"):
            await voices.delete("anna")
            fake.held[anna.id] = b"7"  # as if its condition had been on the way
        assert not fake.held

    play(tmp_path, scene)
