"""The reports about engines and the home for the page."""

import asyncio
from collections.abc import AsyncGenerator

from pipeline.tools.home import DemoHome, EntityState, HomeState, TimerState, default_home
from web.engines import EngineChoice, EngineOffer, EnginesReport


def _choice(name: str, *languages: str) -> EngineChoice:
    return EngineChoice(name, "only one installed", (EngineOffer(name, languages, True),))


REPORT = EnginesReport(
    asr=EngineChoice(
        "pocketsphinx",
        "no Whisper weights in models/",
        (
            EngineOffer("pocketsphinx", ("en",), True),
            EngineOffer("faster_whisper", ("*",), False, "no weights"),
        ),
    ),
    llm=_choice("intents", "en", "de"),
    tts=_choice("espeak", "en", "de"),
    vad=_choice("silero"),
    languages=("en", "de", "fr", "es"),
)


def _home(revision: int, state: str = "off", name: str = "Lamp") -> HomeState:
    return HomeState(
        revision,
        areas=(),
        entities=(EntityState("light.lamp", name, "kitchen", "light", state, {}),),
        shopping_list=(),
        timers=(TimerState("timer_1", "tea\neggs", "conv_1", 60.0, 12.5, "running"),),
    )


class FakeHome(DemoHome):
    """A home with a new state each time `change` is set; it counts its watchers."""

    def __init__(self) -> None:
        super().__init__(default_home())
        self.changed = asyncio.Event()
        self.left = asyncio.Event()
        self.watchers = 0
        self.asked: list[str | None] = []

    def snapshot(self, language: str | None = None) -> HomeState:
        self.asked.append(language)
        return _home(1, name={"de": "Lampe"}.get(language or "", "Lamp"))

    async def watch(self, language: str | None = None) -> AsyncGenerator[HomeState, None]:
        self.asked.append(language)
        self.watchers += 1
        try:
            yield _home(1)
            await self.changed.wait()
            yield _home(2, "on")
            await asyncio.Event().wait()
        finally:
            self.watchers -= 1
            self.left.set()
