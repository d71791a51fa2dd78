"""Configuration of the demo home: from the configuration file or the bundled `default.toml`."""

import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from core.errors import ConfigError

EntityKind = Literal["light", "switch", "cover", "climate", "fan", "media_player", "lock"]
"Kind of a device."

MAX_AREAS = 100
"Most areas. All names are in each prompt and among the recogniser's hot words."
MAX_ENTITIES = 500
"Most devices. The page draws all of them, and each change sends all of them."
MAX_NAME_CHARS = 80
"Most characters of a name, which must be short enough to be spoken."


class AreaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A room or another area of the home."""

    id: str
    names: dict[str, tuple[str, ...]]
    "Names by language (ISO 639-1). The first one is shown and spoken."


class EntityConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device of the home."""

    id: str
    area: str
    "Id of its area."
    kind: EntityKind
    names: dict[str, tuple[str, ...]]
    "Names by language (ISO 639-1). The first one is shown and spoken."
    device_class: str = ""
    "Finer kind: blind, curtain, door, window, garage, heater, radio, tv, speaker, ..."
    state: str = ""
    "State at the start; empty: the first of `home.STATES` for its kind."
    attributes: dict[str, int | float | str] = {}
    "Attributes at the start, in addition to the defaults of the kind."


class HomeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Areas and devices of the demo home."""

    areas: tuple[AreaConfig, ...] = ()
    entities: tuple[EntityConfig, ...] = ()

    def __post_init__(self) -> None:
        _check_size("areas", len(self.areas), MAX_AREAS)
        _check_size("entities", len(self.entities), MAX_ENTITIES)
        _check_unique("areas", (area.id for area in self.areas))
        _check_unique("entities", (entity.id for entity in self.entities))
        known = {area.id for area in self.areas}
        for entity in self.entities:
            if entity.area not in known:
                raise ConfigError(
                    f"home.entities: {entity.id!r} is in unknown area {entity.area!r}; "
                    f"areas are {', '.join(sorted(known))}"
                )
            _check_names(entity.id, entity.names)
        for area in self.areas:
            _check_names(area.id, area.names)


@cache
def default_home() -> HomeConfig:
    """Returns the bundled home: eleven areas with the usual devices, named in eight languages."""
    text = (files("pipeline.tools.home") / "default.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), HomeConfig)


def _check_size(section: str, size: int, limit: int) -> None:
    if size > limit:
        raise ConfigError(f"home.{section}: {size} of them, at most {limit} are allowed")


def _check_unique(section: str, ids: Iterable[str]) -> None:
    twice = sorted(name for name, count in Counter(ids).items() if count > 1)
    if twice:
        raise ConfigError(f"home.{section}: id used twice: {', '.join(twice)}")


def _check_names(owner: str, names: dict[str, tuple[str, ...]]) -> None:
    if not any(names.values()):
        raise ConfigError(f"home: {owner!r} has no name")
    for name in (name for group in names.values() for name in group):
        if not name.strip() or len(name) > MAX_NAME_CHARS:
            raise ConfigError(f"home: {owner!r} has a name that is empty or too long: {name!r}")
