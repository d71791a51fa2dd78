"""Stored prompts: configured instructions that a client names, with placeholders such as
`{{guest}}` for its own values. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.errors import NotFound, RequestError

PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*\}\}")
"Matches a placeholder; the group is its name."

MAX_CHARS = 100_000
"""Longest text with all values filled in. A value that fills many placeholders would otherwise let
a client fill memory."""


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """One stored prompt, with its former versions."""

    text: str
    version: str = "1"
    "Version of `text`."
    former: Mapping[str, str] = field(default_factory=dict[str, str])
    "Version -> its text, for clients that still name it."

    def text_of(self, version: str | None) -> str | None:
        """Returns the text of a version, or None if there is no such version. None as version means
        the newest."""
        return self.text if version in (None, self.version) else self.former.get(version or "")


@dataclass(frozen=True, slots=True)
class PromptSelection:
    """Stored prompt as a client asked for it."""

    id: str
    version: str | None = None
    "Version; None: the newest."
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    "Placeholder -> value."


@dataclass(frozen=True, slots=True)
class PromptLibrary:
    """All stored prompts, by id."""

    stored: Mapping[str, StoredPrompt] = field(default_factory=dict[str, StoredPrompt])

    def instructions(self, use: PromptSelection) -> str:
        """Returns the text with the values filled in. Placeholders within values are not replaced.

        Raises NotFound prompt_not_found, prompt_version_not_found; RequestError
        prompt_variable_missing, prompt_variable_unknown, prompt_too_long. `param` begins with
        `prompt`.
        """
        text = self._text(use)
        places = set(PLACE.findall(text))
        if unknown := sorted(use.variables.keys() - places):
            raise RequestError(
                f"The prompt {use.id!r} has no variable {unknown[0][:64]!r}. Allowed:"
                f" {_listed(places)}.",
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
        """Returns the text of the selected version. Raises NotFound."""
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
