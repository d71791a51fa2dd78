"""Loads the data of one language: Home Assistant's sentences and replies, and our additions."""

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

LANGUAGES_WITH_DATA = ("en", "de", "fr", "es", "it", "nl", "pt", "zh")
"Languages with sentences and replies of our own (ISO 639-1)."
REGIONS = {"zh": "zh-CN", "no": "nb", "iw": "he"}
"ISO 639-1 code -> name of the language in Home Assistant's data, if that is different."


class PhraseTemplates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Group of example sentences; `{x}` is filled from `LanguageData.fill` or from the home."""

    weight: int
    "Share of the group among all sampled sentences, relative to the other groups."
    say: tuple[str, ...]
    "The sentences, as they are spoken."


class LanguageData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of one `<language>.toml`. Templates are in the syntax of hassil."""

    command_separators: tuple[str, ...] = ()
    "Words between two commands of one sentence, longest first."
    decimal: str = "."
    help_once: str = ""
    "Text after the first `not_understood`: what users can say, and how a language model is added."
    done: str = "OK."
    "Answer for a result that no template can describe."
    many: dict[str, str] = {}
    "`light` or `other` -> text that replaces a long list of names; `{}` is their number."
    misspellings: tuple[tuple[str, str], ...] = ()
    "(regular expression, replacement) for words that recognisers often write wrongly."
    device_kind_words: tuple[str, ...] = ()
    "Words for kinds of device. `<area> <word>` is matched as area and kind, even if it is a name."
    negations: tuple[str, ...] = ()
    "Words, as regular expressions, that forbid an action: a sentence with one does nothing."
    protected_words: tuple[str, ...] = ()
    "Words that are not corrected to a name without them; `x*`: all words that begin with x."
    warm_up_sentences: tuple[str, ...] = ()
    "Sentences that are matched once when the grammar is made, so that the first turn is fast."
    own_words: tuple[str, ...] = ()
    "Words before a list that make it that of the person who speaks: `my`."
    conjunction: str = msgspec.field(default=",", name="and")
    "Word before the last item of a spoken list."
    rules: dict[str, str] = {}
    "Name -> template that other templates use as `<name>`."
    lists: dict[str, dict[str, Any]] = {}
    "Name -> values that templates use as `{name}`."
    intents: dict[str, tuple[dict[str, Any], ...]] = {}
    "Intent -> blocks of templates with their slots, as in Home Assistant's data."
    replies: dict[str, dict[str, str]] = {}
    "Intent -> Jinja templates of the answer, by kind of device or case; `default` is the rest."
    errors: dict[str, str] = {}
    "Error code of a tool -> Jinja template of the answer."
    things: dict[str, str] = {}
    "Domain or device class -> how it is spoken."
    colors: dict[str, str] = {}
    "Name of a color -> how it is spoken."
    states: dict[str, str] = {}
    "State of a device -> how it is spoken."
    units: dict[str, tuple[str, str]] = {}
    "hour, minute, second -> (singular, plural)."
    singular_units: dict[str, str] = {}
    'hour, minute, second -> "one hour", if the word for 1 has another gender than in counting.'
    fill: dict[str, tuple[str, ...]] = {}
    "Name of a placeholder in `phrases` -> its values."
    phrases: tuple[PhraseTemplates, ...] = ()
    "Example sentences for training a recogniser's language model."


@lru_cache(maxsize=128)  # as many as Home Assistant has languages; each is read once
def home_assistant_name(language: str) -> str | None:
    """Returns the name of Home Assistant's data for an ISO 639-1 code.

    None when sentences or replies are missing.
    """
    from home_assistant_intents import get_intents, get_languages

    known = get_languages()  # checked because a client's text would become a file name
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
    """Returns our additions for a language; empty ones if there is no file."""
    if language not in LANGUAGES_WITH_DATA:
        return LanguageData()
    text = (files("engines.llm.intents") / "phrases" / f"{language}.toml").read_text(
        encoding="utf-8"
    )
    return msgspec.convert(tomllib.loads(text), LanguageData)


def languages() -> tuple[str, ...]:
    """Returns the ISO 639-1 codes of all languages that can be understood and answered."""
    from home_assistant_intents import get_languages

    codes = {language.split("-")[0] for language in get_languages()}
    return tuple(sorted(code for code in codes if home_assistant_name(code)))


def supported_language(language: str) -> str:
    """Returns the language itself if it has data, else without its region, else `en`."""
    for code in (language, language.split("-", maxsplit=1)[0]):
        if code in LANGUAGES_WITH_DATA or home_assistant_name(code):
            return code
    return "en"
