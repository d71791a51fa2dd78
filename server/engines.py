"""The chosen engines, loaded and running: recognition in its worker, the light ones in here."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from core.ports import Clock, Metrics, ToolContext, ToolSpec
from engines.base import AsrInfo, AsrItem, AsrResult, Llm, Tts, VadEngine
from engines.llm.intents import phrases
from engines.registry import Kind, load
from pipeline.engines import EngineSet
from pipeline.settings import DEFAULT
from pipeline.tools import Toolbox
from server.config import Config
from server.survey import Survey, choose_one, choose_recognisers, survey
from serving.choose import KINDS, Choice, worker_count
from serving.pools.process import ProcessWorker
from serving.scheduler import AsrScheduler, Priority
from web.engines import EngineChoice, EngineOffer, EnginesReport

logger = logging.getLogger(__name__)

LEARNS_PHRASES = "pocketsphinx"
"The recogniser whose language model is trained, at start, on what the assistant understands."

PHRASES_LANGUAGE = "en"
"The only one it hears."

MAX_PHRASES = 20_000
"Fewer leave numbers and durations to chance; more train no better, only longer."

HOME_LANGUAGES = ("en", "de", "fr", "es")
"In which the bundled home has names, and the skills have sentences and replies of ours."


@dataclass(frozen=True, slots=True)
class SharedRecogniser:
    """One recognition model as sessions see it: a queue, and what the model told about itself."""

    info: AsrInfo
    _scheduler: AsrScheduler = field(repr=False)

    async def decode(self, item: AsrItem, priority: Priority) -> AsrResult:
        return await self._scheduler.decode(item, priority)

    def forget(self, utterance: str) -> None:
        self._scheduler.forget(utterance)


@runtime_checkable
class Warms(Protocol):
    """A language model that is slow the first time unless it is told beforehand."""

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None: ...


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines that are ready, with how they were chosen."""

    vad: VadEngine
    asr: Mapping[str, SharedRecogniser]
    "By name; the default is in `choices`."
    llm: Llm
    tts: Tts
    choices: Mapping[Kind, Choice]
    _pools: Sequence[Sequence[ProcessWorker]] = field(repr=False)
    "Each recogniser's workers."
    _survey: Survey = field(repr=False)

    def is_loaded(self) -> bool:
        """Whether every model is there now; a crashed one comes back."""
        return all(any(worker.is_ready for worker in pool) for pool in self._pools)

    def names(self) -> Mapping[str, str]:
        """Kind -> the engine that serves it."""
        return {kind: choice.name for kind, choice in self.choices.items()}

    def engine_set(self, language: str) -> EngineSet:
        """As sessions choose among them; `language` is theirs when they do not say."""
        return EngineSet(
            self.vad,
            asr={DEFAULT: self.asr[self.choices["asr"].name], **self.asr},
            llm={DEFAULT: self.llm, self.choices["llm"].name: self.llm},
            tts={DEFAULT: self.tts, self.choices["tts"].name: self.tts},
            default_language=language,
        )

    def report(self, language: str) -> EnginesReport:
        """What the page shows."""
        languages = {
            **{name: recogniser.info.languages for name, recogniser in self.asr.items()},
            self.choices["llm"].name: self.llm.languages,
            self.choices["tts"].name: tuple(self.tts.info.voices),
        }

        def one(kind: Kind) -> EngineChoice:
            offers = tuple(
                EngineOffer(e.name, languages.get(e.name, ()), e.installed, e.reason)
                for e in self._survey.known[kind]
            )
            return EngineChoice(self.choices[kind].name, self.choices[kind].why, offers)

        return EnginesReport(
            one("asr"), one("llm"), one("tts"), one("vad"), self.engine_set(language).languages()
        )


@asynccontextmanager
async def running(
    config: Config, toolbox: Toolbox, clock: Clock, metrics: Metrics
) -> AsyncIterator[Engines]:
    """Choose, load and warm the engines; they run while the body does.

    Raises EngineMissing and ConfigError, possibly as an ExceptionGroup.
    """
    found = await asyncio.to_thread(survey, config.paths.models_dir)
    recognisers = choose_recognisers(config, found)
    choices = {kind: choose_one(config, kind, found) for kind in KINDS}
    for choice in (*recognisers[1:], *choices.values()):
        logger.info("%s: %s (%s)", choice.kind, choice.name, choice.why)
    pools = [
        [
            ProcessWorker("asr", c.name, _asr_options(c, toolbox), metrics, index)
            for index in range(_worker_count(config, c, choices["asr"], found))
        ]
        for c in recognisers
    ]
    schedulers = [AsrScheduler(pool, clock, metrics) for pool in pools]
    async with asyncio.TaskGroup() as tasks:
        serving = [tasks.create_task(one.run(), name="asr") for one in schedulers]
        vad, llm, tts, infos = await asyncio.gather(
            asyncio.to_thread(load, "vad", choices["vad"].name, choices["vad"].options),
            _language_model(choices["llm"], config.language, toolbox),
            asyncio.to_thread(load, "tts", choices["tts"].name, choices["tts"].options),
            asyncio.gather(*(one.ready() for one in schedulers)),
        )
        asr = {
            choice.name: SharedRecogniser(info, scheduler)
            for choice, info, scheduler in zip(recognisers, infos, schedulers, strict=True)
        }
        serving.append(tasks.create_task(_warm_others(llm, config.language, toolbox), name="warm"))
        yield Engines(vad, asr, llm, tts, choices, pools, found)
        for task in serving:
            task.cancel()


def _worker_count(config: Config, choice: Choice, chosen: Choice, found: Survey) -> int:
    """The configured number is the chosen engine's; others are there for comparison."""
    if choice.name != chosen.name:
        return 1
    return config.asr.workers or worker_count(choice.name, found.hardware)


async def _warm_others(llm: Llm, language: str, toolbox: Toolbox) -> None:
    """Load the other languages that the home speaks before somebody waits for them.

    What is loaded then stays for good, so the collector need not look at it again: a full
    collection over it stops the loop for some 50 ms, more than two frames of sound.
    """
    if isinstance(llm, Warms):
        for code in HOME_LANGUAGES:
            if code != language and code in llm.languages:
                await llm.warm(code, _specs(toolbox, code))
    gc.collect()
    gc.freeze()


async def _language_model(choice: Choice, language: str, toolbox: Toolbox) -> Llm:
    """Loaded, and warm for the language that most sessions will have."""
    llm = await asyncio.to_thread(load, "llm", choice.name, choice.options)
    if isinstance(llm, Warms):
        await llm.warm(language, _specs(toolbox, language))
    return llm


def _asr_options(choice: Choice, toolbox: Toolbox) -> Mapping[str, object]:
    """The configured options, and the sentences of this very home where an engine learns them."""
    if choice.name != LEARNS_PHRASES or "phrases" in choice.options:
        return choice.options
    specs = _specs(toolbox, PHRASES_LANGUAGE)
    learned = phrases(PHRASES_LANGUAGE, specs, MAX_PHRASES)
    return {**choice.options, "phrases": learned}


def _specs(toolbox: Toolbox, language: str) -> list[ToolSpec]:
    """Every tool, as a conversation in `language` has them."""
    return toolbox.specs(ToolContext("", language))
