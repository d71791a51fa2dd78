"""Stored prompts: instructions of the configuration that a client names, with places for its own
values, `{{guest}}`. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.errors import NotFound, RequestError

PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*\}\}")

MAX_CHARS = 100_000
"With all values in their places: one that stands in many is a client's way to fill memory."


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    text: str
    version: str = "1"
    "Of `text`."
    former: Mapping[str, str] = field(default_factory=dict[str, str])
    "Version -> the text it had; still there for clients that name it."

    def text_of(self, version: str | None) -> str | None:
        """None: there is no such version. Without one it is the newest."""
        return self.text if version in (None, self.version) else self.former.get(version or "")


@dataclass(frozen=True, slots=True)
class PromptSelection:
    """Which prompt, as a client asked for it."""

    id: str
    version: str | None = None
    "None: the newest."
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class PromptLibrary:
    """All there are, by id."""

    stored: Mapping[str, StoredPrompt] = field(default_factory=dict[str, StoredPrompt])

    def instructions(self, use: PromptSelection) -> str:
        """The text with the values in their places. What stands in a value is no place.

        Raises NotFound prompt_not_found, prompt_version_not_found; RequestError
        prompt_variable_missing, prompt_variable_unknown, prompt_too_long. `param` begins with
        `prompt`.
        """
        text = self._text(use)
        places = set(PLACE.findall(text))
        if unknown := sorted(use.variables.keys() - places):
            raise RequestError(
                f"The prompt {use.id!r} has no place for {unknown[0][:64]!r}. "
                f"Allowed: {_listed(places)}.",
                code="prompt_variable_unknown",
                param="prompt.variables",
            )
        if missing := sorted(places - use.variables.keys()):
            raise RequestError(
                f"The prompt {use.id!r} needs a value for: {', '.join(missing)}.",
                code="prompt_variable_missing",
                param=f"prompt.variables.{missing[0]}",
            )
        length = len(text) + sum(
            len(use.variables[found[1]]) - len(found[0]) for found in PLACE.finditer(text)
        )
        if length > MAX_CHARS:
            raise RequestError(
                f"The prompt would have {length} characters; the limit is {MAX_CHARS}.",
                code="prompt_too_long",
                param="prompt.variables",
            )
        return PLACE.sub(lambda found: use.variables[found[1]], text)

    def _text(self, use: PromptSelection) -> str:
        stored = self.stored.get(use.id)
        if stored is None:
            raise NotFound(
                f"There is no prompt {use.id!r}: [prompts] of the server's configuration holds "
                f"them. Allowed: {_listed(self.stored)}.",
                code="prompt_not_found",
                param="prompt.id",
            )
        text = stored.text_of(use.version)
        if text is None:
            raise NotFound(
                f"The prompt {use.id!r} has no version {use.version!r}. "
                f"Allowed: {_listed([stored.version, *stored.former])}.",
                code="prompt_version_not_found",
                param="prompt.version",
            )
        return text


NO_PROMPTS = PromptLibrary()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
