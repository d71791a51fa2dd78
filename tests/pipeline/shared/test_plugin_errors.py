"""An engine or tool of a third party raises any exception: the user hears an apology, and the
session goes on."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from core.conversation.events import (
    OutputTextDelta,
    PlayoutStarted,
    ResponseDone,
    TranscriptionFailed,
)
from core.errors import EngineError, chain_of
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import (
    AS_CONFIGURED,
    AsrItem,
    AsrResult,
    CallDelta,
    LlmOptions,
    Message,
    TextDelta,
    ToolCall,
    TtsInfo,
    Vad,
    WordMark,
)
from engines.base.wake import WakeWordDetection, WakeWordDetector
from pipeline.services import SessionServices
from pipeline.session.session import Session
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.shared.settings import SessionSettings, TurnDetection
from pipeline.speech.file import SpeechFileOptions, SpeechFiles
from serving.asr.scheduling import DecodePriority
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, EchoLlm, LevelAsr, LoudVad, ToneTts, World, speak
from tests.pipeline.scenes import of, run_session
from tests.pipeline.wakeful import NAME as WAKE_NAME
from tests.pipeline.wakeful import WORD_LEVEL, LevelWake, LevelWakes

pytestmark = pytest.mark.many

SECRET = "the words that were said"
BUGS = [ValueError, KeyError, RuntimeError]
SORRY = ("Sorry, that did not work.", "I could not do that, sorry.")


class OddLlm(EchoLlm):
    """A model that raises the given exception, before its first word or after it."""

    def __init__(self, bug: Exception, *, after_words: bool = False) -> None:
        super().__init__()
        self.bug: Exception | None = bug
        self.after_words = after_words

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall, None]:
        if self.bug is not None:
            if self.after_words:
                yield TextDelta("Well, this ")
            raise self.bug
        async for delta in super().reply(messages, tools, language=language, options=options):
            yield delta


class OddTts(ToneTts):
    """A voice that raises the given exception at its first clause."""

    info = TtsInfo("odd", 24_000, {"en": ("low",)})

    def __init__(self, bug: Exception) -> None:
        super().__init__()
        self.bug: Exception | None = bug

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        if self.bug is not None:
            async for _ in text:
                raise self.bug
        async for frame in super().speak(text, language=language, voice=voice, speed=speed):
            yield frame


class SpareTts(ToneTts):
    """A second voice, at another rate."""

    info = TtsInfo("spare", 16_000, {"en": ("plain",)})

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        start = 0
        async for clause in text:
            self.said.append(clause)
            await asyncio.sleep(0.01)
            yield AudioFrame(np.full(8000, 9000, np.int16), 16_000, start)
            start += 8000


class OddAsr(LevelAsr):
    """A recogniser that fails as the gateway reports a worker whose engine raised an exception."""

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        if self.broken:
            raise EngineError("asr", "odd", "ValueError")
        return await super().decode(item, priority)


async def two_turns(session: Session, repair: Callable[[], None]) -> None:
    await speak(session, (0, 200), (1000, 600), (0, 4000))
    repair()
    await speak(session, (2000, 600), (0, 4000))


def statuses(events: list[Any]) -> list[str]:
    return [done.status for done in of(ResponseDone, events)]


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("after_words", [False, True])
def test_a_language_model_that_raises_is_apologised_for_and_the_next_turn_works(
    bug: type[Exception], after_words: bool, caplog: pytest.LogCaptureFixture
) -> None:
    llm = OddLlm(bug(SECRET), after_words=after_words)
    world = World(llm=llm)

    async def scenario(session: Session) -> None:
        await two_turns(session, lambda: setattr(llm, "bug", None))

    with caplog.at_level(logging.INFO):
        events = run_session(world, scenario)
    assert statuses(events) == ["failed", "completed"]
    failed, _ = of(ResponseDone, events)
    assert failed.error_code == "engine_failed"
    assert SECRET not in str(failed.error_message)
    said = "".join(event.delta for event in of(OutputTextDelta, events))
    assert any(sentence in said for sentence in SORRY)
    assert said.endswith("you said two. ")
    assert len(of(PlayoutStarted, events)) == 2
    assert world.metrics.counts["earshot_errors:engine_failed"] >= 1
    assert bug.__name__ in caplog.text
    assert "test_plugin_errors.py" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("bug", BUGS)
def test_another_voice_apologises_for_a_voice_that_raises(
    bug: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    odd, spare = OddTts(bug(SECRET)), SpareTts()
    world = World(tts=odd, spare=spare)

    async def scenario(session: Session) -> None:
        await two_turns(session, lambda: setattr(odd, "bug", None))

    with caplog.at_level(logging.INFO):
        events = run_session(world, scenario)
    assert statuses(events) == ["failed", "completed"]
    assert spare.said == [SORRY[0]]
    said = "".join(event.delta for event in of(OutputTextDelta, events))
    assert f"you said one.  … {SORRY[0]}" in said
    assert len(of(PlayoutStarted, events)) == 2
    assert world.metrics.counts["earshot_errors:engine_failed"] >= 1
    assert "test_plugin_errors.py" in caplog.text
    assert SECRET not in caplog.text


def test_without_another_voice_the_answer_fails_and_the_session_goes_on() -> None:
    odd = OddTts(ValueError(SECRET))

    async def scenario(session: Session) -> None:
        await two_turns(session, lambda: setattr(odd, "bug", None))

    events = run_session(World(tts=odd), scenario)
    assert statuses(events) == ["failed", "completed"]


def test_a_failing_second_voice_does_not_end_the_session() -> None:
    odd, spare = OddTts(ValueError(SECRET)), OddTts(KeyError(SECRET))

    async def scenario(session: Session) -> None:
        await two_turns(session, lambda: setattr(odd, "bug", None))

    events = run_session(World(tts=odd, spare=spare), scenario)
    assert statuses(events) == ["failed", "completed"]


def test_a_failing_recogniser_is_apologised_for() -> None:
    asr = OddAsr()
    asr.broken = True

    async def scenario(session: Session) -> None:
        await two_turns(session, lambda: setattr(asr, "broken", False))

    events = run_session(World(asr=asr), scenario)
    assert len(of(TranscriptionFailed, events)) == 1
    said = "".join(event.delta for event in of(OutputTextDelta, events))
    assert said == f"{SORRY[0]}you said two. "


@pytest.mark.parametrize(
    "settings",
    [
        SessionSettings(answers=False),
        SessionSettings(turn_detection=None),
        SessionSettings(turn_detection=TurnDetection(create_response=False)),
        SessionSettings(modality="text"),
    ],
    ids=["transcription", "push to talk", "no response", "written"],
)
def test_turns_without_an_automatic_spoken_answer_get_no_apology(
    settings: SessionSettings,
) -> None:
    asr = OddAsr()
    asr.broken = True

    async def scenario(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 300))
        if settings.turn_detection is None:
            session.commit_input()
        await speak(session, (0, 3000))

    events = run_session(World(asr=asr), scenario, settings)
    assert len(of(TranscriptionFailed, events)) == 1
    assert not of(ResponseDone, events)


class OddEndpoint:
    name = "odd"

    def probability(self, pcm: Pcm) -> float | None:
        raise ValueError(SECRET)


def test_an_end_of_turn_engine_that_raises_is_ignored() -> None:
    world = World(endpoint=OddEndpoint())
    settings = SessionSettings(turn_detection=TurnDetection("semantic_vad"))

    async def scenario(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 6000))

    events = run_session(world, scenario, settings)
    assert statuses(events) == ["completed"]


class RefusingTts(ToneTts):
    """A voice that raises when it is called: `speak` is a plain function that returns an
    iterator."""

    def __init__(self) -> None:
        super().__init__()
        self.is_odd = True

    def speak(self, *args: Any, **options: Any) -> AsyncGenerator[AudioFrame, None]:
        if self.is_odd:
            raise ValueError(SECRET)
        return super().speak(*args, **options)


def test_a_voice_that_raises_when_called_fails_one_answer_only() -> None:
    odd = RefusingTts()

    async def scenario(session: Session) -> None:
        await two_turns(session, lambda: setattr(odd, "is_odd", False))

    events = run_session(World(tts=odd), scenario)
    assert statuses(events) == ["failed", "completed"]


def test_a_voice_that_raises_when_called_is_an_engine_error_of_a_speech_file() -> None:
    async def text() -> AsyncGenerator[str, None]:
        yield "Hello."

    async def main() -> None:
        engines = World(tts=RefusingTts()).services().engines
        sound = SpeechFiles(engines).file(text(), SpeechFileOptions("en"), "pcm", 16_000)
        with pytest.raises(EngineError):
            await anext(sound.chunks())

    run_virtual(main())


class OddVad(LoudVad):
    def __init__(self, engine: "OddVads") -> None:
        self.engine = engine

    def push(self, pcm: Pcm) -> float:
        if self.engine.bugs > 0:
            self.engine.bugs -= 1
            raise ValueError(SECRET)
        return super().push(pcm)


class OddVads:
    """A VAD whose streams raise for this number of frames."""

    name = "odd"

    def __init__(self, bugs: int) -> None:
        self.bugs, self.opened = bugs, 0

    def open(self) -> Vad:
        self.opened += 1
        return OddVad(self)


@pytest.mark.parametrize("bugs", [1, 5])
def test_a_vad_that_raises_is_reopened_and_logged_once(
    bugs: int, caplog: pytest.LogCaptureFixture
) -> None:
    vad = OddVads(bugs)
    world = World(vad=vad)

    async def scenario(session: Session) -> None:
        await speak(session, (0, 200), (1000, 600), (0, 4000))

    with caplog.at_level(logging.ERROR):
        events = run_session(world, scenario)
    assert statuses(events) == ["completed"]
    assert vad.opened == 1 + bugs
    assert caplog.text.count("vad engine 'odd' failed") == 1
    assert SECRET not in caplog.text
    assert world.metrics.counts["earshot_errors:engine_failed"] == 1


class OddWake(LevelWake):
    """A wake word detector that raises at its third frame and at its reset."""

    def __init__(self, name: str, wakes: "OddWakes") -> None:
        super().__init__(name, 0)
        self._wakes, self._frames = wakes, 0

    def push(self, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        self._frames += 1
        if self._wakes.opened == 1 and self._frames == 3:
            raise ValueError(SECRET)
        return super().push(pcm)

    def reset(self) -> None:
        raise ValueError(SECRET)


class OddWakes(LevelWakes):
    opened = 0

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        self.opened += 1
        return OddWake(names[0], self)


def test_a_wake_word_engine_that_raises_is_reopened_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wakes = OddWakes()

    class Waking(World):
        def services(self) -> SessionServices:
            usual = super().services()
            return replace(usual, engines=replace(usual.engines, wake=wakes))

    world = Waking()
    turn = ((0, 500), (WORD_LEVEL, 200), (0, 300), (1000, 600), (0, 4000))

    async def scenario(session: Session) -> None:
        await speak(session, *turn, (0, 20_000), *turn)

    with caplog.at_level(logging.ERROR):
        events = run_session(world, scenario, SessionSettings(wake_word=WAKE_NAME))
    assert statuses(events) == ["completed", "completed"]
    assert wakes.opened == 3, "after the third frame, and to sleep again"
    assert caplog.text.count("wake engine 'level' failed") == 1
    assert SECRET not in caplog.text
    assert world.metrics.counts["earshot_errors:engine_failed"] == 1


class ContextLlm(EchoLlm):
    """A model that raises when its context size is read."""

    is_odd = True

    @property
    def context_tokens(self) -> int | None:
        if self.is_odd:
            raise ValueError(SECRET)
        return None

    @context_tokens.setter
    def context_tokens(self, tokens: int | None) -> None:
        pass


class DeclaringLlm(EchoLlm):
    """A model that raises when its tool declarations are read."""

    is_odd = True

    def __init__(self) -> None:
        super().__init__()
        self.context_tokens = 4096

    def filter_tools(self, tools: Sequence[ToolSpec], *, language: str) -> Sequence[ToolSpec]:
        if self.is_odd:
            raise ValueError(SECRET)
        return tools


@pytest.mark.parametrize("engine", [ContextLlm, DeclaringLlm])
def test_a_language_model_that_raises_before_its_request_fails_one_answer_only(
    engine: type[ContextLlm | DeclaringLlm],
) -> None:
    llm = engine()
    world = World(llm=llm)

    async def scenario(session: Session) -> None:
        await two_turns(session, lambda: setattr(llm, "is_odd", False))

    events = run_session(world, scenario)
    assert statuses(events) == ["failed", "completed"]
    assert world.metrics.counts["earshot_errors:engine_failed"] >= 1


class OddTools:
    """A provider that raises when its tools are listed."""

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        raise ValueError(SECRET)

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        raise AssertionError("it has no tools")


def test_a_tool_provider_that_raises_offers_no_tools(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.providers = [OddTools(), *world.providers]

    async def scenario(session: Session) -> None:
        await speak(session, (0, 200), (4000, 600), (0, 4000), (4000, 600), (0, 4000))

    with caplog.at_level(logging.ERROR):
        events = run_session(world, scenario)
    assert statuses(events) == ["completed", "completed"]
    said = "".join(event.delta for event in of(OutputTextDelta, events))
    assert said.count("it is 4") == 2
    assert caplog.text.count("OddTools") == 1
    assert SECRET not in caplog.text


def test_a_chain_names_each_cause_and_its_place_without_messages() -> None:
    def inner() -> None:
        raise KeyError(SECRET)

    def outer() -> None:
        try:
            inner()
        except KeyError as error:
            raise ValueError(SECRET) from error

    with pytest.raises(ValueError, match=SECRET) as caught:
        outer()
    told = chain_of(caught.value)
    first, second = told.split(", caused by ")
    assert first.startswith("ValueError at ")
    assert second.startswith("KeyError at ")
    assert "in inner" in second
    assert SECRET not in told


def test_own_errors_pass_unchanged_and_uncounted() -> None:
    error, counts = EngineError("llm", "x"), Counts()
    with pytest.raises(EngineError) as caught, plugin_errors("llm", "x", counts):
        raise error
    assert caught.value is error
    assert not counts.counts
