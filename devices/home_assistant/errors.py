"""What keeps Home Assistant from doing something; each `code` has a sentence in `words.toml`."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from core.errors import EarshotError


class HomeAssistantError(EarshotError):
    """Base of these."""

    code = "house_failed"


class HomeAssistantUnreachable(HomeAssistantError):
    """Nobody answers there, the connection broke, or it is just starting."""

    code = "house_unreachable"
    retryable = True


class HomeAssistantTimeout(HomeAssistantError):
    """No answer in time; what was asked for may still happen."""

    code = "house_timeout"
    retryable = True


class HomeAssistantAccessError(HomeAssistantError):
    """It does not take the token, or has banned our address. Trying again makes it worse: after a
    few wrong tokens it bans the address for good."""

    code = "house_refused"


class HomeAssistantCommandError(HomeAssistantError):
    """It answered a command with an error of its own; `theirs` is its code."""

    code = "house_failed"

    def __init__(self, theirs: str, message: str) -> None:
        super().__init__(f"{theirs}: {message}")
        self.theirs = theirs


# What is said when Home Assistant says nothing itself.

USUAL = "house_failed"


def error_sentence(code: str, language: str) -> str:
    """The sentence for an error's code, in the user's language or in English."""
    texts = _texts().get(code) or _texts()[USUAL]
    return texts.get(language.partition("-")[0], texts["en"])


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    text = (files("devices.home_assistant") / "words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
