"""Choosing and describing engines: for the start, for `doctor` and for `GET /earshot/engines`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engines.registry import Available, Kind, available
from server.config import Config, EngineConfig
from serving.choose import KINDS, Choice, Wanted, Weights, choose, find_whisper
from serving.hardware import Hardware, look
from web.engines import EngineChoice, EngineOffer, EnginesReport


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


def choose_one(config: Config, kind: Kind, found: Survey) -> Choice:
    """Raises EngineMissing."""
    return choose(kind, wanted(config, kind), found.known[kind], found.weights, found.hardware)


def report(
    choices: Mapping[Kind, Choice],
    known: Mapping[Kind, list[Available]],
    languages: Mapping[str, tuple[str, ...]],
    spoken: tuple[str, ...],
) -> EnginesReport:
    """What the page shows. `languages`: of each loaded engine; `spoken`: of a conversation."""

    def one(kind: Kind) -> EngineChoice:
        offers = tuple(
            EngineOffer(e.name, languages.get(e.name, ()), e.installed, e.reason)
            for e in known[kind]
        )
        return EngineChoice(choices[kind].name, choices[kind].why, offers)

    return EnginesReport(one("asr"), one("llm"), one("tts"), one("vad"), spoken)
