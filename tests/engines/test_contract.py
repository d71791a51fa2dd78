"""The contract of every engine file, whoever wrote it. A new file is tested without a change here.

Engines that have no weights here or need options to exist are skipped by name.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples, samples_to_ms, silence
from core.conversation.usage import RateLimits, TokenUsage
from core.errors import ConfigError, EngineMissing, RequestError
from engines.base import (
    AsrModel,
    CallDelta,
    EndOfTurnDetector,
    Llm,
    Message,
    TextDelta,
    ToolCall,
    Tts,
    Vad,
    VadEngine,
    WordMark,
)
from engines.base.wake import WakeWordDetection, WakeWordDetector, WakeWordEngine
from engines.registry import EngineKind, available, load
from tests.engines import asr_contract
from tests.engines.asr_contract import FIRST, NO_AUDIO, SECOND
from tests.engines.llm.openai.completions_server import Server as Completions
from tests.engines.llm.openai.completions_server import server_in_thread
from tests.engines.nano import NANO
from tests.engines.tts.speech_server import serving_in_thread
from tests.engines.tts.tiny_voices import have_kokoro, have_piper, kokoro_files, piper_voice
from tests.speech import say

pytestmark = pytest.mark.live

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "asr.faster_whisper": {"model": str(NANO), "cpu_threads": 1},
}
"Options for engines that cannot be created without any."

HELD_ELSEWHERE = {
    "asr.openai": "tests/engines/asr/test_openai.py, with a server of its own",
    "asr.sherpa": "tests/engines/asr/sherpa, with models that know tones and no speech",
    "codec.encodec": "tests/engines/codec, where torch is installed",
    "codec.mimi": "tests/engines/codec, where torch is installed",
    "llm.llama_cpp": "tests/engines/llm/llama_cpp/test_engine.py, with a server of its own",
    "llm.transformers": "tests/engines/llm/transformers/test_engine.py, where torch is installed",
    "llm.vllm": "tests/engines/llm/vllm/test_vllm_real.py, in an environment of its own",
    "speaker.sherpa": "tests/engines/speaker/test_sherpa.py, with models of mean spectra",
    "tts.bark": "tests/engines/tts/bark, where torch is installed",
    "tts.indri": "tests/engines/tts/indri, where torch is installed",
    "tts.pocket": "tests/engines/tts/pocket, where pocket-tts is installed",
    "wake.sherpa": "tests/engines/wake/test_sherpa.py, with a model that knows tones",
}
"Engines that need what the tests' environment does not have."

PATIENCE_S = 30

T = TypeVar("T")


def names(kind: EngineKind) -> list[str]:
    found = [engine.name for engine in available(kind) if engine.installed]
    return [name for name in found if f"{kind}.{name}" not in HELD_ELSEWHERE]


def created(kind: EngineKind, name: str, options: Mapping[str, Any] | None = None) -> Any:
    try:
        return load(kind, name, options or OPTIONS.get(f"{kind}.{name}", {}))
    except (EngineMissing, ConfigError) as exc:
        pytest.skip(f"{kind}.{name}: {exc}")


def test_there_are_engines_of_every_kind() -> None:
    kinds: tuple[EngineKind, ...] = get_args(EngineKind)
    elsewhere = {name.partition(".")[0] for name in HELD_ELSEWHERE}
    assert {kind for kind in kinds if names(kind)} | elsewhere == set(kinds)


# Voice activity


@pytest.fixture(params=names("vad"))
def vad(request: pytest.FixtureRequest) -> VadEngine:
    engine: VadEngine = created("vad", request.param)
    return engine


def heard(stream: Vad, pcm: Pcm) -> list[float]:
    size = stream.frame_samples
    return [stream.push(pcm[i : i + size]) for i in range(0, len(pcm) - size + 1, size)]


def test_vad_detects_speech_but_not_silence(vad: VadEngine) -> None:
    assert max(heard(vad.open(), silence(1000, ASR_RATE_HZ))) < 0.5
    speech = heard(vad.open(), FIRST)
    assert max(speech) >= 0.5
    assert all(0 <= probability <= 1 for probability in speech)


def test_vad_streams_are_independent(vad: VadEngine) -> None:
    talking, quiet = vad.open(), vad.open()
    size = talking.frame_samples
    pairs = [
        (talking.push(FIRST[i : i + size]), quiet.push(np.zeros(size, np.int16)))
        for i in range(0, len(FIRST) - size + 1, size)
    ]
    assert [speech for speech, _ in pairs] == heard(vad.open(), FIRST)
    assert max(hush for _, hush in pairs) < 0.5


def test_vad_is_as_new_after_a_reset(vad: VadEngine) -> None:
    stream = vad.open()
    heard(stream, FIRST[: len(FIRST) // 2])
    stream.reset()
    assert heard(stream, SECOND) == heard(vad.open(), SECOND)


# Wake words


@pytest.fixture(params=[one for one in names("wake") if one != "none"])
def wake(request: pytest.FixtureRequest) -> WakeWordEngine:
    engine: WakeWordEngine = created("wake", request.param)
    return engine


def test_an_engine_without_wake_words_refuses_any_word() -> None:
    none: WakeWordEngine = created("wake", "none")
    assert none.words == ()
    with pytest.raises(ConfigError, match="has no wake words"):
        none.open(["alexa"])


def told(stream: WakeWordDetector, pcm: Pcm, step: int = 320) -> list[WakeWordDetection]:
    return [one for at in range(0, len(pcm), step) for one in stream.push(pcm[at : at + step])]


def waiting(engine: WakeWordEngine) -> WakeWordDetector:
    return engine.open([word.name for word in engine.words])


def said_words(engine: WakeWordEngine) -> list[tuple[str, Pcm]]:
    """Returns the words that the engine detects when our own voice says them."""
    clips = [(one.name, say(one.phrase, lead_ms=500, tail_ms=600)) for one in engine.words]
    return [(name, clip) for name, clip in clips if told(engine.open([name]), clip)]


def test_wake_detects_some_of_its_words_with_their_time(wake: WakeWordEngine) -> None:
    clips = said_words(wake)
    assert clips
    for name, clip in clips:
        (found,) = told(waiting(wake), clip)
        assert found.name == name
        end = len(clip) - ms_to_samples(600, ASR_RATE_HZ)
        assert -200 < samples_to_ms(found.position - end, ASR_RATE_HZ) < 500


def test_wake_detects_nothing_in_silence_and_other_speech(wake: WakeWordEngine) -> None:
    stream = waiting(wake)
    for pcm in (NO_AUDIO, silence(2000, ASR_RATE_HZ), FIRST, SECOND, NO_AUDIO):
        assert told(stream, pcm) == []
        assert stream.push(pcm) == ()


def test_wake_detects_only_the_requested_words(wake: WakeWordEngine) -> None:
    (name, clip), *_ = said_words(wake)
    others = [word.name for word in wake.words if word.name != name]
    assert told(wake.open(others), clip) == []
    assert [one.name for one in told(wake.open([name]), clip)] == [name]


def test_wake_streams_are_independent(wake: WakeWordEngine) -> None:
    (_, clip), *_ = said_words(wake)
    talking, quiet = waiting(wake), waiting(wake)
    found: list[WakeWordDetection] = []
    heard_quiet: list[WakeWordDetection] = []
    for at in range(0, len(clip), 320):
        found += talking.push(clip[at : at + 320])
        heard_quiet += quiet.push(np.zeros(320, np.int16))
    assert found == told(waiting(wake), clip)
    assert heard_quiet == []


@pytest.mark.parametrize("step", [1, 77, 160, 1024, 10**6])
def test_wake_accepts_pieces_of_any_length(wake: WakeWordEngine, step: int) -> None:
    (_, clip), *_ = said_words(wake)
    (usual,), (found,) = told(waiting(wake), clip), told(waiting(wake), clip, step)
    assert found.name == usual.name
    assert abs(found.position - usual.position) <= ms_to_samples(30, ASR_RATE_HZ)


def test_wake_is_as_new_after_a_reset(wake: WakeWordEngine) -> None:
    (_, clip), *_ = said_words(wake)
    stream = waiting(wake)
    told(stream, clip[: len(clip) // 2])
    stream.reset()
    assert told(stream, clip) == told(waiting(wake), clip)


def test_wake_detects_a_repeated_word_and_does_not_grow(wake: WakeWordEngine) -> None:
    (name, clip), *_ = said_words(wake)
    stream, hum = wake.open([name]), silence(5_000, ASR_RATE_HZ)
    assert [one.name for one in told(stream, clip)] == [name]
    tracemalloc.start()
    try:
        told(stream, hum)
        gc.collect()  # libraries called by ctypes leave reference cycles
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(4):
            told(stream, hum)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 65_536  # 20 s of kept sound would be 640 kB
    (again,) = told(stream, clip)
    assert again.position > 5 * len(hum)


# The end of a turn


@pytest.mark.parametrize(
    "name", [engine.name for engine in available("endpoint") if not engine.needs_path]
)
def test_end_of_turn_is_a_probability_or_unknown(name: str) -> None:
    engine: EndOfTurnDetector = created("endpoint", name)
    assert engine.name == name
    for pcm in (FIRST, SECOND[: len(SECOND) // 2], silence(500, ASR_RATE_HZ), NO_AUDIO):
        probability = engine.probability(pcm)
        assert probability is None or 0 <= probability <= 1


# Speech to text


@pytest.fixture(scope="module", params=names("asr"))
def asr(request: pytest.FixtureRequest) -> Iterator[AsrModel]:
    model: AsrModel = created("asr", request.param)
    yield model
    model.close()


def test_asr_transcribes_words(asr: AsrModel) -> None:
    asr_contract.hears_words(asr)


@pytest.mark.parametrize("pcm", [NO_AUDIO, silence(10, ASR_RATE_HZ), silence(2000, ASR_RATE_HZ)])
def test_asr_gives_no_text_for_silence(asr: AsrModel, pcm: Pcm) -> None:
    asr_contract.hears_nothing_in_nothing(asr, pcm)


def test_asr_accepts_an_empty_batch(asr: AsrModel) -> None:
    asr_contract.takes_an_empty_batch(asr)


def test_asr_simultaneous_utterances_keep_their_words(asr: AsrModel) -> None:
    asr_contract.utterances_at_once_keep_their_words(asr)


def test_asr_leaves_no_state_of_a_cancelled_utterance(asr: AsrModel) -> None:
    asr_contract.cancelled_utterance_leaves_nothing_behind(asr)


# Language


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """Returns the address of a server of another language model."""
    with server_in_thread(Completions()) as server:
        yield server.url


@pytest.fixture(params=names("llm"))
def llm(request: pytest.FixtureRequest, upstream: str) -> Llm:
    remote = {"base_url": upstream}
    options: dict[str, Mapping[str, Any]] = {
        "openai": remote,
        "hybrid": {"model": {"engine": "openai", "options": remote}},
    }
    engine: Llm = load("llm", request.param, options.get(request.param, {}))
    return engine


async def answer(
    llm: Llm, text: str, language: str = "en"
) -> list[TextDelta | ToolCall | TokenUsage]:
    messages = [Message("user", text)]
    async with aclosing(llm.reply(messages, (), language=language)) as deltas:
        return [delta async for delta in deltas if not isinstance(delta, CallDelta | RateLimits)]


def run_with(llm: Llm, scenario: Coroutine[Any, Any, T]) -> T:
    """Runs the scenario and closes the engine's connections, which belong to the loop."""

    async def run() -> T:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await scenario
        finally:
            if close := getattr(llm, "aclose", None):
                await close()

    return asyncio.run(run())


@pytest.mark.parametrize("text", ["", "   ", "blue elephants argue quietly about tea"])
def test_llm_answers_any_text_without_an_error(llm: Llm, text: str) -> None:
    deltas = run_with(llm, answer(llm, text))
    assert all(isinstance(delta, TextDelta | ToolCall | TokenUsage) for delta in deltas)


def test_llm_gives_simultaneous_answers(llm: Llm) -> None:
    async def scenario() -> list[list[TextDelta | ToolCall | TokenUsage]]:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(answer(llm, "hello", code)) for code in ("en", "de")]
        return [task.result() for task in running]

    together = run_with(llm, scenario())
    assert all(together)


def test_llm_works_after_an_abandoned_answer(llm: Llm) -> None:
    async def scenario() -> list[TextDelta | ToolCall | TokenUsage]:
        async with aclosing(llm.reply([Message("user", "hello")], (), language="en")) as deltas:
            await anext(deltas)
        return await answer(llm, "hello")

    assert run_with(llm, scenario())


# Text to speech


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Mapping[str, Any]]]:
    """Yields options of the voices that need a server or weights; the weights are random."""
    folder = tmp_path_factory.mktemp("voices")
    options = dict[str, Mapping[str, Any]]()
    if have_piper():
        options["piper"] = {"model": str(piper_voice(folder))}
    if have_kokoro():
        model, styles = kokoro_files(folder)
        options["kokoro"] = {"model": str(model), "voices": str(styles)}
    with serving_in_thread() as url:
        yield {**options, "openai": {"base_url": url}}


@pytest.fixture(params=names("tts"))
def tts(request: pytest.FixtureRequest, voices: Mapping[str, Mapping[str, Any]]) -> Tts:
    engine: Tts = created("tts", request.param, voices.get(request.param))
    return engine


async def given(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def reply_text(tts: Tts, *texts: str, language: str) -> list[AudioFrame]:
    async with aclosing(tts.speak(given(*texts), language=language)) as frames:
        return [frame async for frame in frames]


@pytest.mark.parametrize("texts", [(), ("",), ("  ", "\n")])
def test_tts_gives_no_audio_without_text(tts: Tts, texts: tuple[str, ...]) -> None:
    language = next(iter(tts.info.voices))
    assert asyncio.run(reply_text(tts, *texts, language=language)) == []


def test_tts_audio_is_continuous(tts: Tts) -> None:
    language = next(iter(tts.info.voices))
    frames = asyncio.run(reply_text(tts, "Anna.", "Otto.", language=language))
    assert [frame.start for frame in frames] == [0, *(frame.end for frame in frames[:-1])]
    assert {frame.rate_hz for frame in frames} == {tts.info.rate_hz}
    assert frames[-1].end > tts.info.rate_hz // 4
    assert max(int(np.abs(frame.pcm).max(initial=0)) for frame in frames) > 1000


def test_tts_works_after_an_abandoned_utterance(tts: Tts) -> None:
    language = next(iter(tts.info.voices))

    async def scenario() -> list[AudioFrame]:
        async with asyncio.timeout(PATIENCE_S):
            async with aclosing(tts.speak(given("Anna. " * 500), language=language)) as frames:
                await anext(frames)
            return await reply_text(tts, "Otto.", language=language)

    assert asyncio.run(scenario())[0].start == 0


def test_tts_simultaneous_sessions_get_their_own_audio(tts: Tts) -> None:
    language = next(iter(tts.info.voices))
    texts = ["Anna.", "Otto and Anna and Otto and Anna."]

    async def scenario() -> list[int]:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(reply_text(tts, text, language=language)) for text in texts
            ]
        return [task.result()[-1].end for task in running]

    alone = [asyncio.run(reply_text(tts, text, language=language))[-1].end for text in texts]
    assert asyncio.run(scenario()) == pytest.approx(alone, rel=0.05)


def test_tts_reports_words_in_order_if_it_supports_them(tts: Tts) -> None:
    texts, marks = ("Anna, Otto.", "And Anna."), list[WordMark]()

    async def scenario() -> int:
        language = next(iter(tts.info.voices))
        speech = tts.speak(given(*texts), language=language, on_word=marks.append)
        async with aclosing(speech) as frames:
            return [frame async for frame in frames][-1].end

    total_ms = samples_to_ms(asyncio.run(scenario()), tts.info.rate_hz)
    ends = [(mark.chunk, mark.end_char) for mark in marks]
    assert ends == sorted(set(ends))
    assert all(end <= len(texts[chunk]) for chunk, end in ends)
    assert all(mark.start_ms <= mark.end_ms <= total_ms + 1 for mark in marks)
    assert len(marks) == (4 if tts.info.has_word_times else 0)


@pytest.mark.parametrize("wrong", ["language", "voice"])
def test_tts_refuses_an_unknown_language_or_voice(
    tts: Tts, wrong: Literal["language", "voice"]
) -> None:
    known = next(iter(tts.info.voices))
    language, voice = ("xx", None) if wrong == "language" else (known, "nobody")

    async def scenario() -> None:
        async with aclosing(tts.speak(given("hi"), language=language, voice=voice)) as frames:
            await anext(frames)

    with pytest.raises(RequestError, match=r"xx|nobody"):
        asyncio.run(scenario())
