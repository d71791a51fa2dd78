"""Reads the user's catalogue: a TOML file with further models, changed fields of known ones, and
further names. It is checked as a whole before any of it counts."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from msgspec import ValidationError, convert, structs

from core.errors import ConfigError
from serving.models.catalogue import (
    Catalogue,
    CatalogueEntry,
    CatalogueKind,
    WeightsFormat,
    built_in,
    use,
)

FORMATS: Mapping[CatalogueKind, tuple[WeightsFormat, ...]] = {
    "asr": ("ct2", "openai"),
    "embed": ("text_encoder",),
    "rerank": ("text_encoder",),
    "clip": ("text_encoder",),
    "endpoint": ("onnx",),
    "llm": ("gguf",),
    "speaker": ("npz",),
    "codec": ("transformers",),
}
"Kind of a model -> formats that its engine reads, the usual one first."

ALLOWED: Mapping[str, str] = {
    "name": "letters, digits, dots and hyphens",
    "repository": "ORGANISATION/NAME",
    "size_mb": "a whole number from 1",
    "kind": ", ".join(get_args(CatalogueKind)),
    "format": ", ".join(get_args(WeightsFormat)),
    "mels": "80, 128",
    "padding": "nopad",
    "revision": "a commit, 40 hexadecimal digits in lower case",
    "sha256": "a table of FILE = checksum, 64 hexadecimal digits in lower case",
    "aliases": "a list of names",
    "is_multilingual": "true, false",
    "is_automatic": "true, false",
}
"Field -> what it may hold; all other fields hold text."


def read_catalogue(file: Path, known: Catalogue) -> Catalogue:
    """Returns the catalogue `known` with the models and the names of a file.

    Raises ConfigError with one line for each problem, which names the file, the entry and what is
    allowed.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    draft = _CatalogueDraft(known)
    for key, value in tables.items():
        match key, value:
            case "model", [*models]:
                for number, table in enumerate(models, start=1):
                    draft.add_model(number, table)
            case "aliases", dict():
                draft.aliases = value
            case _:
                allowed = "[[model]] and [aliases]"
                draft.problems.append(f"{key!r} is unknown or no table; allowed: {allowed}")
    problems = [*draft.problems, *draft.name_problems()]
    if problems:
        raise ConfigError("\n".join(f"{file}: {problem}" for problem in problems))
    return Catalogue(draft.models.values(), draft.resolved_aliases())


def use_catalogue(file: str) -> None:
    """Sets the catalogue of this process: the known models, and those of a file. Empty: only the
    known ones. Raises ConfigError as `read_catalogue`."""
    use(read_catalogue(Path(file).expanduser(), built_in()) if file else None)


class _CatalogueDraft:
    """The known models with those of the file, and the problems found."""

    def __init__(self, known: Catalogue) -> None:
        self.models = {entry.name: entry for entry in known.models}
        self.aliases: Mapping[str, Any] = {}
        "Further name -> name of a model, or another further name."
        self.problems: list[str] = []
        self._own_names: set[str] = set()

    def add_model(self, number: int, table: Any) -> None:
        """Adds one `[[model]]`, or its problem. `number`: its place in the file, from 1."""
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            self.problems.append(f"model {number}: 'name' is missing, or is no text")
            return
        name = table["name"]
        if problem := self._try_to_add(name, table):
            self.problems.append(f"model {name!r}: {problem}")

    def _try_to_add(self, name: str, table: dict[str, Any]) -> str:
        """Adds a model whose fields are right, and returns an empty text. Otherwise returns what is
        wrong."""
        if name in self._own_names:
            return "the name is in this file twice"
        self._own_names.add(name)
        fields = CatalogueEntry.__struct_fields__
        if unknown := [field for field in table if field not in fields]:
            return f"unknown field {unknown[0]!r}; allowed: {', '.join(fields)}"
        before = self.models.get(name)
        values = {**(structs.asdict(before) if before else {}), **table}
        for field in ("repository", "size_mb"):
            if field not in values:
                return f"{field!r} is missing, which every new model needs; {_allowed(field)}"
        kind = values.get("kind", "asr")
        if kind in FORMATS:
            values.setdefault("format", FORMATS[kind][0])
        try:
            entry = convert(values, CatalogueEntry)
        except ValidationError as error:
            return _conversion_problem(error, values)
        if entry.format not in FORMATS[entry.kind]:
            formats = ", ".join(FORMATS[entry.kind])
            return f"format {entry.format!r} does not fit kind {kind!r}; allowed: {formats}"
        needed = {"openai": ("file", "origin"), "onnx": ("file",), "gguf": ("file",)}
        for field in needed.get(entry.format, ()):
            if not getattr(entry, field):
                return f"{field!r} is missing, which the format {entry.format!r} needs"
        self.models[name] = entry
        return ""

    def name_problems(self) -> Iterator[str]:
        """Yields what is wrong with names and aliases, once all models are there."""
        owners: dict[str, str] = {}
        for entry in self.models.values():
            for name in (entry.name, *entry.aliases):
                owner = owners.setdefault(name.casefold(), entry.name)
                if owner != entry.name:
                    yield f"model {entry.name!r}: the name {name!r} belongs to model {owner!r}"
        folders: dict[str, str] = {}
        for entry in self.models.values():
            owner = folders.setdefault(entry.folder.casefold(), entry.name)
            if owner != entry.name and entry.name in self._own_names:
                yield (
                    f"model {entry.name!r}: its folder {entry.folder!r} is that of model {owner!r};"
                    " allowed: a repository with another name"
                )
        for alias, name in self.aliases.items():
            if not isinstance(name, str):
                yield f"alias {alias!r}: {name!r} is no text; allowed: the name of a model"
            elif alias.casefold() in owners:
                yield f"alias {alias!r}: the name belongs to model {owners[alias.casefold()]!r}"
            else:
                yield from self._target_problem(alias, owners)

    def _target_problem(self, alias: str, owners: Mapping[str, str]) -> Iterator[str]:
        """Follows an alias. Yields a problem if it leads to no model."""
        path = [alias]
        while (name := path[-1]).casefold() not in owners:
            target = self.aliases.get(name)
            if not isinstance(target, str):
                yield f"alias {alias!r}: no model is called {name!r}; allowed: a known name"
                return
            path.append(target)
            if target in path[:-1]:
                yield f"alias {alias!r}: the names form a cycle: {' -> '.join(path)}"
                return

    def resolved_aliases(self) -> Mapping[str, str]:
        """Returns the name of the model for each alias that was checked."""
        resolved = {}
        for alias, target in self.aliases.items():
            name = target
            while name in self.aliases:
                name = self.aliases[name]
            resolved[alias] = name
        return resolved


def _conversion_problem(error: ValidationError, values: Mapping[str, Any]) -> str:
    """Returns which field has a wrong value, and what is allowed."""
    _, _, path = str(error).rpartition(" - at `$.")
    field = path.rstrip("`").partition("[")[0].partition(".")[0]
    value = values.get(field)
    return f"{field}: {value!r} is not allowed; {_allowed(field)}"


def _allowed(field: str) -> str:
    return f"allowed: {ALLOWED.get(field, 'text')}"
