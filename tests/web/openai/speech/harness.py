"""The speech API behind the real error handling, with a scripted voice that can be held."""

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
from dataclasses import dataclass

from aiohttp import ClientResponse, ClientSession
from openai import AsyncOpenAI

from core.audio import AudioFrame
from core.errors import EngineError
from engines.base import TtsInfo, WordMark
from pipeline.services import EngineSet
from pipeline.shared.settings import DEFAULT, SessionSettings
from pipeline.speech.file import SpeechFiles
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.voices import VoiceRating
from server.config.sections.limits import LimitsConfig
from serving.remote.models import RemoteModels
from tests.pipeline.fakes import LoudVads, ToneTts
from tests.server.http.harness import serving
from web.indri import IndriDoor
from web.openai.routes import indri_routes, speech_routes
from web.openai.speech.door import SpeechDoor

SPEECH = "/v1/audio/speech"
TIMEOUT_S = 20.0


class HeldTts(ToneTts):
    """A voice that records its requests; while `goes_on` is clear it stops after each piece."""

    info = TtsInfo(
        "tone",
        24_000,
        {"en": ("low", "high"), "de": ("tief",)},
        genders={"low": "male", "high": "female"},
    )

    def __init__(self) -> None:
        super().__init__(clause_ms=300)
        self.asked: list[tuple[str, str, str | None, float]] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.is_asked = asyncio.Event()
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
                self.is_asked.set()
                if clause != "-":
                    yield clause

        async for frame in super().speak(noted(), language=language, voice=voice, speed=speed):
            yield frame
            await self.goes_on.wait()
            if self.breaks:
                raise EngineError("tts", "tone", "breaks on purpose")


class UsualLanguage(TextLanguageDetector):
    """A language detector: German if the text has `Licht`. The real model has its own tests."""

    async def detect(self, text: str, usual: str, known: object = ()) -> str:
        return "de" if "Licht" in text else usual


@dataclass
class Server:
    client: ClientSession
    tts: HeldTts
    reader: SpeechFiles

    @property
    def url(self) -> str:
        return str(self.client._base_url).rstrip("/")

    async def post(self, **fields: object) -> ClientResponse:
        body = {"model": "tts-1", "voice": "alloy", "input": "Hello there.", **fields}
        sent = {name: value for name, value in body.items() if value is not None}
        return await self.client.post(SPEECH, json=sent)

    def sdk(self) -> AsyncOpenAI:
        return AsyncOpenAI(api_key="key", base_url=f"{self.url}/v1", max_retries=0)


class Opinions:
    """Keeps opinions of voices in memory."""

    def __init__(self) -> None:
        self._ratings: dict[str, VoiceRating] = {}

    async def rate(self, voice: str, *, is_good: bool) -> None:
        before = self._ratings.get(voice, VoiceRating(0, 0))
        self._ratings[voice] = VoiceRating(before.good + is_good, before.bad + (not is_good))

    async def ratings(self) -> Mapping[str, VoiceRating]:
        return self._ratings


def speech_door(
    tts: HeldTts, max_parallel: int, *, spare: HeldTts | None = None, voice: str = DEFAULT
) -> tuple[SpeechDoor, SpeechFiles]:
    """Returns a door, and what makes its files. spare: a second engine. voice: that of the caller's
    key."""
    voices = {"default": tts, "tone": tts} | ({"spare": spare} if spare else {})
    engines = EngineSet(LoudVads(), {}, {}, voices)
    reader = SpeechFiles(engines, max_parallel=max_parallel)
    opened = SpeechDoor(
        engines,
        reader,
        UsualLanguage(),
        LimitsConfig().as_limits().speech,
        RemoteModels(),
        lambda: SessionSettings(voice=voice),
    )
    return opened, reader


@asynccontextmanager
async def door(
    tts: HeldTts, max_parallel: int, *, spare: HeldTts | None = None, voice: str = DEFAULT
) -> AsyncIterator[Server]:
    """Runs a door; the arguments are those of `speech_door`."""
    opened, reader = speech_door(tts, max_parallel, spare=spare, voice=voice)
    indri = IndriDoor(opened, reader, LimitsConfig().as_limits().speech, Opinions())
    async with serving((*speech_routes(opened), *indri_routes(indri))) as client:
        yield Server(client, tts, reader)


def against(
    scene: Callable[[Server], Awaitable[None]],
    tts: HeldTts | None = None,
    *,
    max_parallel: int = 4,
) -> None:
    """Runs a scene; afterwards no text may be in progress."""

    async def run() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            door(tts or HeldTts(), max_parallel) as server,
        ):
            await scene(server)
            await until(lambda: server.reader.count == 0)

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    """Waits until `holds()`; the caller's timeout ends it."""
    while not holds():  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)
