"""The reports about engines and the home for the page."""

import asyncio
from collections.abc import AsyncGenerator

from core.errors import NotFound
from pipeline.tools.home import EntityState, Home, HomeState, TimerState, default_home
from pipeline.tools.home.state import OnOff
from pipeline.tools.skills import HomeControls
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


class FakeHome(Home):
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


class FakeButtons(HomeControls):
    """Buttons that note what they were asked to do; things with an unknown id are not there."""

    def __init__(self) -> None:
        self.pressed: list[tuple[str, str, object]] = []

    async def switch(self, entity_id: str, state: OnOff) -> None:
        self._press("switch", entity_id, state)

    def tick(self, item_id: str, *, is_done: bool) -> None:
        self._press("tick", item_id, is_done)

    def cancel_timer(self, timer_id: str) -> None:
        self._press("cancel", timer_id, None)

    def _press(self, button: str, thing: str, value: object) -> None:
        if thing == "unknown":
            raise NotFound("not there")
        self.pressed.append((button, thing, value))
