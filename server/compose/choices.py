"""What there is to choose from, and the choice: the same for the start and for `doctor`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import EngineError
from engines import registry
from engines.base import AsrInfo
from engines.registry import EngineAvailability, EngineKind, available
from server.config import AsrConfig, Config, EngineConfig
from server.models.voices import with_pulled
from serving.placement.choose import (
    KINDS,
    EnginePreference,
    EngineSelection,
    WhisperWeights,
    find_whisper,
    select_engine,
)
from serving.placement.hardware import Hardware, detect_hardware
from serving.placement.offers import AsrModelOffer, OfferInputs, asr_model_offers


@dataclass(frozen=True, slots=True)
class PlacementInputs:
    """What there is to choose from."""

    hardware: Hardware
    weights: tuple[WhisperWeights, ...]
    known: Mapping[EngineKind, list[EngineAvailability]] = field(repr=False)


def survey(models_dir: str, kinds: Sequence[EngineKind] = KINDS) -> PlacementInputs:
    """Look at the machine, the models folder and the installed engines of these kinds. Blocking."""
    return PlacementInputs(
        detect_hardware(os.environ.get("CUDA_VISIBLE_DEVICES")),
        find_whisper(_folder(models_dir)),
        {kind: available(kind) for kind in kinds},
    )


def wanted(config: Config, kind: EngineKind) -> EnginePreference:
    """Raises ConfigError for a voice that is not in the models folder."""
    section: EngineConfig = getattr(config, kind)
    if isinstance(section, AsrConfig):
        return EnginePreference(
            section.engine, section.options, section.model, section.memory_mb, section.workers
        )
    options: Mapping[str, Any] = section.options
    if kind == "tts":
        options = with_pulled(section.engine, options, _folder(config.paths.models_dir))
    return EnginePreference(section.engine, options)


def choose_one(config: Config, kind: EngineKind, found: PlacementInputs) -> EngineSelection:
    """Raises EngineMissing, ConfigError."""
    return select_engine(
        kind, wanted(config, kind), found.known[kind], found.weights, found.hardware
    )


def origin_of(choice: EngineSelection, found: PlacementInputs) -> str:
    """Where a chosen engine comes from: `built in`, a package with its version, or, of one that is
    configured by the path of its module, that path."""
    known = {engine.name: engine.origin for engine in found.known.get(choice.kind, ())}
    return known.get(choice.name, f"module {choice.name}")


def machine(config: Config, found: PlacementInputs) -> OfferInputs:
    """What recognition models are offered from. Raises EngineMissing, ConfigError."""
    return OfferInputs(
        found.hardware,
        found.known["asr"],
        wanted(config, "asr"),
        choose_one(config, "asr", found),
    )


def find_offers(config: Config, of: OfferInputs) -> tuple[AsrModelOffer, ...]:
    """The models folder as it is now; the chosen one first. Raises EngineMissing."""
    return asr_model_offers(of, find_whisper(_folder(config.paths.models_dir)))


def describe(offer: AsrModelOffer) -> AsrInfo:
    """Raises EngineError, ConfigError when it cannot be used."""
    info = registry.describe(offer.engine, offer.options)
    if info is None:
        raise EngineError("asr", offer.name, "tells what it can only once it is loaded")
    return info


def _folder(models_dir: str) -> Path:
    return Path(models_dir).expanduser()
