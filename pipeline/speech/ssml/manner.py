"""Manners of speaking, and the values of attributes that change them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.errors import RequestError

INVALID_SSML = "invalid_ssml"
"Code of the RequestError for a document that cannot be read."

MAX_BREAK_MS = 10_000.0
"Longest `<break>`, as in other services."

MIN_RATE, MAX_RATE = 0.25, 4.0
"Range of the factor on the speed; as for the speed of a request."

MAX_VOLUME_DB = 12.0
"Largest factor by which a volume raises the samples. A larger one only distorts."

MAX_VALUE_CHARS = 64
"Longest part of a wrong value that an error repeats."

_BREAKS_MS = {
    "none": 0.0,
    "x-weak": 100.0,
    "weak": 250.0,
    "medium": 500.0,
    "strong": 1000.0,
    "x-strong": 1500.0,
}
_RATES = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.75}
_VOLUMES_DB = {
    "x-soft": -12.0,
    "soft": -6.0,
    "medium": 0.0,
    "default": 0.0,
    "loud": 6.0,
    "x-loud": 10.0,
}

_TIME = re.compile(r"\+?(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})(ms|s)", re.IGNORECASE)
_PERCENT = re.compile(r"([+-]?)(\d{1,4}(?:\.\d{1,4})?)%")
_FACTOR = re.compile(r"\d{1,4}(?:\.\d{1,4})?")
_DECIBELS = re.compile(r"[+-]?\d{1,4}(?:\.\d{1,4})?(?=dB$)", re.IGNORECASE)
_LANGUAGE = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]{1,8})*")


@dataclass(frozen=True, slots=True)
class SpeechManner:
    """How a text is spoken. Where a field is None, the request decides."""

    language: str | None = None
    "ISO 639-1. None, if a voice is named: the language of the text, if that voice speaks it."
    voice: str | None = None
    "A voice's name."
    rate: float = 1.0
    "Factor on the speed of the request."
    volume: float = 1.0
    "Factor on the samples."


def inner_manner(outer: SpeechManner, element: str, attributes: Mapping[str, str]) -> SpeechManner:
    """Returns the manner inside an element. Raises RequestError for a wrong value."""
    manner = outer
    if element == "voice" and (name := attributes.get("name", "").strip()):
        manner = replace(manner, voice=name, language=None)
    if value := attributes.get("xml:lang"):
        manner = replace(manner, language=read_language(value))
    if element == "prosody":
        if value := attributes.get("rate"):
            rate = min(max(manner.rate * _rate(value), MIN_RATE), MAX_RATE)
            manner = replace(manner, rate=rate)
        if value := attributes.get("volume"):
            manner = replace(manner, volume=manner.volume * _volume(value))
    return manner


def read_language(value: str) -> str:
    """Returns the language of `xml:lang` without its region. Raises RequestError."""
    found = _LANGUAGE.fullmatch(value.strip())
    if found is None:
        raise wrong_value("xml:lang", value, "codes like de and de-AT")
    return found[1].lower()


def break_ms(attributes: Mapping[str, str]) -> float:
    """Returns the length of a `<break>` in ms. Raises RequestError for a wrong value."""
    if value := attributes.get("time", "").strip():
        found = _TIME.fullmatch(value)
        if found is None:
            raise wrong_value("time of break", value, "values like 500ms and 1.5s")
        length_ms = float(found[1]) * (1000 if found[2].lower() == "s" else 1)
        if length_ms > MAX_BREAK_MS:
            raise wrong_value("time of break", value, f"up to {MAX_BREAK_MS / 1000:.0f}s")
        return length_ms
    return _named(attributes.get("strength") or "medium", _BREAKS_MS, "strength of break")


def _rate(value: str) -> float:
    value = value.strip()
    if found := _PERCENT.fullmatch(value):
        share = float(found[2]) / 100
        return 1 + share if found[1] == "+" else max(1 - share, 0) if found[1] == "-" else share
    if _FACTOR.fullmatch(value):
        return float(value)
    return _named(value, _RATES, "rate of prosody", "values like 120%, -10% and 1.2")


def _volume(value: str) -> float:
    value = value.strip()
    if value == "silent":
        return 0.0
    if found := _DECIBELS.match(value):
        decibels = float(found[0])
    elif _FACTOR.fullmatch(value) and float(value) <= 100:  # SSML 1.0: 0 to 100
        return float(value) / 100
    else:
        decibels = _named(value, _VOLUMES_DB, "volume of prosody", "values like +6dB", "silent")
    return float(10 ** (min(decibels, MAX_VOLUME_DB) / 20))


def _named(value: str, names: Mapping[str, float], what: str, *further: str) -> float:
    found = names.get(value.strip().lower())
    if found is None:
        raise wrong_value(what, value, ", ".join([*names, *further]))
    return found


def wrong_value(what: str, value: str, allowed: str) -> RequestError:
    """Returns the error for an attribute's value."""
    return RequestError(
        f"SSML: {what} {value[:MAX_VALUE_CHARS]!r} is not allowed; allowed: {allowed}",
        code=INVALID_SSML,
    )
