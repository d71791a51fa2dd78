"""Public releases of models for sherpa-onnx that Earshot knows by name. The table is
`releases.toml`. Weights are never shipped: each release has the licence of its authors."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct, convert

PREFIX = "sherpa-onnx-"
"First part of the name of every release. It may be left out where a release is named."
SPOTTER_PREFIX = "kws-"
"First part of the name, behind PREFIX, of every release of a keyword spotter."


class SherpaRelease(Struct, frozen=True, forbid_unknown_fields=True):
    """One release."""

    name: str
    "Name of its archive and its folder, without PREFIX."
    languages: tuple[str, ...]
    "ISO 639-1 codes of the languages that it knows."
    spots_keywords: bool = False
    "True: it spots wake words, and recognises nothing else."
    is_streaming: bool = False
    "True: it writes words while the user speaks."
    size_mb: int | None = None
    "Size of its weights in MB, as published; None: not known."
    licence: str = "see its model card"


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
