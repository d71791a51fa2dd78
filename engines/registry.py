"""From a name in the configuration to a running engine, and what could be one here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Literal, overload

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields

from core.errors import ConfigError, EngineMissing
from engines.base import AsrInfo, AsrModel, EndOfTurn, Llm, Tts, VadEngine
from engines.base.wake import WakeEngine

Kind = Literal["vad", "wake", "endpoint", "asr", "llm", "tts"]


@dataclass(frozen=True, slots=True)
class Available:
    """One engine that this installation knows by name."""

    name: str
    installed: bool
    "Its libraries are there, and run. Weights are only looked at when it is loaded."
    reason: str
    "Empty, or what is missing and how to get it."
    needs_path: bool = False
    "No weights were found: it runs only with a `path` to some, and `auto` passes it by."


@overload
def load(kind: Literal["vad"], name: str, options: Mapping[str, Any]) -> VadEngine: ...
@overload
def load(kind: Literal["wake"], name: str, options: Mapping[str, Any]) -> WakeEngine: ...
@overload
def load(kind: Literal["endpoint"], name: str, options: Mapping[str, Any]) -> EndOfTurn: ...
@overload
def load(kind: Literal["asr"], name: str, options: Mapping[str, Any]) -> AsrModel: ...
@overload
def load(kind: Literal["llm"], name: str, options: Mapping[str, Any]) -> Llm: ...
@overload
def load(kind: Literal["tts"], name: str, options: Mapping[str, Any]) -> Tts: ...
@overload
def load(
    kind: Kind, name: str, options: Mapping[str, Any]
) -> VadEngine | WakeEngine | EndOfTurn | AsrModel | Llm | Tts: ...
def load(kind: Kind, name: str, options: Mapping[str, Any]) -> Any:
    """Create the engine `engines/<kind>/<name>.py`, or a third party's by its dotted module path.

    Raises ConfigError for an unknown engine or wrong options, EngineMissing when its library or
    its weights are not there. Blocking: it may read gigabytes.
    """
    module = _module(kind, name)
    settings = read_settings(module.Settings, options, where=f"{kind}.{name}")
    try:
        return module.create(settings)
    except ImportError as exc:
        missing = (exc.name or "a library").partition(".")[0]
        raise EngineMissing(kind, name, _hint(module, missing)) from exc


def describe(name: str, options: Mapping[str, Any]) -> AsrInfo | None:
    """What a recogniser will be, read from its files without loading it; None: it does not tell.

    Raises as `load`.
    """
    module = _module("asr", name)
    settings = read_settings(module.Settings, options, where=f"asr.{name}")
    tell: Callable[[Struct], AsrInfo] | None = getattr(module, "describe", None)
    return tell(settings) if tell else None


def available(kind: Kind) -> list[Available]:
    """Every engine of our own folder, by name. Imports no model library."""
    found: list[Available] = []
    for name in sorted(
        module.name for module in iter_modules(import_module(_package(kind)).__path__)
    ):
        module = import_module(f"{_package(kind)}.{name}")
        if not hasattr(module, "create"):  # a part of an engine
            continue
        missing = [library for library in _requirements(module) if find_spec(library) is None]
        if missing:
            found.append(Available(name, False, _hint(module, *missing)))
            continue
        if why := _unfit(module):
            found.append(Available(name, False, why))
            continue
        why = _missing_weights(module)
        found.append(Available(name, True, why, needs_path=bool(why)))
    return found


def read_settings(settings: type[Struct], options: Mapping[str, Any], *, where: str) -> Struct:
    """Typed settings from plain values. Raises ConfigError naming `where`, the key and what is
    allowed."""
    known = [field.encode_name for field in fields(settings)]
    for key in options:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise ConfigError(f"{where}: unknown key {key!r}; known keys: {allowed}")
    try:
        return convert(dict(options), settings)
    except ValidationError as exc:
        raise ConfigError(f"{where}: {exc}") from exc


def _module(kind: Kind, name: str) -> ModuleType:
    path = name if "." in name else f"{_package(kind)}.{name}"
    try:
        module = import_module(path)
    except ModuleNotFoundError as exc:
        if exc.name is None or not path.startswith(exc.name):
            raise EngineMissing(kind, name, f"needs the Python package {exc.name}") from exc
        raise ConfigError(_unknown(kind, name)) from exc
    if not (hasattr(module, "create") and hasattr(module, "Settings")):
        raise ConfigError(_unknown(kind, name))
    return module


def _unknown(kind: Kind, name: str) -> str:
    names = ", ".join(engine.name for engine in available(kind))
    return f"{kind}: no engine {name!r}; there are: {names}, or a module path with a dot"


def _package(kind: Kind) -> str:
    return f"engines.{kind}"


def _requirements(module: ModuleType) -> Mapping[str, str]:
    """What an engine says it needs: import name -> what pip calls it."""
    requirements: Mapping[str, str] = getattr(module, "REQUIRES", {})
    return requirements


def _missing_weights(module: ModuleType) -> str:
    """What an engine says it lacks unless a path is configured; most say nothing."""
    tell: Callable[[], str] | None = getattr(module, "missing_weights", None)
    return tell() if tell else ""


def _unfit(module: ModuleType) -> str:
    """Why an engine's libraries do not run here though they are installed; most say nothing."""
    tell: Callable[[], str] | None = getattr(module, "unfit", None)
    return tell() if tell else ""


def _hint(module: ModuleType, *missing: str) -> str:
    if extra := getattr(module, "EXTRA", ""):
        return f"not installed; `earshot extras add {extra}` installs it"
    known = _requirements(module)
    return f"not installed; pip install {' '.join(known.get(name, name) for name in missing)}"
