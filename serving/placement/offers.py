"""ASR models that can be requested by name, each with its placement. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.errors import EngineMissing
from engines.registry import EngineAvailability
from serving.catalogue import short_name
from serving.placement.choose import (
    AUTO,
    FIXTURES,
    ONE_AT_A_TIME,
    WHISPER,
    WHISPER_TORCH,
    EnginePreference,
    EngineSelection,
    WhisperWeights,
    best_whisper,
    weights_at,
    worker_count,
)
from serving.placement.hardware import Hardware
from serving.placement.whisper import CPU, MemoryByDevice, ModelPlacement, asr_memory, place_model
from serving.placement.whisper_torch import place_torch_model

PLAIN_MB = 150.0
"Memory in MB of a PocketSphinx worker: the acoustic model and the searches that it keeps open."


@dataclass(frozen=True, slots=True)
class LoadableModel:
    """One model that can be loaded, and how. Nothing of it is loaded yet."""

    name: str
    "Name of the model in requests."
    engine: str
    "Name of the engine that runs it."
    workers: tuple[Mapping[str, Any], ...] = field(repr=False)
    "Options of the engine for each worker process."
    memory_mb: Mapping[str, float]
    "Estimated memory of all workers in MB, by device."
    aliases: tuple[str, ...] = ()
    "Other names of the model."
    size_mb: float = 0.0
    "Size of its weights on disk; 0 if it has none of its own."
    why: str = ""
    "Phrase that describes where and how it runs."
    warnings: tuple[str, ...] = ()
    "Sentences about a placement that is not as it should be."
    lanes: int = 1
    """Number of calls that each worker computes at once. With several, each request joins those
    that are running."""
    fallback: "LoadableModel | None" = field(default=None, repr=False)
    """Offer on the processor, used if the GPU turns out not to work. None if the configuration
    demands a GPU, or if the model is on the processor anyway."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the first worker."""
        return self.workers[0]


@dataclass(frozen=True, slots=True)
class OfferInputs:
    """Values that offers are made from: the same at the start, at a later look into the folder, and
    in `doctor`."""

    hardware: Hardware
    known: Sequence[EngineAvailability]
    'Result of `engines.registry.available("asr")`.'
    wanted: EnginePreference
    "Wishes of the configuration."
    choice: EngineSelection
    "The engine that was chosen for ASR."

    room: MemoryByDevice = field(init=False)
    "Memory in MB that recognisers may take, by device."

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", asr_memory(self.hardware, self.wanted.memory_mb))


def asr_model_offers(
    machine: OfferInputs, weights: Sequence[WhisperWeights]
) -> tuple[LoadableModel, ...]:
    """Returns all offers, the chosen model first. The others get the room that it leaves.

    Raises EngineMissing when the chosen model has no place.
    """
    first = _chosen(machine, weights)
    left = {
        device: max(0.0, mb - first.memory_mb.get(device, 0.0))
        for device, mb in machine.room.items()
    }
    found = {first.name: first}
    installed = [engine.name for engine in machine.known if engine.installed]
    if WHISPER in installed:
        is_chosen = machine.choice.name == WHISPER
        shared = machine.wanted.options if is_chosen else {}
        best = None if is_chosen else _best(machine, weights)
        for model in weights:
            if str(model.path) != first.options.get("model") and model.name not in found:
                aliases = (WHISPER,) if model == best else ()
                found[model.name] = _whisper(machine, model, left, shared, 0, aliases)
    for name in ONE_AT_A_TIME:
        if name in installed and name not in found:
            found[name] = _plain(name, {}, 1)
    return tuple(found.values())


def _best(machine: OfferInputs, weights: Sequence[WhisperWeights]) -> WhisperWeights | None:
    """Returns the model that the name of the Whisper engine stands for while another engine is
    chosen."""
    usual = [model for model in weights if model.name not in FIXTURES]
    return best_whisper(usual, EnginePreference(), machine.hardware)[0] if usual else None


def _chosen(machine: OfferInputs, weights: Sequence[WhisperWeights]) -> LoadableModel:
    choice, wanted = machine.choice, machine.wanted
    if choice.name == WHISPER_TORCH and "model" in choice.options:
        path = Path(choice.options["model"])
        seat = place_torch_model(path, machine.hardware, machine.room, choice.options)
        return LoadableModel(
            name=path.name,
            engine=WHISPER_TORCH,
            workers=(seat.options,),
            memory_mb={seat.device: seat.memory_mb},
            aliases=(WHISPER_TORCH,),
            size_mb=seat.size_mb,
            why=seat.why,
            lanes=seat.rows,
        )
    if choice.name != WHISPER or "model" not in choice.options:
        count = wanted.workers or worker_count(choice.name, machine.hardware)
        return _plain(choice.name, choice.options, count)
    path = Path(choice.options["model"])
    model = next((one for one in weights if one.path == path), None) or weights_at(path)
    return _whisper(machine, model, machine.room, choice.options, wanted.workers, (WHISPER,))


def _whisper(
    machine: OfferInputs,
    model: WhisperWeights,
    room: MemoryByDevice,
    options: Mapping[str, Any],
    workers: int,
    aliases: tuple[str, ...] = (),
) -> LoadableModel:
    try:
        placed = place_model(model.float16_mb, machine.hardware, room, options, workers)
    except EngineMissing:
        if room is machine.room:
            raise
        # There is no room next to the chosen model. Plan as if that were not loaded: while it is,
        # the memory budget refuses this model.
        placed = place_model(model.float16_mb, machine.hardware, machine.room, options, workers)
    offer = _placed(model, placed, options, aliases)
    if offer.options["device"] == CPU or options.get("device", AUTO) != AUTO:
        return offer
    free = {key: value for key, value in options.items() if key != "compute_type"}
    on_cpu = place_model(model.float16_mb, machine.hardware, room, {**free, "device": CPU}, workers)
    return replace(offer, fallback=_placed(model, on_cpu, free, aliases))


def _placed(
    model: WhisperWeights,
    placed: ModelPlacement,
    options: Mapping[str, Any],
    aliases: tuple[str, ...],
) -> LoadableModel:
    said = {key: value for key, value in options.items() if (key, value) != ("device", AUTO)}
    short = short_name(model.name)
    return LoadableModel(
        name=model.name,
        engine=WHISPER,
        workers=tuple({**s.options(), **said, "model": str(model.path)} for s in placed.seats),
        memory_mb=placed.memory_mb(),
        aliases=(*((short,) if short != model.name else ()), *aliases),
        size_mb=model.size_mb,
        why=placed.why,
        warnings=placed.warnings,
    )


def _plain(name: str, options: Mapping[str, Any], workers: int) -> LoadableModel:
    return LoadableModel(
        name, name, (options,) * workers, {CPU: PLAIN_MB * workers}, why="on the processor"
    )
