"""Texts to sound files, in virtual time; the tests of the APIs test the file formats."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from core.audio import AudioFrame
from core.errors import EngineError, NotFound, OverloadedError, RequestError
from engines.base import TtsInfo
from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFileOptions, SpeechFiles, single_text
from pipeline.speech.requested_text import RequestedText
from tests.loop import run_virtual
from tests.pipeline.fakes import LoudVads, ToneTts

ENGLISH = SpeechFileOptions("en")


def reader(tts: ToneTts, max_parallel: int = 4) -> SpeechFiles:
    engines = EngineSet(LoudVads(), {}, {}, {"default": tts, "tone": tts})
    return SpeechFiles(engines, max_parallel=max_parallel)


class SilentTts(ToneTts):
    """A voice that keeps the clauses that it gets and makes no sound."""

    def __init__(self) -> None:
        super().__init__()
        self.clauses: list[str] = []

    async def speak(self, text: AsyncIterable[str], **_: Any) -> AsyncGenerator[AudioFrame, None]:
        async for clause in text:
            self.clauses.append(clause)
        nothing: tuple[AudioFrame, ...] = ()
        for frame in nothing:
            yield frame


async def clauses_of(text: str) -> list[str]:
    tts = SilentTts()
    sound = reader(tts).file(single_text(text), ENGLISH, "pcm", 16_000)
    assert [chunk async for chunk in sound.chunks()] == []
    return tts.clauses


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Hello there. It is 3.5 degrees.", ["Hello there.", "It is 3.5 degrees."]),
        ("**Bold** words, and [a link](https://x.example/y).", ["Bold words,", "and a link."]),
        ("```\nx = 1\n```", []),
        ("  \n ", []),
        ("", []),
    ],
)
def test_a_text_is_split_and_normalized_as_in_a_conversation(text: str, read: list[str]) -> None:
    assert run_and_get(clauses_of(text)) == read


def test_a_long_text_is_read_whole() -> None:
    text = " ".join(f"This is sentence number {number} of many." for number in range(100))
    assert " ".join(run_and_get(clauses_of(text))) == text


def run_and_get(work: object) -> list[str]:
    got: list[str] = []

    async def main() -> None:
        assert asyncio.iscoroutine(work)
        got.extend(await work)

    run_virtual(main())
    return got


def test_sound_comes_in_chunks() -> None:
    async def main() -> None:
        sound = reader(ToneTts()).file(single_text("Hello there. And you?"), ENGLISH, "pcm", 16_000)
        assert sound.content_type == "audio/pcm"
        chunks = [chunk async for chunk in sound.chunks()]
        assert len(chunks) > 10
        assert len(np.frombuffer(b"".join(chunks), "<i2")) == 2 * 16_000
        assert sound.audio_ms == 2000

    run_virtual(main())


def test_a_text_without_words_gives_an_empty_file() -> None:
    async def main() -> None:
        for kind in ("wav", "mp3", "pcm"):
            sound = reader(ToneTts()).file(single_text(" "), ENGLISH, kind, 16_000)
            assert [chunk async for chunk in sound.chunks()] == []

    run_virtual(main())


def test_closing_the_file_closes_the_voice_and_the_text() -> None:
    tts, closed = ToneTts(), []

    async def endless() -> AsyncGenerator[str, None]:
        try:
            while True:
                await asyncio.sleep(0.01)
                yield "Another whole sentence. "
        finally:
            closed.append(True)

    async def main() -> None:
        one = reader(tts)
        async with aclosing(one.file(endless(), ENGLISH, "pcm", 16_000).chunks()) as chunks:
            await anext(chunks)
            assert one.count == 1
        assert (one.count, tts.closed_early, closed) == (0, 1, [True])

    run_virtual(main())


def test_parallel_files_are_limited_and_a_failure_frees_its_place() -> None:
    async def main() -> None:
        tts = ToneTts()
        one = reader(tts, max_parallel=1)

        def sound() -> AsyncGenerator[bytes, None]:
            return one.file(single_text("Hello."), ENGLISH, "pcm", 16_000).chunks()

        async with aclosing(sound()) as first:
            await anext(first)
            with pytest.raises(OverloadedError) as refused:
                await anext(sound())
            assert (refused.value.code, refused.value.retry_after_s) == ("engine_busy", 1)
        tts.fails = True
        with pytest.raises(EngineError):
            await anext(sound())
        assert one.count == 0

    run_virtual(main())


class GermanTts(ToneTts):
    """A voice that speaks only German."""

    info = TtsInfo("german", 24_000, {"de": ("klar",)})


def test_the_voice_follows_the_engine_the_name_and_the_language() -> None:
    tone, german = ToneTts(1000), GermanTts(500)
    every = {"default": german, "german": german, "tone": tone}
    one = SpeechFiles(EngineSet(LoudVads(), {}, {}, every))
    for name in ("default", "tts-1", "gpt-4o-mini-tts"):
        assert one.voices(name) == every
    assert one.voices("tone") == {"tone": tone}
    with pytest.raises(NotFound, match="default, german, tone"):
        one.voices("parrot")

    async def main() -> None:
        for manner, audio_ms in (
            (SpeechFileOptions("de"), 500),
            (SpeechFileOptions("en"), 1000),
            (SpeechFileOptions("de", engine="tone"), 1000),
            (SpeechFileOptions("de", "tief"), 1000),
        ):
            sound = one.file(single_text("Hello."), manner, "pcm", 16_000)
            assert b"".join([chunk async for chunk in sound.chunks()])
            assert sound.audio_ms == audio_ms

    run_virtual(main())
    with pytest.raises(RequestError) as refused:
        one.file(single_text("Hello."), SpeechFileOptions("en", engine="german"), "pcm", 16_000)
    assert refused.value.code == "unsupported_language"


def document(inside: str) -> RequestedText:
    return RequestedText.of(f"<speak>{inside}</speak>")


def test_a_document_is_spoken_by_its_voices_with_its_pauses() -> None:
    tone, german = ToneTts(1000), GermanTts(500)
    one = SpeechFiles(
        EngineSet(LoudVads(), {}, {}, {"default": tone, "tone": tone, "german": german})
    )
    text = document(
        'One.<break time="300ms"/><voice name="high">Two.</voice>'
        '<voice name="german/klar">Drei.</voice> <lang xml:lang="de">Vier.</lang>'
    )

    async def main() -> None:
        sound = one.file(text, ENGLISH, "pcm", 16_000)
        chunks = [chunk async for chunk in sound.chunks()]
        assert sound.audio_ms == 1000 + 300 + 1000 + 500 + 1000
        pcm = np.frombuffer(b"".join(chunks), "<i2")
        assert not pcm[16_200:20_600].any()
        assert (tone.voices_asked, german.voices_asked) == (["low", "high", "tief"], ["klar"])

    run_virtual(main())


@pytest.mark.parametrize(
    ("inside", "code"),
    [
        ('<voice name="nobody">Hi</voice>', "voice_not_found"),
        ('<lang xml:lang="xx">Hi</lang>', "unsupported_language"),
    ],
)
def test_a_document_that_no_voice_can_speak_is_refused_before_any_sound(
    inside: str, code: str
) -> None:
    with pytest.raises(RequestError) as refused:
        reader(ToneTts()).file(document(f"Hello.{inside}"), ENGLISH, "pcm", 16_000)
    assert refused.value.code == code
    assert "allowed: " in str(refused.value)


def test_a_broken_document_names_the_field() -> None:
    with pytest.raises(RequestError) as refused:
        RequestedText.of("<speak>Hello", "input")
    assert (refused.value.code, refused.value.param) == ("invalid_ssml", "input")


def test_text_that_a_model_writes_is_never_ssml() -> None:
    async def written() -> AsyncGenerator[str, None]:
        yield '<speak>One.<break time="10s"/><voice name="high">Two.</voice></speak>'

    async def main() -> None:
        tts = ToneTts()
        sound = reader(tts).file(written(), ENGLISH, "pcm", 16_000)
        assert b"".join([chunk async for chunk in sound.chunks()])
        assert (sound.audio_ms, tts.voices_asked) == (1000, ["low"])

    run_virtual(main())
