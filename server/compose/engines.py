"""Loads and runs the chosen engines: recognition in workers, the light engines in this process."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.packages.plugins import BUILT_IN
from core.ports import Clock, Metrics, ToolSpec
from engines.base import EndOfTurnDetector, Llm, ToolFilterLlm, Tts, VadEngine
from engines.base.wake import WakeWordEngine, wake_words
from engines.llm.intents import phrases
from engines.registry import EngineKind, load
from pipeline.services import EngineSet
from pipeline.shared.settings import DEFAULT
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.own_voices import OWN_VOICES
from pipeline.tools.toolbox import Toolbox
from server.compose.choices import (
    PlacementInputs,
    choose_one,
    describe,
    find_offers,
    offer_inputs,
    origin_of,
    survey,
)
from server.compose.cluster import RAY, ClusterWorkers, check_pools, cluster_of, uses_cluster
from server.compose.llm_and_tts import (
    check_voice,
    check_wake_word,
    load_cloning_voice,
    load_language_model,
    load_voices,
    start_language_model,
    start_voice,
    tool_specs,
)
from server.compose.prompt_size import prompt_size
from server.config import Config
from server.models.first_decode import decode_timer, with_benchmarks
from serving.asr.model import LoadedRecogniser, ServedRecogniser, add_recognisers
from serving.codec.model import Codecs, add_codecs
from serving.model_host.source import OwnWorkers, WorkerSource
from serving.models.model import AnyModel
from serving.models.registry import ModelRegistry, ModelsOfKind
from serving.models.user_catalogue import use_catalogue
from serving.placement.choose import KINDS, EngineSelection, unknown_model_message
from serving.placement.offers import LoadableModel, OfferInputs, on_cluster
from serving.remote.models import RemoteModel, RemoteModels
from serving.speaker.model import SpeakerModels, add_speaker_models
from serving.text.model import Clips, Embedders, Rerankers, add_text_models
from serving.workers.process_tts import ProcessTts
from web.engines import EngineChoice, EngineOffer, EnginesReport, ModelOffer, WakeWordOffer

logger = logging.getLogger(__name__)

TRAINED_RECOGNISER = "pocketsphinx"
"Recogniser whose language model is trained at start on the sentences the assistant understands."

PHRASES_LANGUAGE = "en"
"The only language that `TRAINED_RECOGNISER` understands."

MAX_PHRASES = 20_000
"""Largest number of training sentences. With fewer, some numbers and durations are missing by
chance; more only make training longer."""


@dataclass(frozen=True, slots=True)
class Engines:
    """Loaded engines, and how they were chosen."""

    vad: VadEngine
    "Detects speech in each frame."
    wake: WakeWordEngine
    endpoint: EndOfTurnDetector
    "Judges by the sound whether the user has finished."
    asr: ModelsOfKind[ServedRecogniser]
    "Recognition models, loaded or not."
    llm: Llm
    tts: Mapping[str, Tts]
    "TTS engines by name, the chosen one first."
    choices: Mapping[EngineKind, EngineSelection]
    "Kind of engine -> the chosen engine, with its options and the reason."
    embedders: Embedders
    "Models for embeddings, loaded or not."
    rerankers: Rerankers
    "Models for reranking, loaded or not."
    clips: Clips
    "Models for embeddings of texts and images, loaded or not."
    speakers: SpeakerModels
    "Models that hear who speaks, loaded or not."
    codecs: Codecs
    "Codecs, loaded or not."
    remote: RemoteModels
    "Models of other servers."
    registry: ModelRegistry = field(repr=False)
    "Models that are loaded and unloaded while the server runs."
    cloning_voice: ProcessTts | None
    "Engine that makes voices of recordings; None: there is none."
    languages: TextLanguageDetector = field(repr=False)
    "Finds the language of a text; shared, because it takes 100 MB."
    _inputs: PlacementInputs = field(repr=False)
    "Hardware, model files and engines that the choices were made from."

    def is_loaded(self) -> bool:
        """Returns True while the default recogniser is loaded. A crashed one is started again."""
        return self.asr.default.is_ready

    def names(self) -> Mapping[str, str]:
        """Returns the name of the serving engine for each kind of engine."""
        return {kind: choice.name for kind, choice in self.choices.items()}

    def kind_using(self, folder: Path) -> str:
        """Returns the kind of the chosen engine whose options name a folder or a file in it; empty
        if none does."""
        for kind, choice in self.choices.items():
            for value in _texts_of(choice.options):
                if Path(value).expanduser().absolute().is_relative_to(folder):
                    return kind
        return ""

    def engine_set(self, language: str, *, is_strict: bool = True) -> EngineSet:
        """Returns the engines in the form in which sessions choose among them. `language`: language
        of a session that names none. `is_strict`: see the setting `models.strict`."""
        return EngineSet(
            self.vad,
            asr=self.asr,
            llm={
                self.choices["llm"].name: self.llm,
                **self.remote.language_models(),
                DEFAULT: self.llm,
            },
            tts={DEFAULT: self.tts[self.choices["tts"].name], **self.tts},
            default_language=language,
            is_strict=is_strict,
            endpoint=self.endpoint,
            wake=self.wake,
        )

    def report(self, language: str) -> EnginesReport:
        """Returns the report that the web page shows."""
        languages = {
            self.choices["llm"].name: self.llm.languages,
            **{name: tuple(tts.info.voices) for name, tts in self.tts.items()},
        }

        def choice(kind: EngineKind) -> EngineChoice:
            offers = tuple(
                EngineOffer(
                    engine.name, languages.get(engine.name, ()), engine.installed, engine.reason
                )
                for engine in self._inputs.engines[kind]
            )
            return EngineChoice(self.choices[kind].name, self.choices[kind].why, offers)

        return EnginesReport(
            self._recognisers(),
            choice("llm"),
            choice("tts"),
            choice("vad"),
            self.engine_set(language).languages(),
            tuple(
                WakeWordOffer(word.name, word.phrase, word.languages)
                for word in wake_words(self.wake)
            ),
        )

    def _recognisers(self) -> EngineChoice:
        """Lists every recognition model, loaded or not, then the engines that are not installed."""
        models = [
            EngineOffer(
                state.offer.name,
                state.languages,
                installed=not state.problem,
                reason=state.problem,
                model=ModelOffer(
                    engine=state.offer.engine,
                    aliases=state.offer.aliases,
                    size_mb=round(state.offer.size_mb),
                    is_loaded=state.state == "loaded",
                    memory_mb=round(state.memory_mb),
                    why=state.offer.why,
                ),
            )
            for state in self.asr.listing()
        ]
        missing = [
            EngineOffer(engine.name, (), installed=False, reason=engine.reason)
            for engine in self._inputs.engines["asr"]
            if not engine.installed
        ]
        chosen = self.asr.default.offer.name
        return EngineChoice(chosen, self.choices["asr"].why, (*models, *missing))


@asynccontextmanager
async def run_engines(
    config: Config,
    toolbox: Toolbox,
    clock: Clock,
    metrics: Metrics,
    workers: WorkerSource | None = None,
) -> AsyncIterator[Engines]:
    """Chooses, loads and warms up the engines; they run until the context is left. `workers`: where
    the workers of models run; None: in child processes of this process. Raises EngineError or
    ConfigError, possibly inside an ExceptionGroup."""
    workers = workers or OwnWorkers(metrics)
    await asyncio.to_thread(use_catalogue, config.models.catalogue)
    inputs = await asyncio.to_thread(survey, config.paths.models_dir)
    inputs = await with_benchmarks(config, inputs, decode_timer(clock, metrics))
    choices = {kind: choose_one(config, kind, inputs) for kind in KINDS}
    asr_inputs = offer_inputs(config, inputs)
    languages = TextLanguageDetector()
    registry = ModelRegistry(
        asr_inputs.room,
        clock,
        metrics,
        room_setting="asr.memory_mb",
        idle_s=config.models.unload_after_s,
    )
    cluster = elsewhere = None
    if uses_cluster(config):
        await asyncio.to_thread(check_pools, config, choices)
        cluster = cluster_of(config, os.environ)
        workers = there = ClusterWorkers(cluster, config, workers, metrics)
        elsewhere = there if config.models.pool == RAY else None
    recognisers = _add_recognisers(registry, config, asr_inputs, toolbox, clock, workers)
    text_models = add_text_models(registry, config.paths.models_dir, clock, metrics, elsewhere)
    speakers = add_speaker_models(registry, config.paths.models_dir, clock, metrics)
    codecs = add_codecs(registry, config.paths.models_dir, clock, metrics)
    remote = RemoteModels([RemoteModel(name, settings) for name, settings in config.remote.items()])
    _log_choices(inputs, choices, recognisers.default.offer)
    async with (
        AsyncExitStack() as stack,
        cluster.connected() if cluster is not None else nullcontext(),
        registry.running(),
    ):
        stack.push_async_callback(remote.aclose)
        voice = await start_voice(choices["tts"], workers, stack)
        own_voices = config.tts.own_voices
        (vad, wake, endpoint), llm, voices, cloning_voice, _, _ = await asyncio.gather(
            _load_frame_engines(choices),
            load_language_model(choices["llm"], workers, metrics, stack),
            load_voices(choices["tts"], inputs, languages, metrics, stack, voice),
            load_cloning_voice(own_voices, choices["tts"], voice, workers, metrics, stack),
            _load_at_start(recognisers, registry, config, choices, remote),
            asyncio.to_thread(recognisers.read_all),
        )
        choices["tts"] = voices.choice
        # Voices of recordings are in the database, and may be deleted at any time.
        if cloning_voice is None or not config.assistant.voice.startswith(f"{OWN_VOICES}/"):
            check_voice(config.assistant.voice, voices.engines, config.language)
        check_wake_word(config.assistant.wake_word, wake)
        await start_language_model(llm, config.language, toolbox, stack)
        _warn_about_prompt_size(config, llm, toolbox)
        yield Engines(
            vad,
            wake,
            endpoint,
            recognisers,
            llm,
            voices.engines,
            choices,
            *text_models,
            speakers,
            codecs,
            remote,
            registry,
            cloning_voice,
            languages,
            inputs,
        )


def _texts_of(options: Mapping[str, Any]) -> Iterator[str]:
    """Yields the texts among an engine's options, and among those of an engine behind it."""
    for value in options.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from _texts_of(value)


def _warn_about_prompt_size(config: Config, llm: Llm, toolbox: Toolbox) -> None:
    """Logs a warning if instructions and tools leave no room for a conversation. If the model's
    server cannot be reached now, `earshot doctor` can report it later."""
    tools: Sequence[ToolSpec] = tool_specs(toolbox, config.language)
    if config.assistant.tools is not None:
        tools = [tool for tool in tools if tool.name in config.assistant.tools]
    if isinstance(llm, ToolFilterLlm):
        tools = llm.filter_tools(tools, language=config.language)
    size = prompt_size(config, llm, tools)
    if size is not None and not size.fits:
        logger.warning("%s", size.advice())


def _add_recognisers(
    registry: ModelRegistry,
    config: Config,
    inputs: OfferInputs,
    toolbox: Toolbox,
    clock: Clock,
    source: WorkerSource,
) -> ModelsOfKind[ServedRecogniser]:
    """Adds all recognition models to the registry; none is loaded yet. `source`: prepares their
    workers. Raises EngineMissing."""

    def list_offers() -> Sequence[LoadableModel]:
        offers: Sequence[LoadableModel] = find_offers(config, inputs)
        if config.asr.pool == RAY:
            offers = [on_cluster(offer) for offer in offers]
        default, *others = offers
        return (replace(default, aliases=(*default.aliases, DEFAULT)), *others)

    async def start(offer: LoadableModel) -> LoadedRecogniser:
        if offer.engine == TRAINED_RECOGNISER and "phrases" not in offer.options:
            sentences = await asyncio.to_thread(_training_sentences, toolbox)
            workers = tuple({**options, "phrases": sentences} for options in offer.workers)
            offer = replace(offer, workers=workers)
        return source.recogniser(offer, clock)

    return add_recognisers(registry, list_offers, describe, start)


async def _load_frame_engines(
    choices: Mapping[EngineKind, EngineSelection],
) -> tuple[VadEngine, WakeWordEngine, EndOfTurnDetector]:
    """Loads the engines that process every frame: VAD, wake word and end of turn. Raises
    EngineMissing or ConfigError."""
    vad, wake, endpoint = (choices[kind] for kind in ("vad", "wake", "endpoint"))
    return await asyncio.gather(
        asyncio.to_thread(load, "vad", vad.name, vad.options),
        asyncio.to_thread(load, "wake", wake.name, wake.options),
        asyncio.to_thread(load, "endpoint", endpoint.name, endpoint.options),
    )


async def _load_at_start(
    recognisers: ModelsOfKind[ServedRecogniser],
    registry: ModelRegistry,
    config: Config,
    choices: Mapping[EngineKind, EngineSelection],
    remote: RemoteModels,
) -> None:
    """Loads the default recogniser first, then the configured models one by one: on few cores,
    models that load at the same time are all late. Raises EngineError or ConfigError."""
    # These need no load here: the language model and the voice are loaded anyway.
    ready = {choices["llm"].name, choices["tts"].name, *(model.name for model in remote)}
    models: list[AnyModel] = [recognisers.default]
    for name in config.asr.preload:
        if (recogniser := recognisers.get(name)) is None:
            raise ConfigError(f"asr.preload: {unknown_model_message(name, tuple(recognisers))}")
        models.append(recogniser)
    for name in config.models.preload:
        if (model := registry.find(name)) is not None:
            models.append(model)
        elif name not in ready:
            listings = chain.from_iterable(registry.listing().values())
            known = [*(listing.offer.name for listing in listings), *sorted(ready)]
            raise ConfigError(f"models.preload: {unknown_model_message(name, known)}")
    for model in models:
        await model.load()


def _log_choices(
    inputs: PlacementInputs, choices: Mapping[EngineKind, EngineSelection], offer: LoadableModel
) -> None:
    """Logs the chosen engines and the reasons."""
    for note in inputs.hardware.notes:
        logger.info("hardware: %s", note)
    for kind, engines in inputs.engines.items():
        for engine in engines:
            if engine.origin != BUILT_IN and not engine.installed:
                details = kind, engine.name, engine.origin, engine.reason
                logger.warning("! %s engine %s of %s is left out: %s", *details)
    for choice in choices.values():
        origin = origin_of(choice, inputs)
        logger.info("%s: %s, %s (%s)", choice.kind, choice.name, origin, choice.why)
    logger.info("asr: %s runs %s", offer.name, offer.why)
    for warning in offer.warnings:
        logger.warning("asr: %s: %s", offer.name, warning)


def _training_sentences(toolbox: Toolbox) -> Sequence[str]:
    """Returns the sentences that this home understands, for a recogniser that is trained on
    them."""
    return phrases(PHRASES_LANGUAGE, tool_specs(toolbox, PHRASES_LANGUAGE), MAX_PHRASES)
