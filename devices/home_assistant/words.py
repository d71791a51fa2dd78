"""What is said when Home Assistant says nothing itself."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

USUAL = "house_failed"


def error_sentence(code: str, language: str) -> str:
    """The sentence for an error's code, in the user's language or in English."""
    texts = _texts().get(code) or _texts()[USUAL]
    return texts.get(language.partition("-")[0], texts["en"])


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    text = (files("devices.home_assistant") / "words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
