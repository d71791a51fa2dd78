"""Public releases of models for sherpa-onnx that Earshot knows by name. The table is
`releases.toml`. Weights are never shipped: each release has the licence of its authors."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert

PREFIX = "sherpa-onnx-"
"""First part of the name of every release with several files. It may be left out where a release is
named."""
SPOTTER_PREFIX = "kws-"
"First part of the name, behind PREFIX, of every release of a keyword spotter."


class SherpaRelease(Struct, frozen=True, forbid_unknown_fields=True):
    """One release."""

    name: str
    "Name of its archive and its folder, without PREFIX."
    languages: tuple[str, ...]
    "ISO 639-1 codes of the languages that it knows."
    use: Literal["words", "keywords", "voices", "punctuation"] = "words"
    """Its task: to recognise words, wake words, or people by their voices; or to add punctuation. A
    release for voices is one file, and its name has no prefix."""
    is_streaming: bool = False
    "True: it writes words while the user speaks."
    size_mb: int | None = None
    "Size of its weights in MB, as published; None: not known."
    licence: str = "see its model card"

    @property
    def folder(self) -> str:
        """Name of its folder in the models folder."""
        return self.name if self.use == "voices" else PREFIX + self.name


def is_spotter(folder: str) -> bool:
    """Returns whether the folder of a release holds a keyword spotter, by its name."""
    return folder.removeprefix(PREFIX).startswith(SPOTTER_PREFIX)


@cache
def releases() -> Mapping[str, SherpaRelease]:
    """Returns all known releases by name, in the order of the table."""
    text = Path(__file__).with_name("releases.toml").read_text(encoding="utf-8")
    found = convert(tomllib.loads(text)["release"], tuple[SherpaRelease, ...])
    return {release.name: release for release in found}


def find_release(name: str) -> SherpaRelease | None:
    """Returns the release with this name, with or without PREFIX; None if it is not known."""
    return releases().get(name.removeprefix(PREFIX))
