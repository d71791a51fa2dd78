"""Repeated replies are synthesized once: the same samples and words, within limits, and only whole
clauses."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing

import numpy as np
import pytest

from core.audio import AudioFrame
from core.errors import EngineError
from engines.base import TtsInfo, WordMark
from pipeline.speech import cache as voice_cache
from pipeline.speech.cache import CachedTts, VoiceCache
from tests.loop import run_virtual

RATE_HZ = 1000
"One sample is one millisecond; a letter lasts ten."


class Counted:
    """Metrics as sums."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.observed: list[tuple[str, float]] = []

    def count(self, name: str, value: float = 1, /, **labels: str) -> None:
        name = " ".join([name, *labels.values()])
        self.sums[name] = self.sums.get(name, 0) + value

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self.observed.append((name, seconds))

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.sums[name] = value


class Voice:
    """A voice with two frames and one word per chunk, whose samples are the letters."""

    def __init__(self, name: str = "one") -> None:
        self.info = TtsInfo(name, RATE_HZ, {"en": ("a", "b"), "de": ("d",)}, has_word_times=True)
        self.made: list[str] = []

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        start = index = 0
        async for chunk in text:
            self.made.append(chunk)
            if chunk == "fail":
                raise EngineError("tts", "one")
            pcm = np.repeat(np.frombuffer(chunk.encode("utf-16-le"), "<i2"), 10)
            if on_word is not None:
                on_word(WordMark(index, len(chunk), start, start + len(pcm)))
            for half in (pcm[: len(pcm) // 2], pcm[len(pcm) // 2 :]):
                yield AudioFrame(half, RATE_HZ, start)
                start += len(half)
            index += 1


async def given(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


Said = tuple[list[int], list[WordMark]]


def say(
    tts: CachedTts | Voice,
    *texts: str,
    language: str = "en",
    voice: str | None = None,
    speed: float = 1,
) -> Said:
    """Returns all samples and words."""
    marks: list[WordMark] = []

    async def scenario() -> list[AudioFrame]:
        speech = tts.speak(
            given(*texts), language=language, voice=voice, speed=speed, on_word=marks.append
        )
        async with aclosing(speech) as frames:
            return [frame async for frame in frames]

    frames = asyncio.run(scenario())
    assert [frame.start for frame in frames] == [0, *(frame.end for frame in frames[:-1])][
        : len(frames)
    ]
    return [int(sample) for frame in frames for sample in frame.pcm], marks


@pytest.fixture
def metrics() -> Counted:
    return Counted()


@pytest.fixture
def cache(metrics: Counted) -> VoiceCache:
    return VoiceCache(metrics)


def test_from_the_third_time_a_reply_comes_from_the_cache_unchanged(
    cache: VoiceCache, metrics: Counted
) -> None:
    voice = Voice()
    tts = CachedTts(voice, cache)
    texts = ("Okay.", "Something else entirely.", "Okay.")
    wanted = say(Voice(), *texts)
    assert [say(tts, *texts) for _ in range(3)] == [wanted] * 3
    assert voice.made == ["Okay.", texts[1], "Okay.", texts[1]]
    assert metrics.sums["earshot_tts_cache hit"] == 5
    assert metrics.sums["earshot_tts_cache miss"] == 4
    assert metrics.sums["earshot_tts_cache_bytes"] == cache.size_bytes > 0


def test_a_reply_said_once_is_not_kept(cache: VoiceCache) -> None:
    say(CachedTts(Voice(), cache), "Your PIN is 1234.")
    assert len(cache) == 0
    assert "1234" not in repr(vars(cache))


def test_the_cache_contains_no_text(cache: VoiceCache) -> None:
    tts = CachedTts(Voice(), cache)
    say(tts, "Okay then."), say(tts, "Okay then.")
    assert len(cache) == 1
    assert "Okay" not in repr(vars(cache))


def test_the_cache_separates_engine_language_voice_and_speed(cache: VoiceCache) -> None:
    one, two = Voice(), Voice("two")
    for _ in range(2):
        say(CachedTts(one, cache), "Ja.", "Ja.")
        say(CachedTts(two, cache), "Ja.", "Ja.")
        say(CachedTts(one, cache), "Ja.", "Ja.", language="de")
        say(CachedTts(one, cache), "Ja.", "Ja.", voice="b")
        say(CachedTts(one, cache), "Ja.", "Ja.", speed=2)
    assert len(cache) == 5
    assert len(one.made) == 8
    say(CachedTts(one, cache), "Ja.", voice="a")
    assert len(one.made) == 8  # "a" is the default voice


def test_an_abandoned_reply_is_not_kept(cache: VoiceCache) -> None:
    tts = CachedTts(Voice(), cache)
    say(tts, "Okay.")

    async def leave() -> None:
        async with aclosing(tts.speak(given("Okay."), language="en")) as frames:
            await anext(frames)

    asyncio.run(leave())
    assert len(cache) == 0
    say(tts, "Okay.")
    assert len(cache) == 1


def test_an_abandoned_reply_does_not_count_as_said(cache: VoiceCache) -> None:
    tts = CachedTts(Voice(), cache)

    async def leave() -> None:
        async with aclosing(tts.speak(given("Okay."), language="en")) as frames:
            await anext(frames)

    asyncio.run(leave())
    say(tts, "Okay.")
    assert len(cache) == 0


def test_a_failed_reply_is_not_kept(cache: VoiceCache) -> None:
    tts = CachedTts(Voice(), cache)
    for _ in range(3):
        with pytest.raises(EngineError):
            say(tts, "fail")
    assert len(cache) == 0
    assert cache.size_bytes == 0


class SlowVoice(Voice):
    """A voice that takes 30 ms to begin, then 10 ms per frame."""

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        await asyncio.sleep(0.03)
        frames = super().speak(text, language=language, voice=voice, speed=speed, on_word=on_word)
        async with aclosing(frames):
            async for frame in frames:
                await asyncio.sleep(0.01)
                yield frame


def test_the_realtime_factor_ignores_slow_listeners_and_cache_hits(
    cache: VoiceCache, metrics: Counted
) -> None:
    tts = CachedTts(SlowVoice(), cache)

    async def main() -> None:
        for _ in range(3):
            speech = tts.speak(given("Okay.", "Okay then, this."), language="en")
            async with aclosing(speech) as frames:
                async for _ in frames:
                    await asyncio.sleep(1)

    run_virtual(main())
    times = {"Okay.": 0.05 / 0.05, "Okay then, this.": 0.05 / 0.16}
    assert [name for name, _ in metrics.observed] == ["earshot_tts_realtime_factor"] * 4
    assert [factor for _, factor in metrics.observed] == pytest.approx([*times.values()] * 2)


def test_long_clauses_are_not_cached(cache: VoiceCache, metrics: Counted) -> None:
    long = "x" * (voice_cache.MAX_TEXT_CHARS + 1)
    tts = CachedTts(Voice(), cache)
    assert [say(tts, long) for _ in range(3)] == [say(Voice(), long)] * 3
    assert len(cache) == 0
    assert metrics.sums == {}


@pytest.mark.parametrize("bounds", [{"max_entries": 3}, {"max_bytes": 3 * 2 * 10 * 2}])
def test_the_least_recently_used_entry_is_dropped_first(
    metrics: Counted, bounds: dict[str, int]
) -> None:
    cache = VoiceCache(metrics, **bounds)
    voice = Voice()
    tts = CachedTts(voice, cache)
    for text in ("a.", "b.", "c."):
        say(tts, text), say(tts, text)
    say(tts, "a.")
    say(tts, "d."), say(tts, "d.")
    assert len(cache) == 3
    assert cache.size_bytes == 3 * 2 * 10 * 2
    count = len(voice.made)
    say(tts, "a.", "c.", "d.")
    assert len(voice.made) == count
    say(tts, "b.")
    assert len(voice.made) == count + 1


def test_a_reply_above_the_size_limit_is_not_kept(
    cache: VoiceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice_cache, "MAX_ENTRY_BYTES", 100)
    tts = CachedTts(Voice(), cache)
    assert [say(tts, "Rather long.", "No.") for _ in range(3)][-1] == say(
        Voice(), "Rather long.", "No."
    )
    assert len(cache) == 1


def test_the_number_of_remembered_texts_is_limited(
    cache: VoiceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice_cache, "MAX_SEEN", 2)
    tts = CachedTts(Voice(), cache)
    say(tts, "a.", "b.", "c.", "a.")
    assert len(cache) == 0


def test_a_cached_first_clause_sounds_before_the_next_is_written(cache: VoiceCache) -> None:
    tts = CachedTts(Voice(), cache)
    say(tts, "Okay."), say(tts, "Okay.")

    async def scenario() -> None:
        gate = asyncio.Event()

        async def writing() -> AsyncIterator[str]:
            yield "Okay."
            await gate.wait()
            yield "Now this."

        async with aclosing(tts.speak(writing(), language="en")) as frames:
            assert (await anext(frames)).start == 0
            gate.set()
            assert (await anext(frames)).start == 50

    asyncio.run(scenario())


def test_clearing_the_cache_forgets_everything(cache: VoiceCache) -> None:
    tts = CachedTts(Voice(), cache)
    say(tts, "a."), say(tts, "a.")
    cache.clear()
    say(tts, "a.")
    assert (len(cache), cache.size_bytes) == (0, 0)
