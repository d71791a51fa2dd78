"""Data of one language: Home Assistant's sentences and replies, and our additions."""

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

LANGUAGES_WITH_DATA = ("en", "de", "fr", "es", "it", "nl", "pt", "zh")
"Languages with sentences and replies of our own (ISO 639-1)."
REGIONS = {"zh": "zh-CN", "no": "nb", "iw": "he"}
"ISO 639-1 code -> the name that Home Assistant's data has for it, if different."


class PhraseTemplates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Group of sentences as they are spoken; `{x}` is filled from `fill` or from the home."""

    weight: int
    say: tuple[str, ...]


class LanguageData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of one `<language>.toml`."""

    split: tuple[str, ...] = ()
    "Words between two commands of one sentence, longest first."
    decimal: str = "."
    help_once: str = ""
    "What can be asked, and how a language model is added: follows the first `not_understood`."
    done: str = "OK."
    "Answer for a result that no template of ours can describe."
    many: dict[str, str] = {}
    "`light` or `other` -> text that replaces a long list of names; `{}` is their number."
    slips: tuple[tuple[str, str], ...] = ()
    "(pattern, replacement) for words that recognisers often get wrong."
    generic: tuple[str, ...] = ()
    "Kinds of device: a device named <area> <word> is understood as area and kind, not as a name."
    negations: tuple[str, ...] = ()
    "Words, as regular expressions, in a sentence that asks not to do something."
    kept: tuple[str, ...] = ()
    "Rooms, places, numbers and things that are never taken for a misheard name; `x*`: prefix."
    warm: tuple[str, ...] = ()
    "Sentences that are matched once when the grammar is made, so that the first turn is fast."
    conjunction: str = msgspec.field(default=",", name="and")
    rules: dict[str, str] = {}
    lists: dict[str, dict[str, Any]] = {}
    intents: dict[str, tuple[dict[str, Any], ...]] = {}
    replies: dict[str, dict[str, str]] = {}
    errors: dict[str, str] = {}
    things: dict[str, str] = {}
    colors: dict[str, str] = {}
    states: dict[str, str] = {}
    units: dict[str, tuple[str, str]] = {}
    one: dict[str, str] = {}
    "hour, minute, second -> how one of it is said, if the number word has another gender."
    fill: dict[str, tuple[str, ...]] = {}
    phrases: tuple[PhraseTemplates, ...] = ()


@lru_cache(maxsize=128)  # as many as Home Assistant has languages; each is read once
def home_assistant_name(language: str) -> str | None:
    """Returns the name of Home Assistant's data for an ISO 639-1 code.

    None when sentences or replies are missing.
    """
    from home_assistant_intents import get_intents, get_languages

    known = get_languages()  # a language comes from a client, and would become a file name
    name = REGIONS.get(language, language)
    data = get_intents(name) if name in known else None
    complete = data and data.get("intents") and data.get("responses", {}).get("intents")
    return name if complete else None


def home_assistant_data(language: str) -> dict[str, Any]:
    """Returns a fresh copy of Home Assistant's data. Raises KeyError when there is none."""
    from home_assistant_intents import get_intents

    name = home_assistant_name(language)
    data = get_intents(name) if name else None
    if data is None:
        raise KeyError(language)
    return dict(data)


@lru_cache(maxsize=len(LANGUAGES_WITH_DATA) + 1)  # the files do not change while we run
def language_data(language: str) -> LanguageData:
    """Returns our additions for a language; empty data for a language without a file."""
    if language not in LANGUAGES_WITH_DATA:
        return LanguageData()
    text = (files("engines.llm.intents") / f"{language}.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), LanguageData)


def languages() -> tuple[str, ...]:
    """Returns the ISO 639-1 codes of all languages that can be understood and answered."""
    from home_assistant_intents import get_languages

    codes = {language.split("-")[0] for language in get_languages()}
    return tuple(sorted(code for code in codes if home_assistant_name(code)))


def supported(language: str) -> str:
    """Returns the language itself if it has data, else without its region, else `en`."""
    for code in (language, language.split("-", maxsplit=1)[0]):
        if code in LANGUAGES_WITH_DATA or home_assistant_name(code):
            return code
    return "en"
