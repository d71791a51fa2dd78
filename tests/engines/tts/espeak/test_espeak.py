"""The eSpeak engine streams, stops at once, serves sessions in turn, and refuses bad requests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from threading import Event

import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from core.errors import EngineError, PayloadTooLarge, RequestError
from engines.base import TtsInfo
from engines.tts.espeak import EspeakTts, Settings, create
from engines.tts.espeak.library import EspeakLibrary, EventSink, PcmSink
from engines.tts.shared.text import MAX_CHUNK_CHARS, MAX_CLAUSE_CHARS, sanitise, split_clauses
from tests.speech import say

pytestmark = pytest.mark.live

CHUNK: Pcm = np.ones(1000, np.int16)
PATIENCE_S = 30
"Only a failing test waits for all of it."


class FakeLibrary(EspeakLibrary):
    """Gives `chunks` chunks per clause; from the second on each waits for `gate`."""

    def __init__(self, *, chunks: int = 2, is_open: bool = True) -> None:
        self.chunks = chunks
        self.spoken: list[tuple[str, str, int]] = []
        self.gate = Event()
        self.stopped = Event()
        if is_open:
            self.gate.set()

    def has_voice(self, voice: str) -> bool:
        return voice.partition("+")[0] in {"en-us", "en-gb", "de"}

    def synthesise(
        self,
        text: str,
        voice: str,
        words_per_minute: int,
        sink: PcmSink,
        on_events: EventSink | None = None,
    ) -> None:
        if text == "fail":
            raise EngineError("tts", "espeak", "status 2")
        if text == "bug":
            raise ZeroDivisionError("oops")
        self.spoken.append((text, voice, words_per_minute))
        for _ in range(self.chunks):
            if not sink(CHUNK):
                self.stopped.set()
                return
            assert self.gate.wait(PATIENCE_S)


def engine(library: FakeLibrary, speed: float = 1) -> EspeakTts:
    info = TtsInfo("espeak", 22_050, {"en": ("en-us", "en-gb"), "de": ("de",)})
    return EspeakTts(info, library, Settings(speed=speed))


async def text_chunks(texts: Sequence[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def speak(
    tts: EspeakTts, *texts: str, language: str = "en", speed: float = 1
) -> list[AudioFrame]:
    async with aclosing(tts.speak(text_chunks(texts), language=language, speed=speed)) as frames:
        return [frame async for frame in frames]


def test_audio_streams_before_the_synthesis_has_ended() -> None:
    library = FakeLibrary(is_open=False)

    async def scenario() -> None:
        async with aclosing(engine(library).speak(text_chunks(["hello"]), language="en")) as frames:
            first = await anext(frames)
            assert not library.gate.is_set()
            library.gate.set()
            rest = [frame async for frame in frames]
        assert [(f.start, len(f.pcm)) for f in [first, *rest]] == [(0, 1000), (1000, 1000)]

    asyncio.run(scenario())


def test_closing_stops_the_synthesis_and_frees_its_thread() -> None:
    library = FakeLibrary(chunks=1000, is_open=False)
    tts = engine(library)

    async def scenario() -> None:
        async with aclosing(tts.speak(text_chunks(["long"]), language="en")) as frames:
            await anext(frames)
        library.gate.set()
        assert await asyncio.to_thread(library.stopped.wait, PATIENCE_S)
        library.chunks = 1
        assert len(await speak(tts, "next")) == 1

    asyncio.run(scenario())


def test_a_waiting_clause_that_is_cancelled_never_runs() -> None:
    library = FakeLibrary(is_open=False)
    tts = engine(library)

    async def scenario() -> None:
        async with aclosing(tts.speak(text_chunks(["first"]), language="en")) as first:
            await anext(first)
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(speak(tts, "never"))
                await asyncio.sleep(0)
                waiting.cancel()
        library.gate.set()
        assert len(await speak(tts, "third")) == 2

    asyncio.run(scenario())
    assert [text for text, _, _ in library.spoken] == ["first", "third"]


def test_sessions_take_turns_clause_by_clause() -> None:
    library = FakeLibrary()
    tts = engine(library)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in "ab":
                tasks.create_task(speak(tts, *(f"{name}{i}" for i in range(3))))

    asyncio.run(scenario())
    texts = [text for text, _, _ in library.spoken]
    assert sorted(texts) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert set(texts[:2]) == {"a0", "b0"}
    assert set(texts[2:4]) == {"a1", "b1"}


def test_a_slow_reader_does_not_delay_others() -> None:
    library = FakeLibrary(chunks=50)
    tts = engine(library)

    async def scenario() -> None:
        async with aclosing(tts.speak(text_chunks(["slow", "later"]), language="en")) as slow:
            await anext(slow)
            assert len(await speak(tts, "fast")) == 50
            assert [text for text, _, _ in library.spoken] == ["slow", "fast"]

    asyncio.run(scenario())


def test_a_failing_clause_raises_and_the_next_works() -> None:
    tts = engine(FakeLibrary())
    with pytest.raises(EngineError, match="status 2"):
        asyncio.run(speak(tts, "fail"))
    with pytest.raises(EngineError, match="failed with ZeroDivisionError"):
        asyncio.run(speak(tts, "bug"))
    assert len(asyncio.run(speak(tts, "fine"))) == 2


@pytest.mark.parametrize("texts", [[], [""], ["  \n"], ["..."], ["\x00\x01"], ["", "—", "?!"]])
def test_text_without_words_gives_no_audio(texts: list[str]) -> None:
    library = FakeLibrary()
    assert asyncio.run(speak(engine(library), *texts)) == []
    assert library.spoken == []


@pytest.mark.parametrize(
    ("factor", "speed", "words_per_minute"),
    [(1, 1, 175), (1, 2, 350), (1.2, 1, 210), (1, 0.25, 80), (1, 4, 450)],
)
def test_the_speed_factor_is_limited_to_the_librarys_range(
    factor: float, speed: float, words_per_minute: int
) -> None:
    library = FakeLibrary()
    asyncio.run(speak(engine(library, factor), "hello", speed=speed))
    assert library.spoken == [("hello", "en-us", words_per_minute)]


@pytest.mark.parametrize(
    ("language", "voice", "speed", "message", "param"),
    [
        ("xx", None, 1, "does not speak 'xx'; it speaks de, en", "language"),
        ("en", "alloy", 1, "no voice 'alloy'; for en it has en-us, en-gb", "voice"),
        ("en", None, 5, "speed 5 is not allowed; allowed: 0.25 to 4.0", "speed"),
    ],
)
def test_errors_of_wrong_requests_say_what_is_allowed(
    language: str, voice: str | None, speed: float, message: str, param: str
) -> None:
    async def scenario() -> None:
        tts = engine(FakeLibrary())
        await anext(tts.speak(text_chunks(["hello"]), language=language, voice=voice, speed=speed))

    with pytest.raises(RequestError, match=message) as caught:
        asyncio.run(scenario())
    assert caught.value.param == param


def test_the_length_of_a_text_is_limited() -> None:
    library = FakeLibrary()
    with pytest.raises(
        PayloadTooLarge, match="the text has 20001 characters; allowed: up to 20000"
    ):
        asyncio.run(speak(engine(library), "x" * (MAX_CHUNK_CHARS + 1)))
    assert library.spoken == []


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a\x01b\x00c\x7fd", "a b c d"),
        ("lone \ud800 surrogate", "lone   surrogate"),
        ("<break time='9s'/> [[hEl]]", "<break time='9s'/> [[hEl]]"),
        ("Grüße, señor 21 °C 😀", "Grüße, señor 21 °C 😀"),
    ],
)
def test_control_characters_are_removed_and_markup_is_text(raw: str, clean: str) -> None:
    assert sanitise(raw) == clean


@pytest.mark.parametrize(
    "text",
    [
        "One. " * 200,
        "word " * 400,
        "one, two; " * 100,
        "x" * 1000,
        "Eins. " + "y" * 299 + " end",
        "short",
    ],
)
def test_long_text_is_cut_into_bounded_clauses_without_loss(text: str) -> None:
    parts = list(split_clauses(text))
    clauses = [clause for _, clause in parts]
    assert all(text.startswith(clause, start) for start, clause in parts)
    assert all(0 < len(clause) <= MAX_CLAUSE_CHARS for clause in clauses)
    assert "".join(clauses).replace(" ", "") == text.replace(" ", "")


def test_clauses_end_where_a_speaker_would_pause() -> None:
    clauses = list(split_clauses("This is a sentence, with a comma. " * 20))
    assert all(clause.endswith("comma.") for _, clause in clauses)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "The lights are on."),
        ("de", "Das Licht ist an."),
        ("fr", "La lumière est allumée."),
        ("es", "La luz está encendida."),
    ],
)
def test_the_real_voices_speak(language: str, text: str) -> None:
    frames = asyncio.run(speak(create(Settings()), text, language=language))
    pcm = np.concatenate([frame.pcm for frame in frames])
    assert 0.5 < len(pcm) / 22_050 < 3
    assert np.abs(pcm).max() > 5000
    assert [f.start for f in frames] == [0, *np.cumsum([len(f.pcm) for f in frames])[:-1]]


def test_simultaneous_real_sessions_get_their_own_audio() -> None:
    tts = create(Settings())
    texts = {"en": "Good evening everyone.", "de": "Guten Abend zusammen.", "fr": "Bonsoir à tous."}
    alone = {
        language: sum(len(f.pcm) for f in asyncio.run(speak(tts, text, language=language)))
        for language, text in texts.items()
    }

    async def scenario() -> dict[str, int]:
        async with asyncio.TaskGroup() as tasks:
            running = {
                language: tasks.create_task(speak(tts, *[text] * 3, language=language))
                for language, text in texts.items()
            }
        return {k: sum(len(f.pcm) for f in task.result()) for k, task in running.items()}

    together = asyncio.run(scenario())
    for language, samples in alone.items():
        assert together[language] == pytest.approx(3 * samples, rel=0.03)


@pytest.mark.parametrize(
    ("voice", "digits", "words"),
    [
        ("en-us", "ten minutes at 7 30", "10 minutes at seven thirty"),
        ("de", "zehn Minuten, 21 Grad", "10 Minuten, einundzwanzig Grad"),
        ("fr-fr", "80 pour cent", "quatre-vingt pour cent"),
        ("es", "15 minutos", "quince minutos"),
    ],
)
def test_numbers_are_spoken_as_words(voice: str, digits: str, words: str) -> None:
    assert len(say(digits, voice)) == pytest.approx(len(say(words, voice)), rel=0.05)


def test_every_listed_voice_speaks() -> None:
    info = create(Settings()).info
    voices = info.voices
    assert info.genders["en-us"] == "male"
    assert {"en", "de", "fr", "es", "zh", "no"} <= voices.keys()
    assert voices["en"][:2] == ("en-us", "en-gb")
    silent = {
        name for names in voices.values() for name in names if len(say("1 2 3 Anna", name)) < 3000
    }
    assert silent == set()
