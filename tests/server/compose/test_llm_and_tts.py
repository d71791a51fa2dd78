"""The engines of text and speech from their choice to the server's end: checks, warm-up, lists."""

import asyncio
import gc
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from bench.server.stub_engines.tts import Settings, create
from core.errors import ConfigError, EngineCrashed, EngineError, NotFound
from core.ports import ToolSpec
from engines.llm import intents
from engines.llm.hybrid import HybridLlm
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from pipeline.tools.toolbox import Toolbox
from server.compose.engines import Engines
from server.compose.llm_and_tts import (
    WARM_UP_AFTER_S,
    check_voice,
    load_language_model,
    start_language_model,
    warm_other_languages,
)
from server.compose.model_cards import ModelCards
from serving.model_host.source import OwnWorkers
from serving.placement.choose import KINDS, EngineSelection
from serving.workers.process_llm import ProcessLlm
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, World
from web.openai.models import model


class Model:
    """A model that records for which languages it is warmed."""

    name = "scripted"
    context_tokens: int | None = 512

    def __init__(self, *languages: str, failure: EngineError | None = None) -> None:
        self.languages = languages
        self.warmed: list[str] = []
        self._failure = failure

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        self.warmed.append(language)
        if self._failure:
            raise self._failure

    async def reply(self, *_: Any, **__: Any) -> Any:
        yield


class Commands(Model):
    """A fake of the command templates."""


@pytest.fixture(autouse=True)
def _no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips collecting and freezing the objects of the whole test run, which would take long."""
    monkeypatch.setattr(gc, "collect", lambda: 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)


def toolbox() -> Toolbox:
    return Toolbox((), Counts())


def no_sessions() -> Sessions:
    world = World()
    return Sessions(world.services(), world.conversations, max_sessions=1)


def test_other_languages_are_warmed_even_if_a_model_is_lost_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = Model("de", "en", "fr", "pl")
    run_virtual(warm_other_languages(good, "en", toolbox(), no_sessions()))
    assert good.warmed == ["de", "fr"]
    lost = Model("de", "en", failure=EngineCrashed("llm", "scripted", "its process died"))
    run_virtual(warm_other_languages(lost, "en", toolbox(), no_sessions()))
    assert lost.warmed == ["de"]
    assert "its process died" in caplog.text


def test_other_languages_wait_until_nobody_talks() -> None:
    model, sessions = Model("de", "en"), no_sessions()
    warmed_at: list[float] = []

    async def main() -> None:
        warm_up = asyncio.create_task(warm_other_languages(model, "en", toolbox(), sessions))
        await asyncio.sleep(WARM_UP_AFTER_S - 1)
        async with sessions.open(SessionSettings(), paced_by="server"):
            await asyncio.sleep(100)
            assert not model.warmed
        began = asyncio.get_running_loop().time()
        await warm_up
        warmed_at.append(asyncio.get_running_loop().time() - began)

    run_virtual(main())
    assert model.warmed == ["de"]
    assert warmed_at == pytest.approx([WARM_UP_AFTER_S])


def test_other_languages_wait_while_requests_without_a_session_are_answered() -> None:
    model = Model("de", "en")
    used_s = iter([0.0, 9.0, 9.0, 18.0, 18.0, 18.5])  # before and after each wait

    async def main() -> float:
        await warm_other_languages(model, "en", toolbox(), no_sessions(), used_s.__next__)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(3 * WARM_UP_AFTER_S)
    assert model.warmed == ["de"]


def test_a_model_that_never_loads_fails_the_start() -> None:
    model = Model(failure=EngineError("llm", "scripted", "no weights"))

    async def start() -> None:
        async with AsyncExitStack() as stack:
            await start_language_model(model, "en", toolbox(), stack)

    with pytest.raises(EngineError, match="no weights"):
        asyncio.run(start())


def test_commands_are_warmed_in_every_language_of_the_home() -> None:
    commands, model = Commands("en", "de"), Model()
    hybrid = HybridLlm(commands, model)  # type: ignore[arg-type]
    assert hybrid.languages == ()

    async def start() -> None:
        async with AsyncExitStack() as stack:
            await start_language_model(hybrid, "de", toolbox(), stack)
            await warm_other_languages(hybrid, "de", toolbox(), no_sessions())

    run_virtual(start())
    assert commands.warmed == ["de", "en", "fr", "es"]
    assert model.warmed == ["de"]


@pytest.mark.parametrize(
    "model", [3, {"engine": "vllm", "options": 3}, {"engine": "openai", "options": [1]}]
)
def test_unknown_options_are_named(model: Any) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            choice = EngineSelection("llm", HybridLlm.name, {"model": model}, "")
            await load_language_model(choice, OwnWorkers(Counts()), Counts(), stack)

    with pytest.raises(ConfigError, match="model"):
        asyncio.run(scenario())


@pytest.mark.parametrize("is_hybrid", [False, True])
def test_a_model_that_belongs_into_a_worker_gets_one_also_behind_a_hybrid(is_hybrid: bool) -> None:
    name = "tests.serving.workers.odd_llm"
    options: dict[str, Any] = {"at_once": 3}
    if is_hybrid:
        options = {"model": {"engine": name, "options": options}}
        name = HybridLlm.name

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            choice = EngineSelection("llm", name, options, "")
            llm = await load_language_model(choice, OwnWorkers(Counts()), Counts(), stack)
            assert isinstance(llm, HybridLlm) == is_hybrid
            model = llm.model if isinstance(llm, HybridLlm) else llm
            assert isinstance(model, ProcessLlm)
            assert (model.name, model.max_concurrency) == ("odd", 3)

    asyncio.run(scenario())


@pytest.mark.parametrize("wish", ["default", "stub", "stub:stub"])
def test_an_existing_voice_may_be_configured(wish: str) -> None:
    check_voice(wish, {"stub": create(Settings())}, "en")


def test_an_unknown_voice_fails_the_start() -> None:
    with pytest.raises(ConfigError, match=r"assistant\.voice: no voice 'nova'; allowed: default"):
        check_voice("nova", {"stub": create(Settings())}, "en")


def test_the_templates_accept_any_language_for_warming() -> None:
    """A language without sentences has nothing to load, which is not an error."""

    async def scenario() -> None:
        await intents.create(intents.Settings()).warm("xx", ())

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("is_strict", "name", "is_known"),
    [(True, "tiny", True), (True, "my-model", False), (False, "my-model", True)],
)
def test_any_model_name_is_found_if_names_are_not_strict(
    is_strict: bool, name: str, is_known: bool
) -> None:
    class Nothing:
        """A registry without models."""

        def listing(self) -> Mapping[str, object]:
            return {}

    @dataclass
    class Ready:
        """The part of the engines that the lists need."""

        asr: Mapping[str, object]
        choices: Mapping[str, EngineSelection]
        registry: Nothing = field(default_factory=Nothing)
        remote: Sequence[object] = ()

    choices: dict[str, EngineSelection] = {
        kind: EngineSelection(kind, kind, {}, "") for kind in KINDS
    }
    cards = ModelCards(cast("Engines", Ready({"tiny": 1}, choices)), is_strict)
    assert cards.knows(name) is is_known
    if is_known:
        assert json.loads(cast(bytes, model(cards, name).body))["id"] == name
    else:
        with pytest.raises(NotFound):
            model(cards, name)
