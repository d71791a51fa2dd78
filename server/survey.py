"""What there is to choose from, and the choice: the same for the start and for `doctor`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engines.registry import Available, Kind, available
from server.config import Config, EngineConfig
from serving.choose import KINDS, Choice, Wanted, Weights, choose, find_whisper
from serving.hardware import Hardware, look


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is to choose from."""

    hardware: Hardware
    weights: tuple[Weights, ...]
    known: Mapping[Kind, list[Available]] = field(repr=False)


def survey(models_dir: str) -> Survey:
    """Look at the machine, the models folder and the installed engines. Blocking."""
    return Survey(
        look(),
        find_whisper(Path(models_dir).expanduser()),
        {kind: available(kind) for kind in KINDS},
    )


def wanted(config: Config, kind: Kind) -> Wanted:
    section: EngineConfig = getattr(config, kind)
    return Wanted(section.engine, section.options)


def choose_recognisers(config: Config, found: Survey) -> tuple[Choice, ...]:
    """The default one, then what `asr.also` adds. Raises EngineMissing."""
    chosen = [choose_one(config, "asr", found)]
    for name in config.asr.also:
        if all(name != choice.name for choice in chosen):
            wanted = Wanted(name)
            chosen.append(choose("asr", wanted, found.known["asr"], found.weights, found.hardware))
    return tuple(chosen)


def choose_one(config: Config, kind: Kind, found: Survey) -> Choice:
    """Raises EngineMissing."""
    return choose(kind, wanted(config, kind), found.known[kind], found.weights, found.hardware)
