"""Chooses engines from hardware, model files and configuration, for server start and
`earshot doctor`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.errors import EngineError
from engines import registry
from engines.base import AsrInfo
from engines.registry import EngineAvailability, EngineKind, available
from server.commands.engines.command import folder_of
from server.config import AsrConfig, Config, EngineConfig, PathsConfig
from server.models.inventory import find_language_model, turn_detector
from server.models.voices import with_pulled
from serving.placement.choose import (
    AUTO,
    KINDS,
    SMART_TURN,
    EnginePreference,
    EngineSelection,
    WhisperWeights,
    find_whisper,
    select_engine,
)
from serving.placement.hardware import Hardware, detect_hardware
from serving.placement.offers import LoadableModel, OfferInputs, asr_model_offers
from serving.placement.sherpa import SHERPA, SherpaWeights, find_sherpa, with_folder

INSTALLED_LLMS = {"llama_cpp": "installation", "vllm": "environment"}
"Language models that `earshot engines install` installs -> option that names their folder."

HYBRID = "hybrid"
"Engine with another language model behind it, which its option `model` describes."

GGUF_OPTIONS = {"llama_cpp": "model", "transformers": "path"}
"Language models that read GGUF files -> option that names the file."


@dataclass(frozen=True, slots=True)
class PlacementInputs:
    """Hardware, model files and installed engines from which engines are chosen."""

    hardware: Hardware
    weights: tuple[WhisperWeights, ...]
    "Whisper models found in the models folder."
    engines: Mapping[EngineKind, list[EngineAvailability]] = field(repr=False)
    "Engines by kind, installed or not."
    sherpa: tuple[SherpaWeights, ...] = ()
    "Models of sherpa-onnx found in the models folder."


def survey(models_dir: str, kinds: Sequence[EngineKind] = KINDS) -> PlacementInputs:
    """Inspects the machine, the models folder and the installed engines of these kinds.
    Blocking."""
    return PlacementInputs(
        detect_hardware(os.environ.get("CUDA_VISIBLE_DEVICES")),
        find_whisper(_folder(models_dir)),
        {kind: available(kind) for kind in kinds},
        find_sherpa(_folder(models_dir)),
    )


def preference(config: Config, kind: EngineKind) -> EnginePreference:
    """Returns the engine and options that the configuration asks for."""
    section: EngineConfig = getattr(config, kind)
    if isinstance(section, AsrConfig):
        return EnginePreference(
            section.engine,
            section.options,
            section.model,
            section.memory_mb,
            section.workers,
            config.language,
        )
    return EnginePreference(section.engine, section.options, language=config.language)


def choose_one(config: Config, kind: EngineKind, inputs: PlacementInputs) -> EngineSelection:
    """Selects the engine of one kind. Raises EngineMissing or ConfigError, also for a voice that is
    not in the models folder."""
    models_dir = _folder(config.paths.models_dir)
    wanted = preference(config, kind)
    if kind == "endpoint" and wanted.engine in (AUTO, SMART_TURN):
        wanted = replace(wanted, options=_with_turn_detector(wanted.options, models_dir))
    choice = select_engine(
        kind, wanted, inputs.engines[kind], inputs.weights, inputs.hardware, inputs.sherpa
    )
    match kind:
        case "tts":
            options = with_pulled(choice.name, choice.options, models_dir)
        case "asr" if choice.name == SHERPA:
            options = with_folder(choice.options, models_dir)
        case "wake" if choice.name == SHERPA:
            options = with_folder(choice.options, models_dir, "wake")
        case "llm":
            options = _with_llm_folders(choice.name, choice.options, config.paths)
        case _:
            options = choice.options
    return replace(choice, options=options)


def _with_turn_detector(options: Mapping[str, object], models_dir: Path) -> Mapping[str, object]:
    """Adds the path of the turn detector's weights in the models folder, unless one is set."""
    file = turn_detector(models_dir)
    return options if file is None or options.get("path") else {**options, "path": str(file)}


def _with_llm_folders(
    name: str, options: Mapping[str, object], paths: PathsConfig
) -> Mapping[str, object]:
    """Adds the folder of `earshot engines install` to the options of a language model that needs
    it, and replaces the name of a model in the models folder by its path. Looks also at the model
    behind a hybrid one."""
    if folder_option := INSTALLED_LLMS.get(name):
        options = {folder_option: str(folder_of(paths.state_dir, name)), **options}
    if path_option := GGUF_OPTIONS.get(name):
        models_dir = _folder(paths.models_dir)
        found = find_language_model(models_dir, str(options.get(path_option, "")))
        return options if found is None else {**options, path_option: str(found.absolute())}
    model = options.get("model")
    if name == HYBRID and isinstance(model, Mapping):
        engine, engine_options = str(model.get("engine", "")), model.get("options", {})
        if not isinstance(engine_options, Mapping):
            return options  # the engine reports what is wrong with them
        model_options = _with_llm_folders(engine, engine_options, paths)
        return (
            {**options, "model": {**model, "options": model_options}} if model_options else options
        )
    return options


def origin_of(choice: EngineSelection, inputs: PlacementInputs) -> str:
    """Returns where a chosen engine comes from: `built in`, or a package with its version. For an
    engine that is configured by the path of its module, returns that path."""
    origins = {engine.name: engine.origin for engine in inputs.engines.get(choice.kind, ())}
    return origins.get(choice.name, f"module {choice.name}")


def offer_inputs(config: Config, inputs: PlacementInputs) -> OfferInputs:
    """Collects what the list of recognition models is computed from. Raises EngineMissing or
    ConfigError."""
    return OfferInputs(
        inputs.hardware,
        inputs.engines["asr"],
        preference(config, "asr"),
        choose_one(config, "asr", inputs),
    )


def find_offers(config: Config, inputs: OfferInputs) -> tuple[LoadableModel, ...]:
    """Lists the recognition models of the models folder as it is now, the chosen one first. Raises
    EngineMissing."""
    models_dir = _folder(config.paths.models_dir)
    return asr_model_offers(inputs, find_whisper(models_dir), find_sherpa(models_dir))


def describe(offer: LoadableModel) -> AsrInfo:
    """Returns the languages and abilities of a recognition model without loading it. Raises
    EngineError or ConfigError if the model cannot be used."""
    info = registry.describe(offer.engine, offer.options)
    if info is None:
        raise EngineError(
            "asr", offer.name, "its languages and abilities are known only once it is loaded"
        )
    return info


def _folder(models_dir: str) -> Path:
    return Path(models_dir).expanduser()
