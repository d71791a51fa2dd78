"""Chooses engines from hardware, model files and configuration, for server start and
`earshot doctor`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.errors import EngineError
from engines import registry
from engines.base import AsrInfo
from engines.registry import EngineAvailability, EngineKind, available
from server.config import AsrConfig, Config, EngineConfig
from server.models.inventory import turn_detector
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


@dataclass(frozen=True, slots=True)
class PlacementInputs:
    """Hardware, model files and installed engines from which engines are chosen."""

    hardware: Hardware
    weights: tuple[WhisperWeights, ...]
    "Whisper models found in the models folder."
    engines: Mapping[EngineKind, list[EngineAvailability]] = field(repr=False)
    "Engines by kind, installed or not."


def survey(models_dir: str, kinds: Sequence[EngineKind] = KINDS) -> PlacementInputs:
    """Inspects the machine, the models folder and the installed engines of these kinds.
    Blocking."""
    return PlacementInputs(
        detect_hardware(os.environ.get("CUDA_VISIBLE_DEVICES")),
        find_whisper(_folder(models_dir)),
        {kind: available(kind) for kind in kinds},
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
    choice = select_engine(kind, wanted, inputs.engines[kind], inputs.weights, inputs.hardware)
    if kind != "tts":
        return choice
    return replace(choice, options=with_pulled(choice.name, choice.options, models_dir))


def _with_turn_detector(options: Mapping[str, Any], models_dir: Path) -> Mapping[str, Any]:
    """Adds the path of the turn detector's weights in the models folder, unless one is set."""
    file = turn_detector(models_dir)
    return options if file is None or options.get("path") else {**options, "path": str(file)}


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
    return asr_model_offers(inputs, find_whisper(_folder(config.paths.models_dir)))


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
