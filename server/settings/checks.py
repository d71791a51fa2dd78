"""Checks of changed settings beyond their types, and the settings that errors are about. Pure."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, to_builtins

from core.errors import ConfigError, EarshotError
from engines.llm.openai import create as create_openai
from engines.llm.openai.settings import Settings as OpenAiSettings
from engines.registry import read_settings
from server.config import Config
from server.settings.schema import OPTION_TYPES, value_at

SettingValue = str | int | float | bool | list[str] | None
"New value of a setting. None: remove it from the file, so that its default holds."

SECRET_OF_ADDRESS: Mapping[str, str] = {"base_url": "api_key", "url": "token"}
"""Setting with an address -> setting with the secret that is sent there. A secret must
not go to an address for which it was not typed."""

_LINE = re.compile(r"(?:config\.)?(?P<key>[a-z_]+(?:\.[a-z_]+)+|language): (?P<why>.*)", re.DOTALL)
_PLACE = re.compile(r"^(?P<why>.*?)(?: - at `\$\.?(?P<place>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")


class SettingProblem(Struct, frozen=True):
    """A value that cannot be saved."""

    key: str
    "Setting at fault; empty if none is."
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


def tables_of(config: Config) -> dict[str, Any]:
    """Returns the values as nested tables that may be changed."""
    found: dict[str, object] = to_builtins(config)
    return found


def located_problems(text: str) -> list[SettingProblem]:
    """Returns the problems that an error message lists, each with the setting that it names."""
    problems = []
    for line in text.splitlines():
        found = _LINE.match(line)
        key, why = (found["key"], found["why"]) if found else ("", line)
        problems.append(SettingProblem(key, why))
    return problems


def model_options(config: Config) -> Mapping[str, Any] | None:
    """Returns the options of the language model over HTTP; None if there is none."""
    options: Mapping[str, object] = config.llm.options
    if config.llm.engine == "hybrid":
        model = options.get("model")
        if not isinstance(model, Mapping) or model.get("engine", "openai") != "openai":
            return None
        options = model.get("options", {})
    elif config.llm.engine != "openai":
        return None
    return options if isinstance(options, Mapping) else None


def _options_key(config: Config) -> str:
    return "llm.options.model.options" if config.llm.engine == "hybrid" else "llm.options"


def check_language_model(config: Config) -> None:
    """Checks the options of the language model as far as that needs no connection. Raises
    ConfigError that names the setting."""
    kind = OPTION_TYPES.get(("llm", config.llm.engine))
    if kind is None:
        return
    at = "llm.options"
    try:
        if config.llm.engine == "hybrid":
            read_settings(kind, config.llm.options, where="llm")
        options = model_options(config)
        if options is None:
            return
        at = _options_key(config)
        settings = read_settings(OpenAiSettings, options, where="llm")
        assert isinstance(settings, OpenAiSettings)
    except ConfigError as error:
        place = _PLACE.match(str(error).removeprefix("llm: "))
        assert place is not None
        why, inside = place["why"], place["place"] or ""
        if missing := _MISSING.search(why):
            inside = ".".join(filter(None, (inside, missing["name"])))
            why = "a value is needed"
        raise ConfigError(f"{at}{'.' if inside else ''}{inside}: {why}") from error
    try:
        create_openai(settings)
    except EarshotError as error:
        raise ConfigError(f"{at}.base_url: {error}") from error


def stale_secrets(
    before: Config, after: Config, changes: Mapping[str, SettingValue]
) -> list[SettingProblem]:
    """Returns a problem for each secret that was typed for another address."""
    problems = []
    old, new = tables_of(before), tables_of(after)
    for key in changes:
        path = tuple(key.split("."))
        secret = SECRET_OF_ADDRESS.get(path[-1])
        if secret is None:
            continue
        secret_path = (*path[:-1], secret)
        secret_key = ".".join(secret_path)
        is_kept = secret_key not in changes and bool(value_at(new, secret_path))
        if is_kept and origin_of(value_at(old, path)) != origin_of(value_at(new, path)):
            why = "it belongs to another address; type it again, or remove it"
            problems.append(SettingProblem(secret_key, why))
    return problems


def origin_of(address: object) -> tuple[str, str, int | None]:
    """Returns scheme, host and port, which decide who gets a secret."""
    try:
        parts = urlsplit(str(address or ""))
        return parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        return "", str(address), None
