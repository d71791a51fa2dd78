"""The inference API behind the real error handling, with scripted engines."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import ClientSession

from core.access.named_key import KeySessions
from core.audio import AudioFrame
from core.errors import EngineError
from devices.willow.wis.door import WillowDoor, WillowSettings
from devices.willow.wis.routes import routes
from engines.base import LlmOptions, TextDelta, Tts, WordMark
from media.files.upload_spool import SpoolLimits, UploadSpools
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.one_shot import OneShotResponses
from pipeline.speech.file import SpeechFiles
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.recording import Transcriber
from serving.speaker.recognition import SpeakerRecognition
from tests.loop import LoopbackClockLoop, run_virtual
from tests.media.files.thread_decoder import ThreadDecoder
from tests.pipeline.fakes import Adder, Counts, EchoLlm, LevelAsr, LoopClock, LoudVads, ToneTts
from tests.server.http.harness import serving

DEADLINE_S = 30
MAX_UPLOAD_BYTES = 4 * 1024 * 1024


class TranslatingAsr(LevelAsr):
    """A recogniser of two languages that returns `in English: ...` for a translation."""

    def __init__(self, *, translates: bool = True) -> None:
        super().__init__(0.01)
        supports = ("beam_size", *(["task"] if translates else []))
        self.info = replace(self.info, languages=("en", "de"), supports=supports)
        self.options: list[Any] = []

    async def decode(self, item: Any, priority: Any) -> Any:
        self.options.append(item.options)
        result = await super().decode(item, priority)
        if item.options.task == "translate":
            return replace(result, text=f"in English: {result.text}")
        return replace(result, language=item.options.language or "de")


class UsualLanguage(TextLanguageDetector):
    """A language detector: German if the text has `Licht`. The real model has its own tests."""

    async def of(self, text: str, usual: str, known: object = ()) -> str:
        return "de" if "Licht" in text else usual


@dataclass
class Scene:
    asr: TranslatingAsr = field(default_factory=TranslatingAsr)
    tts: ToneTts = field(default_factory=ToneTts)
    voices: Mapping[str, Tts] = field(default_factory=dict)
    "Further voice engines by name."
    llm: EchoLlm = field(default_factory=lambda: EchoLlm(0.001))
    conversations: Conversations = field(default_factory=Conversations)
    max_questions: int = 4
    is_strict: bool = True
    settings: WillowSettings = field(default_factory=WillowSettings)
    spools: UploadSpools = field(
        default_factory=lambda: UploadSpools(SpoolLimits(MAX_UPLOAD_BYTES))
    )
    key_sessions: KeySessions = field(default_factory=KeySessions)
    speakers: SpeakerRecognition | None = None
    bugs: list[BaseExceptionGroup[BaseException]] = field(default_factory=list)

    async def guard(self, work: Awaitable[None], name: str) -> None:
        try:
            await work
        except ExceptionGroup as bug:
            self.bugs.append(bug)

    def door(self) -> WillowDoor:
        engines = EngineSet(
            LoudVads(),
            asr={"default": self.asr, "level": self.asr, "small.en": self.asr},
            llm={"default": self.llm, "echo": self.llm},
            tts={"default": self.tts, **self.voices},
            is_strict=self.is_strict,
        )
        metrics, clock = Counts(), LoopClock()
        services = SessionServices(engines, Toolbox([Adder()], metrics), clock, metrics)
        self.reader = SpeechFiles(engines)
        self.exchanges = OneShotResponses(
            services, self.conversations, UsualLanguage(), max_parallel=self.max_questions
        )
        return WillowDoor(
            engines,
            Transcriber(engines),
            self.spools,
            ThreadDecoder(),
            clock,
            self.guard,
            self.reader,
            self.exchanges,
            self.key_sessions,
            self.settings,
            speakers=self.speakers,
        )


@dataclass
class Server:
    client: ClientSession
    door: WillowDoor
    scene: Scene

    async def uploads(self, count: int) -> None:
        """Waits until so many uploads are under way, within the test's deadline."""
        while True:
            if self.scene.spools.count == count:
                return
            await asyncio.sleep(0.01)

    async def without_listeners(self) -> None:
        """Waits until no connection belongs to a conversation, within the test's deadline."""
        known = self.scene.conversations._conversations.values()
        while True:
            if not any(one.sessions for one in known):
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(scene: Scene | None = None) -> AsyncIterator[Server]:
    """Runs the API; afterwards nothing of its uploads and calls may be left."""
    scene = scene or Scene()
    door = scene.door()
    async with asyncio.TaskGroup() as tasks:
        calls = tasks.create_task(door.run())
        async with serving(routes(door)) as client:
            yield Server(client, door, scene)
        calls.cancel()
    assert (scene.spools.count, scene.spools.used_bytes, door.calls.count) == (0, 0, 0)
    assert (scene.reader.count, scene.exchanges.count) == (0, 0)
    assert scene.bugs == []


def against(
    act: Callable[[Server], Awaitable[Any]],
    scene: Scene | None = None,
    *,
    is_virtual: bool = True,
) -> None:
    """Runs a scene against a server, within a time limit. Virtual time hides a loop that blocks."""

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), running(scene) as server:
            await act(server)

    if is_virtual:
        run_virtual(main(), LoopbackClockLoop)
    else:
        asyncio.run(main())


class PickyTts(ToneTts):
    """A voice that records its requests; `wait` stops it after the first piece of each clause."""

    def __init__(self) -> None:
        super().__init__(clause_ms=300)
        self.asked: list[tuple[str, str, str | None, float]] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.breaks = False

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        async def noted() -> AsyncIterable[str]:
            async for clause in text:
                self.asked.append((clause, language, voice, speed))
                if clause != "-":
                    yield clause

        async for frame in super().speak(noted(), language=language, voice=voice, speed=speed):
            yield frame
            await self.goes_on.wait()
            if self.breaks:
                raise EngineError("tts", "tone", "breaks on purpose")


class HeldLlm(EchoLlm):
    """A language model that writes one sentence, and the next one when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.is_asked = asyncio.Event()
        self.is_closed = asyncio.Event()
        self.options: list[LlmOptions] = []

    async def reply(self, messages: Any, tools: Any, *, language: str, options: Any = None) -> Any:
        self.asked.append(list(messages))
        self.languages_asked.append(language)
        self.options.append(options)
        self.is_asked.set()
        complete = False
        try:
            yield TextDelta("One whole sentence. ")
            await self.goes_on.wait()
            yield TextDelta("And another one.")
            complete = True
        finally:
            self.closed_early += not complete
            self.is_closed.set()
