"""Errors of Home Assistant. Each `code` has a sentence for the user in `words.toml`."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from core.errors import EarshotError


class HomeAssistantError(EarshotError):
    """Base class of all errors of Home Assistant."""

    code = "house_failed"


class HomeAssistantUnreachable(HomeAssistantError):
    """Home Assistant cannot be reached, the connection broke, or it is just starting."""

    code = "house_unreachable"
    retryable = True


class HomeAssistantTimeout(HomeAssistantError):
    """Home Assistant did not answer in time. What was asked for may still happen."""

    code = "house_timeout"
    retryable = True


class HomeAssistantAccessError(HomeAssistantError):
    """Home Assistant refuses the token, or has banned our address.

    It must not be tried again: after a few wrong tokens Home Assistant bans the address
    permanently.
    """

    code = "house_refused"


class HomeAssistantCommandError(HomeAssistantError):
    """Home Assistant answered a command with an error of its own. `their_code`: its error code."""

    code = "house_failed"

    def __init__(self, their_code: str, message: str) -> None:
        super().__init__(f"{their_code}: {message}")
        self.their_code = their_code


# Sentences that the user hears after an error, when Home Assistant itself gives none.

DEFAULT_CODE = "house_failed"


def error_sentence(code: str, language: str) -> str:
    """Returns the sentence for an error's code, in the user's language or in English."""
    texts = _texts().get(code) or _texts()[DEFAULT_CODE]
    return texts.get(language.partition("-")[0], texts["en"])


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    text = (files("devices.home_assistant") / "words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
