"""Clauses are spoken together, their sound begins early, and an end frees what they used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import numpy as np
import pytest

from core.audio import AudioFrame
from core.errors import EngineError, RequestError
from engines.base import TtsInfo
from engines.tts.indri.chunks import FADE_SAMPLES
from engines.tts.indri.engine import MAX_CLAUSE_CHARS, IndriTts
from engines.tts.indri.settings import Settings
from engines.tts.indri.speech_batch import SpeechBatch
from engines.tts.shared.text import UNSPEAKABLE
from tests.engines.tts.indri.checkpoint import layout, tokenizer
from tests.engines.tts.indri.fakes import FRAME_SAMPLES, NumberStreams, ScriptedBackend

LAYOUT, TOKENIZER = layout(), tokenizer()
PROMPT_MARKERS = 4
INFO = TtsInfo("indri", 24_000, {"en": ("spkr_63", "spkr_53"), "hi": ("spkr_63", "spkr_53")})


class Stage:
    """An engine with its fakes."""

    def __init__(self, **options: int) -> None:
        settings = Settings(path="-", codec="-", slots=3, max_ids=options.get("max_ids", 1024))
        self.backend = ScriptedBackend(LAYOUT, context=options.get("context", 512))
        self.streams = NumberStreams()
        batch = SpeechBatch(self.backend, self.streams, LAYOUT)
        self.tts = IndriTts(INFO, batch, LAYOUT, TOKENIZER, self.backend.context, settings)

    async def speak(
        self, *texts: str, voice: str | None = None, language: str = "en"
    ) -> list[AudioFrame]:
        async def chunks() -> AsyncIterator[str]:
            for text in texts:
                yield text

        speech = self.tts.speak(chunks(), language=language, voice=voice)
        async with aclosing(speech) as frames:
            return [frame async for frame in frames]

    @property
    def is_idle(self) -> bool:
        return not self.backend.running and not self.streams.open_streams


async def one(text: str) -> AsyncIterator[str]:
    yield text


def samples(frames: list[AudioFrame]) -> int:
    starts = [frame.start for frame in frames]
    lengths = [len(frame.pcm) for frame in frames]
    assert starts == [sum(lengths[:index]) for index in range(len(lengths))], "no gaps"
    return sum(lengths)


def test_all_frames_are_spoken_in_their_order() -> None:
    stage = Stage()
    frames = asyncio.run(stage.speak("hello"))
    assert samples(frames) == (len("hello") + PROMPT_MARKERS) * FRAME_SAMPLES
    pcm = np.concatenate([frame.pcm for frame in frames])
    numbers = np.arange(len("hello") + PROMPT_MARKERS, dtype=np.float32) / 1000 * 32_767
    assert np.array_equal(pcm[::FRAME_SAMPLES], numbers.astype(np.int16))
    assert stage.is_idle


def test_the_sound_begins_after_the_first_frame() -> None:
    async def scenario() -> None:
        stage = Stage()
        async with aclosing(stage.tts.speak(one("hello there"), language="en")) as frames:
            first = await anext(frames)
            assert len(first.pcm) == FRAME_SAMPLES - FADE_SAMPLES
            assert stage.backend.steps == 8, "one frame"

    asyncio.run(scenario())


def test_speeches_take_part_in_the_same_steps() -> None:
    async def scenario() -> None:
        stage = Stage()
        alone = Stage()
        await alone.speak("hello there")
        found = await asyncio.gather(*(stage.speak("hello there") for _ in range(3)))
        assert stage.backend.most_running == 3
        assert stage.backend.steps <= alone.backend.steps + 3
        assert {samples(frames) for frames in found} == {15 * FRAME_SAMPLES}
        assert stage.is_idle

    asyncio.run(scenario())


def test_a_speech_waits_for_a_free_slot() -> None:
    async def scenario() -> None:
        stage = Stage()
        found = await asyncio.gather(*(stage.speak("hello there") for _ in range(7)))
        assert len(found) == 7
        assert stage.backend.most_running == 3
        assert stage.is_idle

    asyncio.run(scenario())


def test_barge_in_frees_slot_and_codec_before_the_next_step() -> None:
    async def scenario() -> None:
        stage = Stage()
        frames = stage.tts.speak(one("hello there"), language="en")
        await anext(frames)
        steps = stage.backend.steps
        await frames.aclose()
        assert stage.is_idle
        assert stage.backend.steps == steps

    asyncio.run(scenario())


def test_a_cancelled_speech_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        stage = Stage()
        async with asyncio.TaskGroup() as tasks:
            cancelled = tasks.create_task(stage.speak("hello " * 16))
            other = tasks.create_task(stage.speak("hello there"))
            async with aclosing(stage.tts.speak(one("hi"), language="en")) as frames:
                await anext(frames)  # the others run, too
            assert len(stage.backend.running) == 2
            cancelled.cancel()
        assert samples(other.result()) == 15 * FRAME_SAMPLES
        assert stage.is_idle

    asyncio.run(scenario())


def test_a_failed_step_fails_all_speeches_and_frees_them() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.backend.fails_at_step = 20
        texts = ("hello there", "good morning")
        found = await asyncio.gather(*map(stage.speak, texts), return_exceptions=True)
        assert {type(error) for error in found} == {RuntimeError, EngineError}
        assert stage.is_idle
        assert samples(await stage.speak("hello")) > 0, "the next one is spoken"

    asyncio.run(scenario())


def test_a_long_text_is_spoken_in_clauses() -> None:
    stage = Stage()
    text = "This is a sentence of some words. " * 18
    frames = asyncio.run(stage.speak(text))
    joints = (stage.backend._next - 1) * FADE_SAMPLES
    assert stage.backend._next > len(text) // MAX_CLAUSE_CHARS
    assert (samples(frames) + joints) % FRAME_SAMPLES == 0
    assert stage.is_idle


def test_a_speech_ends_at_the_limit() -> None:
    frames = asyncio.run(Stage(max_ids=20).speak("hello"))
    assert samples(frames) == 2 * FRAME_SAMPLES, "whole frames only"


def test_a_clause_that_fills_the_context_is_unspeakable() -> None:
    with pytest.raises(RequestError, match="a clause of 69 tokens leaves no room in 70") as raised:
        asyncio.run(Stage(context=70).speak("a" * 65))
    assert raised.value.code == UNSPEAKABLE


@pytest.mark.parametrize("text", ["", "...", "<|>", "[]"])
def test_a_text_without_words_makes_no_sound(text: str) -> None:
    assert asyncio.run(Stage().speak(text)) == []


def test_an_unknown_voice_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match="spkr_63, spkr_53") as raised:
        asyncio.run(Stage().speak("hello", voice="spkr_1"))
    assert raised.value.code == "unknown_voice"


def test_the_voice_and_the_text_decide_the_seed() -> None:
    engine = Stage().tts
    asked = engine.request("hello", "spkr_63")
    assert asked == engine.request("hello", "spkr_63")
    assert asked.seed != engine.request("hello", "spkr_53").seed
    assert asked.prompt[-1] == LAYOUT.speakers["spkr_63"]
