"""The Whisper models that are known by name: where they come from and what they suit.

The table itself is `catalogue.toml`. A model's name is what requests, the configuration and
`earshot models` say; its folder in the models directory may be called otherwise.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, convert

from core.errors import NotFound

WeightsFormat = Literal["ct2", "openai"]


class UnknownModelError(NotFound):
    code = "model_unknown"


class CatalogueEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One model."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    repository: str
    "On the hub."
    size_mb: int
    "Of what is downloaded."
    suits: str
    origin: str = ""
    "The unconverted checkpoint, for `earshot models convert`; its tokenizer fits."
    format: WeightsFormat = "ct2"
    "openai: a single .pt file, which must be converted."
    file: str = ""
    "Of an openai checkpoint: its path in the repository."
    mels: Literal[80, 128] = 80
    is_multilingual: bool = True
    "Its vocabulary has languages and tasks; otherwise it knows English only."
    languages: str = "99 languages"
    padding: Literal["nopad"] | None = None
    "nopad: trained on windows as short as the utterance, which the model's own notes will say."
    is_automatic: bool = False
    "`auto` may pick it: the sizes, from small to large."
    aliases: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """What its folder in the models directory is called when it is pulled."""
        if self.format == "openai":
            return f"{self.name}.checkpoint"
        return self.repository.partition("/")[2]


@cache
def entries() -> tuple[CatalogueEntry, ...]:
    """Every known model, in the order of the table."""
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text)["model"], tuple[CatalogueEntry, ...])


def find_entry(name: str) -> CatalogueEntry | None:
    """The model of that name, alias or repository (`openai/whisper-tiny` too); None: nobody's."""
    return _by_name().get(name.strip().casefold())


def require_entry(name: str) -> CatalogueEntry:
    """The same. Raises ModelUnknown, which names what is near."""
    if entry := find_entry(name):
        return entry
    names = [name for name in _by_name() if "/" not in name]
    near = get_close_matches(name.casefold(), names, n=5, cutoff=0.5)
    hint = f"near it: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    raise UnknownModelError(f"no model is called {name!r}; {hint}", param="model")


def short_name(folder: str) -> str:
    """The name of the model in a folder of the models directory: the catalogue's, if it is one of
    its repositories (`faster-whisper-tiny` is `tiny`), otherwise the folder's own."""
    entry = _by_folder().get(folder.casefold())
    return entry.name if entry else folder


@cache
def _by_name() -> Mapping[str, CatalogueEntry]:
    """A checkpoint that several models were made from stands for the first of them."""
    found: dict[str, CatalogueEntry] = {}
    for entry in entries():
        found |= {name.casefold(): entry for name in (entry.name, *entry.aliases)}
    for entry in entries():
        if entry.format == "ct2":
            for repository in (entry.repository, entry.origin):
                found.setdefault(repository.casefold(), entry)
    return found


@cache
def _by_folder() -> Mapping[str, CatalogueEntry]:
    """Only weights that can be loaded: a checkpoint's folder is not the model."""
    found: dict[str, CatalogueEntry] = {}
    for entry in entries():
        if entry.format == "ct2":
            organisation, _, repository = entry.repository.casefold().partition("/")
            found.setdefault(repository, entry)
            found.setdefault(f"{organisation}--{repository}", entry)
            found.setdefault(f"{organisation}-{repository}", entry)
    return found
