"""Finds the engines of this installation, built in or from other packages, and loads them by
name."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Literal, get_args, overload

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields

from core.errors import ConfigError, EarshotError, EngineError, EngineMissing
from core.packages.plugins import BUILT_IN, Plugin, find_plugins, missing_members
from engines.base import AsrInfo, AsrModel, EndOfTurnDetector, Llm, Tts, VadEngine, WorkerProfile
from engines.base.codec import CodecModel
from engines.base.speaker import SpeakerModel
from engines.base.text import ClipModel, EmbedModel, RerankModel
from engines.base.wake import WakeWordEngine

logger = logging.getLogger(__name__)

EngineKind = Literal[
    "vad", "wake", "endpoint", "asr", "llm", "tts", "embed", "rerank", "clip", "speaker", "codec"
]
"Kinds of engines, named like their folders in `engines/`."

PROTOCOLS: Mapping[EngineKind, type] = {
    "vad": VadEngine,
    "wake": WakeWordEngine,
    "endpoint": EndOfTurnDetector,
    "asr": AsrModel,
    "llm": Llm,
    "tts": Tts,
    "embed": EmbedModel,
    "rerank": RerankModel,
    "clip": ClipModel,
    "speaker": SpeakerModel,
    "codec": CodecModel,
}
"Protocol that the object returned by an engine module's `create` must implement, by kind."


@dataclass(frozen=True, slots=True)
class EngineAvailability:
    """An engine that this installation knows by name, and whether it can run here."""

    name: str
    installed: bool
    "True: its libraries are present and run. Weights are only read when the engine is loaded."
    reason: str
    "Empty, or a sentence that states what is missing and how to get it."
    needs_path: bool = False
    """True: no weights were found. The engine needs a configured `path`, and `auto` does not choose
    it."""
    origin: str = BUILT_IN
    "Name and version of the package that provides the engine; BUILT_IN for our own."


@overload
def load(kind: Literal["vad"], name: str, options: Mapping[str, Any]) -> VadEngine: ...
@overload
def load(kind: Literal["wake"], name: str, options: Mapping[str, Any]) -> WakeWordEngine: ...
@overload
def load(kind: Literal["endpoint"], name: str, options: Mapping[str, Any]) -> EndOfTurnDetector: ...
@overload
def load(kind: Literal["asr"], name: str, options: Mapping[str, Any]) -> AsrModel: ...
@overload
def load(kind: Literal["llm"], name: str, options: Mapping[str, Any]) -> Llm: ...
@overload
def load(kind: Literal["tts"], name: str, options: Mapping[str, Any]) -> Tts: ...
@overload
def load(kind: Literal["embed"], name: str, options: Mapping[str, Any]) -> EmbedModel: ...
@overload
def load(kind: Literal["rerank"], name: str, options: Mapping[str, Any]) -> RerankModel: ...
@overload
def load(kind: Literal["clip"], name: str, options: Mapping[str, Any]) -> ClipModel: ...
@overload
def load(kind: Literal["speaker"], name: str, options: Mapping[str, Any]) -> SpeakerModel: ...
@overload
def load(kind: Literal["codec"], name: str, options: Mapping[str, Any]) -> CodecModel: ...
@overload
def load(
    kind: EngineKind, name: str, options: Mapping[str, Any]
) -> (
    VadEngine
    | WakeWordEngine
    | EndOfTurnDetector
    | AsrModel
    | Llm
    | Tts
    | EmbedModel
    | RerankModel
    | ClipModel
    | SpeakerModel
    | CodecModel
): ...
def load(kind: EngineKind, name: str, options: Mapping[str, Any]) -> Any:
    """Creates an engine. `name` is a module `engines/<kind>/<name>.py`, the entry point
    `<kind>.<name>` of a package, or any module by its dotted path.

    Raises ConfigError for an unknown engine or wrong options; EngineMissing when its library or its
    weights are missing; EngineError when the object that another package creates does not implement
    the Protocol. Blocking: it may read gigabytes.
    """
    module, origin = _find(kind, name)
    settings = read_settings(module.Settings, options, where=f"{kind}.{name}")
    try:
        engine = module.create(settings)
    except ImportError as exc:
        missing = (exc.name or "a library").partition(".")[0]
        raise EngineMissing(kind, name, _hint(module, missing)) from exc
    except EarshotError:
        raise
    except Exception as exc:
        if origin == BUILT_IN:  # a bug of ours: do not disguise it as a missing part
            raise
        logger.error("! %s engine %r of %s does not load", kind, name, origin, exc_info=exc)
        why = f"the engine of {origin} cannot be loaded: {type(exc).__name__}: {exc}"
        raise EngineError(kind, name, why) from exc
    if lacking := missing_members(engine, PROTOCOLS[kind]):
        problem = f"the object that {origin} creates is no {PROTOCOLS[kind].__name__}"
        raise EngineError(kind, name, f"{problem}: it has no {', '.join(lacking)}")
    return engine


def describe(name: str, options: Mapping[str, Any]) -> AsrInfo | None:
    """Returns the properties of an ASR engine, read from its files without loading it; None if the
    engine offers no such function. Raises the same errors as `load`."""
    module, _ = _find("asr", name)
    settings = read_settings(module.Settings, options, where=f"asr.{name}")
    read_info: Callable[[Struct], AsrInfo] | None = getattr(module, "describe", None)
    return read_info(settings) if read_info else None


def worker_profile(kind: EngineKind, name: str, options: Mapping[str, Any]) -> WorkerProfile | None:
    """Returns how an engine runs in a worker process; None if it runs in the server's own process.
    Raises ConfigError for wrong options, EngineMissing for a broken plugin."""
    module, _ = _find(kind, name)
    read_profile: Callable[[Struct], WorkerProfile] | None = getattr(module, "worker_profile", None)
    settings = read_settings(module.Settings, options, where=f"{kind}.{name}")
    return read_profile(settings) if read_profile else None


def available(kind: EngineKind) -> list[EngineAvailability]:
    """Returns every engine of this kind, our own and those of installed packages, sorted by name.
    Imports no model library. A package's engine that cannot be used is listed with the reason."""
    found = [_availability(name, module) for name, module in _built_in(kind).items()]
    for name, plugin in _plugins(kind).items():
        try:
            found.append(_availability(name, module_of(plugin), plugin.origin))
        except Exception as exc:  # a foreign package must not break the list of all engines
            found.append(
                EngineAvailability(name, False, f"broken: {_message(exc)}", origin=plugin.origin)
            )
    return sorted(found, key=lambda engine: engine.name)


def refused() -> list[str]:
    """Returns a sentence for each engine of a package whose name cannot be used. `available` does
    not list these engines."""
    return [
        f"engine {plugin.name} of {plugin.origin} is left out: {why}"
        for plugin in find_plugins("earshot.engines").values()
        if (why := _name_problem(plugin.name))
    ]


def read_settings(settings: type[Struct], options: Mapping[str, object], *, where: str) -> Struct:
    """Converts plain values to the typed settings of an engine. Raises ConfigError, which names
    `where`, the key, and the values that are allowed."""
    known = [field.encode_name for field in fields(settings)]
    for key in options:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise ConfigError(f"{where}: unknown key {key!r}; known keys: {allowed}")
    try:
        return convert(dict(options), settings)
    except ValidationError as exc:
        raise ConfigError(f"{where}: {exc}") from exc


def module_of(plugin: Plugin) -> Any:
    """Loads the module (or object) that a package adds as an engine, a tool or a door, and checks
    that it has `Settings` and `create`. Raises ConfigError if it does not. Blocking."""
    module = plugin.load()
    settings = getattr(module, "Settings", None)
    if not (isinstance(settings, type) and issubclass(settings, Struct)):
        raise ConfigError(f"{plugin.target} has no class `Settings` that is a msgspec.Struct")
    if not callable(getattr(module, "create", None)):
        raise ConfigError(f"{plugin.target} has no function `create`")
    return module


def _find(kind: EngineKind, name: str) -> tuple[Any, str]:
    """Returns an engine's module and the name of its origin. Raises ConfigError, EngineMissing."""
    if "." in name:
        return _module(kind, name, name), f"module {name}"
    plugin = _plugins(kind).get(name)
    if plugin is None:
        return _module(kind, name, f"{_package(kind)}.{name}"), BUILT_IN
    try:
        return module_of(plugin), plugin.origin
    except ConfigError as exc:
        raise EngineMissing(kind, name, f"the engine of {plugin.origin} is broken: {exc}") from exc


def _module(kind: EngineKind, name: str, path: str) -> ModuleType:
    try:
        module = import_module(path)
    except ModuleNotFoundError as exc:
        if exc.name is None or not path.startswith(exc.name):
            raise EngineMissing(kind, name, f"needs the Python package {exc.name}") from exc
        raise ConfigError(_unknown(kind, name)) from exc
    if not (hasattr(module, "create") and hasattr(module, "Settings")):
        raise ConfigError(_unknown(kind, name))
    return module


def _built_in(kind: EngineKind) -> Mapping[str, ModuleType]:
    """Returns the modules of our own engines by name. Helper modules in the same folder, which have
    no `create`, are left out."""
    names = [module.name for module in iter_modules(import_module(_package(kind)).__path__)]
    modules = {name: import_module(f"{_package(kind)}.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "create")}


def _plugins(kind: EngineKind) -> Mapping[str, Plugin]:
    """Returns the engines of other packages, by name without the kind."""
    return {
        name.removeprefix(f"{kind}."): plugin
        for name, plugin in find_plugins("earshot.engines").items()
        if name.startswith(f"{kind}.") and not _name_problem(name)
    }


def _name_problem(entry: str) -> str:
    """Returns the reason why an entry point's name cannot be an engine's; empty if it can."""
    kind, _, name = entry.partition(".")
    if not name or kind not in get_args(EngineKind):
        return f"its name must be KIND.NAME with one of the kinds {', '.join(get_args(EngineKind))}"
    # A helper module in our folder is not an engine, but a plugin of that name would hide it.
    if find_spec(f"engines.{kind}.{name.partition('.')[0]}") is not None:
        return f"{name!r} is built in: the package has to rename it"
    return ""


def _availability(name: str, module: object, origin: str = BUILT_IN) -> EngineAvailability:
    missing = [library for library in _requirements(module) if find_spec(library) is None]
    if missing:
        return EngineAvailability(name, False, _hint(module, *missing), origin=origin)
    if why := _unavailable_reason(module):
        return EngineAvailability(name, False, why, origin=origin)
    why = _missing_weights(module)
    return EngineAvailability(name, True, why, needs_path=bool(why), origin=origin)


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, EarshotError) else f"{type(error).__name__}: {error}"


def _unknown(kind: EngineKind, name: str) -> str:
    names = ", ".join(engine.name for engine in available(kind))
    return f"{kind}: no engine {name!r}; there are: {names}, or a module path with a dot"


def _package(kind: EngineKind) -> str:
    return f"engines.{kind}"


def _requirements(module: object) -> Mapping[str, str]:
    """Returns the libraries that an engine's module needs: import name -> name for pip."""
    requirements: Mapping[str, str] = getattr(module, "REQUIRES", {})
    return requirements


def _missing_weights(module: object) -> str:
    """Returns a message if the engine has no weights unless a path is configured; usually empty."""
    read_reason: Callable[[], str] | None = getattr(module, "missing_weights", None)
    return read_reason() if read_reason else ""


def _unavailable_reason(module: object) -> str:
    """Returns why an engine's libraries do not run here although they are installed; empty if they
    run, or if the engine's module has no such check."""
    read_reason: Callable[[], str] | None = getattr(module, "unavailable_reason", None)
    return read_reason() if read_reason else ""


def _hint(module: object, *missing: str) -> str:
    if extra := getattr(module, "EXTRA", ""):
        return f"not installed; `earshot extras add {extra}` installs it"
    known = _requirements(module)
    return f"not installed; pip install {' '.join(known.get(name, name) for name in missing)}"
