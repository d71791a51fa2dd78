"""ASR models that can be requested by name, each with its placement. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.errors import EngineMissing
from engines.asr.openai import DEFAULT_REQUESTS
from engines.registry import EngineAvailability
from serving.models.catalogue import short_name
from serving.placement.choose import (
    AUTO,
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
from serving.placement.sherpa import SCHEME, SHERPA, SherpaWeights, sherpa_at
from serving.placement.whisper import CPU, MemoryByDevice, ModelPlacement, asr_memory, place_model
from serving.placement.whisper_torch import place_torch_model

REMOTE = "openai"
"Name of the engine that asks another server."
PLAIN_MB = 150.0
"Memory in MB that a worker of any engine but Whisper is taken to need, as PocketSphinx does."


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


def on_cluster(offer: LoadableModel) -> LoadableModel:
    """Returns the offer for a model that runs on the cluster: it takes no memory of this machine,
    and nothing else replaces it here."""
    return replace(offer, memory_mb={}, warnings=(), fallback=None, why="on the cluster")


@dataclass(frozen=True, slots=True)
class OfferInputs:
    """Values that offers are made from. They are the same at the start, when the models folder is
    read again, and in `doctor`."""

    hardware: Hardware
    engines: Sequence[EngineAvailability]
    'Result of `engines.registry.available("asr")`.'
    preference: EnginePreference
    "Engine, model and limits that the configuration asks for."
    choice: EngineSelection
    "The engine that was chosen for ASR."

    room: MemoryByDevice = field(init=False)
    "Memory in MB that recognisers may take, by device."

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", asr_memory(self.hardware, self.preference.memory_mb))


def asr_model_offers(
    inputs: OfferInputs,
    weights: Sequence[WhisperWeights],
    sherpa: Sequence[SherpaWeights] = (),
) -> tuple[LoadableModel, ...]:
    """Returns all offers, the chosen model first. The others get the room that it leaves.

    Raises EngineMissing when the chosen model has no place.
    """
    first = _chosen_offer(inputs, weights)
    remaining_mb = {
        device: max(0.0, mb - first.memory_mb.get(device, 0.0))
        for device, mb in inputs.room.items()
    }
    offers = {first.name: first}
    installed = [engine.name for engine in inputs.engines if engine.installed]
    if WHISPER in installed:
        is_chosen = inputs.choice.name == WHISPER
        shared = inputs.preference.options if is_chosen else {}
        best = None if is_chosen else _best_weights(inputs, weights)
        for model in weights:
            if str(model.path) != first.options.get("model") and model.name not in offers:
                aliases = (WHISPER,) if model == best else ()
                offers[model.name] = _whisper_offer(inputs, model, remaining_mb, shared, 0, aliases)
    if SHERPA in installed:
        for found in sherpa:
            if str(found.path) != first.options.get("model") and found.name not in offers:
                offers[found.name] = _sherpa_offer(found, {}, 1)
    for name in ONE_AT_A_TIME:
        if name in installed and name not in offers:
            offers[name] = _plain_offer(name, {}, 1)
    return tuple(offers.values())


def _best_weights(inputs: OfferInputs, weights: Sequence[WhisperWeights]) -> WhisperWeights | None:
    """Returns the model that the name of the Whisper engine stands for while another engine is
    chosen."""
    candidates = [model for model in weights if model.is_candidate]
    preference = EnginePreference(language=inputs.preference.language)
    return best_whisper(candidates, preference, inputs.hardware)[0] if candidates else None


def _chosen_offer(inputs: OfferInputs, weights: Sequence[WhisperWeights]) -> LoadableModel:
    choice, preference = inputs.choice, inputs.preference
    if choice.name == WHISPER_TORCH and "model" in choice.options:
        path = Path(choice.options["model"])
        placement = place_torch_model(path, inputs.hardware, inputs.room, choice.options)
        return LoadableModel(
            name=path.name,
            engine=WHISPER_TORCH,
            workers=(placement.options,),
            memory_mb={placement.device: placement.memory_mb},
            aliases=(WHISPER_TORCH,),
            size_mb=placement.size_mb,
            why=placement.why,
            lanes=placement.rows,
        )
    if choice.name == SHERPA and "model" in choice.options:
        model_folder = sherpa_at(Path(choice.options["model"]).expanduser())
        offer = _sherpa_offer(model_folder, choice.options, preference.workers or 1)
        return replace(offer, aliases=(*offer.aliases, SHERPA))
    if choice.name != WHISPER or "model" not in choice.options:
        count = preference.workers or worker_count(choice.name, inputs.hardware)
        offer = _plain_offer(choice.name, choice.options, count)
        if choice.name == REMOTE:
            requests = choice.options.get("max_requests", DEFAULT_REQUESTS)
            is_count = isinstance(requests, int) and requests > 0  # the engine refuses others
            return replace(offer, lanes=requests if is_count else 1, why="on another server")
        return offer
    path = Path(choice.options["model"])
    model = next(
        (candidate for candidate in weights if candidate.path == path), None
    ) or weights_at(path)
    return _whisper_offer(
        inputs, model, inputs.room, choice.options, preference.workers, (WHISPER,)
    )


def _whisper_offer(
    inputs: OfferInputs,
    model: WhisperWeights,
    room: MemoryByDevice,
    options: Mapping[str, object],
    workers: int,
    aliases: tuple[str, ...] = (),
) -> LoadableModel:
    try:
        placed = place_model(model.float16_mb, inputs.hardware, room, options, workers)
    except EngineMissing:
        if room is inputs.room:
            raise
        # There is no room next to the chosen model. Plan as if that were not loaded: while it is,
        # the memory budget refuses this model.
        placed = place_model(model.float16_mb, inputs.hardware, inputs.room, options, workers)
    offer = _offer(model, placed, options, aliases)
    if offer.options["device"] == CPU or options.get("device", AUTO) != AUTO:
        return offer
    # The configured number type may suit the GPU only.
    cpu_options = {key: value for key, value in options.items() if key != "compute_type"}
    on_cpu = place_model(
        model.float16_mb, inputs.hardware, room, {**cpu_options, "device": CPU}, workers
    )
    return replace(offer, fallback=_offer(model, on_cpu, cpu_options, aliases))


def _offer(
    model: WhisperWeights,
    placed: ModelPlacement,
    options: Mapping[str, object],
    aliases: tuple[str, ...],
) -> LoadableModel:
    own = {key: value for key, value in options.items() if (key, value) != ("device", AUTO)}
    short = short_name(model.name)
    return LoadableModel(
        name=model.name,
        engine=WHISPER,
        workers=tuple(
            {**worker.options(), **own, "model": str(model.path)} for worker in placed.workers
        ),
        memory_mb=placed.memory_mb(),
        aliases=(*((short,) if short != model.name else ()), *aliases),
        size_mb=model.size_mb,
        why=placed.why,
        warnings=placed.warnings,
    )


def _sherpa_offer(
    model: SherpaWeights, options: Mapping[str, object], workers: int
) -> LoadableModel:
    return LoadableModel(
        name=model.name,
        engine=SHERPA,
        workers=({**options, "model": str(model.path)},) * workers,
        memory_mb={CPU: model.memory_mb * workers},
        aliases=(f"{SCHEME}{model.name}",),
        size_mb=model.size_mb,
        why="on the processor",
    )


def _plain_offer(name: str, options: Mapping[str, object], workers: int) -> LoadableModel:
    return LoadableModel(
        name, name, (options,) * workers, {CPU: PLAIN_MB * workers}, why="on the processor"
    )
