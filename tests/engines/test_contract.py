"""What every engine file must do, whoever wrote it. A new file is found by itself.

Engines that are not installed, have no weights here or need options to exist are skipped by name.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Literal, get_args

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, silence
from core.errors import ConfigError, EngineMissing, RequestError
from engines.base import (
    AsrItem,
    AsrModel,
    AsrResult,
    Llm,
    Message,
    TextDelta,
    ToolCall,
    Tts,
    Vad,
    VadEngine,
)
from engines.registry import Kind, available, load
from tests.engines.test_faster_whisper import NANO
from tests.speech import say

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "asr.faster_whisper": {"model": str(NANO), "cpu_threads": 1},
}
"Options for engines that cannot do without."

PATIENCE_S = 30

FIRST = say("turn on the kitchen lights", lead_ms=100, tail_ms=300)
SECOND = say("what time is it", "en-gb", lead_ms=100, tail_ms=300)
NO_AUDIO: Pcm = np.zeros(0, np.int16)


def names(kind: Kind) -> list[str]:
    return [engine.name for engine in available(kind)]


def created(kind: Kind, name: str) -> Any:
    try:
        return load(kind, name, OPTIONS.get(f"{kind}.{name}", {}))
    except (EngineMissing, ConfigError) as exc:
        pytest.skip(f"{kind}.{name}: {exc}")


def test_there_are_engines_of_every_kind() -> None:
    kinds: tuple[Kind, ...] = get_args(Kind)
    assert {kind for kind in kinds if names(kind)} == set(kinds)


# Voice activity


@pytest.fixture(params=names("vad"))
def vad(request: pytest.FixtureRequest) -> VadEngine:
    engine: VadEngine = created("vad", request.param)
    return engine


def heard(stream: Vad, pcm: Pcm) -> list[float]:
    size = stream.frame_samples
    return [stream.push(pcm[i : i + size]) for i in range(0, len(pcm) - size + 1, size)]


def test_vad_hears_speech_and_not_silence(vad: VadEngine) -> None:
    assert max(heard(vad.open(), silence(1000, ASR_RATE_HZ))) < 0.5
    speech = heard(vad.open(), FIRST)
    assert max(speech) >= 0.5
    assert all(0 <= probability <= 1 for probability in speech)


def test_vad_streams_at_once_hear_only_themselves(vad: VadEngine) -> None:
    talking, quiet = vad.open(), vad.open()
    size = talking.frame_samples
    pairs = [
        (talking.push(FIRST[i : i + size]), quiet.push(np.zeros(size, np.int16)))
        for i in range(0, len(FIRST) - size + 1, size)
    ]
    assert [speech for speech, _ in pairs] == heard(vad.open(), FIRST)
    assert max(hush for _, hush in pairs) < 0.5


def test_vad_reset_mid_utterance_is_a_new_beginning(vad: VadEngine) -> None:
    stream = vad.open()
    heard(stream, FIRST[: len(FIRST) // 2])
    stream.reset()
    assert heard(stream, SECOND) == heard(vad.open(), SECOND)


# Speech to text


@pytest.fixture(scope="module", params=names("asr"))
def asr(request: pytest.FixtureRequest) -> Iterator[AsrModel]:
    model: AsrModel = created("asr", request.param)
    yield model
    model.close()


def final(model: AsrModel, utterance: str, pcm: Pcm) -> AsrResult:
    (result,) = model.decode([AsrItem(utterance, pcm, is_final=True, language="en")])
    return result


def part(utterance: str, pcm: Pcm, share: float) -> AsrItem:
    return AsrItem(utterance, pcm[: int(len(pcm) * share)], is_final=share == 1, language="en")


def test_asr_hears_words(asr: AsrModel) -> None:
    result = final(asr, "utt", FIRST)
    assert "kitchen" in result.text.lower()
    assert 0 <= result.confidence <= 1
    assert result.language in asr.info.languages


@pytest.mark.parametrize("pcm", [NO_AUDIO, silence(10, ASR_RATE_HZ), silence(2000, ASR_RATE_HZ)])
def test_asr_hears_nothing_in_nothing(asr: AsrModel, pcm: Pcm) -> None:
    result = final(asr, "utt", pcm)
    assert result.text == ""
    assert result.language in asr.info.languages


def test_asr_takes_an_empty_batch(asr: AsrModel) -> None:
    assert asr.decode([]) == []


def test_asr_utterances_at_once_keep_their_words(asr: AsrModel) -> None:
    clips = {"utt_a": FIRST, "utt_b": SECOND}
    for share in (0.3, 0.6):
        results = asr.decode([part(name, pcm, share) for name, pcm in clips.items()])
        assert len(results) == 2
    both = asr.decode([part(name, pcm, 1) for name, pcm in clips.items()])
    assert [result.text for result in both] == [
        final(asr, f"alone_{name}", pcm).text for name, pcm in clips.items()
    ]
    assert both[0].text != both[1].text


def test_asr_cancelled_utterance_leaves_nothing_behind(asr: AsrModel) -> None:
    asr.decode([part("utt_x", FIRST, 0.5)])
    asr.forget("utt_x")
    asr.forget("never heard of")
    assert final(asr, "utt_x", SECOND).text == final(asr, "fresh", SECOND).text


# Language


@pytest.fixture(params=names("llm"))
def llm(request: pytest.FixtureRequest) -> Llm:
    engine: Llm = created("llm", request.param)
    return engine


async def answer(llm: Llm, text: str, language: str = "en") -> list[TextDelta | ToolCall]:
    messages = [Message("user", text)]
    async with aclosing(llm.reply(messages, (), language=language)) as deltas:
        return [delta async for delta in deltas]


@pytest.mark.parametrize("text", ["", "   ", "blue elephants argue quietly about tea"])
def test_llm_says_something_or_nothing_but_does_not_fail(llm: Llm, text: str) -> None:
    deltas = asyncio.run(answer(llm, text))
    assert all(isinstance(delta, TextDelta | ToolCall) for delta in deltas)


def test_llm_answers_at_once_are_its_own(llm: Llm) -> None:
    async def scenario() -> list[list[TextDelta | ToolCall]]:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(answer(llm, "hello", code)) for code in ("en", "de")]
        return [task.result() for task in running]

    together = asyncio.run(scenario())
    assert all(together)


def test_llm_can_be_left_in_the_middle(llm: Llm) -> None:
    async def scenario() -> list[TextDelta | ToolCall]:
        async with aclosing(llm.reply([Message("user", "hello")], (), language="en")) as deltas:
            await anext(deltas)
        return await answer(llm, "hello")

    assert asyncio.run(scenario())


# Text to speech


@pytest.fixture(params=names("tts"))
def tts(request: pytest.FixtureRequest) -> Tts:
    engine: Tts = created("tts", request.param)
    return engine


async def given(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def spoken(tts: Tts, *texts: str, language: str) -> list[AudioFrame]:
    async with aclosing(tts.speak(given(*texts), language=language)) as frames:
        return [frame async for frame in frames]


@pytest.mark.parametrize("texts", [(), ("",), ("  ", "\n")])
def test_tts_says_nothing_for_no_text(tts: Tts, texts: tuple[str, ...]) -> None:
    language = next(iter(tts.info.voices))
    assert asyncio.run(spoken(tts, *texts, language=language)) == []


def test_tts_speaks_continuously(tts: Tts) -> None:
    language = next(iter(tts.info.voices))
    frames = asyncio.run(spoken(tts, "Anna.", "Otto.", language=language))
    assert [frame.start for frame in frames] == [0, *(frame.end for frame in frames[:-1])]
    assert {frame.rate_hz for frame in frames} == {tts.info.rate_hz}
    assert frames[-1].end > tts.info.rate_hz // 4
    assert max(int(np.abs(frame.pcm).max(initial=0)) for frame in frames) > 1000


def test_tts_can_be_stopped_mid_utterance_and_used_again(tts: Tts) -> None:
    language = next(iter(tts.info.voices))

    async def scenario() -> list[AudioFrame]:
        async with asyncio.timeout(PATIENCE_S):
            async with aclosing(tts.speak(given("Anna. " * 500), language=language)) as frames:
                await anext(frames)
            return await spoken(tts, "Otto.", language=language)

    assert asyncio.run(scenario())[0].start == 0


def test_tts_sessions_at_once_hear_their_own_words(tts: Tts) -> None:
    language = next(iter(tts.info.voices))
    texts = ["Anna.", "Otto and Anna and Otto and Anna."]

    async def scenario() -> list[int]:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(spoken(tts, text, language=language)) for text in texts]
        return [task.result()[-1].end for task in running]

    alone = [asyncio.run(spoken(tts, text, language=language))[-1].end for text in texts]
    assert asyncio.run(scenario()) == pytest.approx(alone, rel=0.05)


@pytest.mark.parametrize("wrong", ["language", "voice"])
def test_tts_refuses_what_it_does_not_know(tts: Tts, wrong: Literal["language", "voice"]) -> None:
    known = next(iter(tts.info.voices))
    language, voice = ("xx", None) if wrong == "language" else (known, "nobody")

    async def scenario() -> None:
        async with aclosing(tts.speak(given("hi"), language=language, voice=voice)) as frames:
            await anext(frames)

    with pytest.raises(RequestError, match=r"xx|nobody"):
        asyncio.run(scenario())
