"""`earshot models list`: shows the models folder and the models that can be pulled."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from server.models.inventory import ModelFolder
from server.models.voices import HIBARI_FILES, HIBARI_PREFIX, KOKORO, PREFIX
from serving.catalogue import entries


def as_table(
    models_dir: Path, found: Sequence[ModelFolder], default: Path | None, everything: bool
) -> Iterator[str]:
    """Yields lines for people. `default`: weights that the server would load. `everything`:
    describes each model that can be pulled."""
    if found:
        rows: list[tuple[str, ...]] = [("", "NAME", "SIZE", "TYPE", "LANGUAGES", "FOLDER")]
        rows += [_row(one, one.path == default) for one in found]
        yield from _aligned(rows)
        if default:
            yield "* is loaded by default"
    else:
        yield f"no models in {models_dir}"
    known = _to_pull(found)
    yield ""
    if everything:
        yield "Known, for `earshot models pull NAME`:"
        yield from _aligned(
            [
                (entry.name, f"{entry.size_mb} MB", entry.languages, entry.suits)
                for entry in entries()
                if entry.name in known
            ]
        )
    else:
        yield f"To pull: {', '.join(known)} (--all says more)"
    hibari = ", ".join(f"{HIBARI_PREFIX}{name}" for name in HIBARI_FILES)
    yield f"Voices, to pull: {KOKORO}, {hibari}, {PREFIX}en_US-lessac-medium and others of Piper"


def as_json(models_dir: Path, found: Sequence[ModelFolder], default: Path | None) -> str:
    """Returns installed and known models as JSON, for programs."""
    known = set(_to_pull(found))
    whole: dict[str, Any] = {
        "models_dir": str(models_dir),
        "installed": [
            {
                "name": one.name,
                "path": str(one.path),
                "kind": one.kind,
                "size_bytes": one.size_bytes,
                "weight_type": one.weight_type,
                "languages": one.languages,
                "problem": one.problem,
                "is_default": one.path == default,
            }
            for one in found
        ],
        "known": [
            {
                "name": entry.name,
                "aliases": entry.aliases,
                "repository": entry.repository,
                "format": entry.format,
                "size_mb": entry.size_mb,
                "mels": entry.mels,
                "is_multilingual": entry.is_multilingual,
                "languages": entry.languages,
                "suits": entry.suits,
                "is_installed": entry.name not in known,
            }
            for entry in entries()
        ],
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def _to_pull(found: Sequence[ModelFolder]) -> list[str]:
    there = {one.name for one in found if one.kind == "model"}
    return [entry.name for entry in entries() if entry.name not in there]


def _row(one: ModelFolder, is_default: bool) -> tuple[str, ...]:
    what = {
        "model": one.languages,
        "voice": one.languages,
        "checkpoint": "must be converted",
        "partial": "partly downloaded",
        "broken": f"broken: {one.problem}",
    }[one.kind]
    size = f"{one.size_bytes / 1e6:.0f} MB"
    return ("*" if is_default else "", one.name, size, one.weight_type, what, str(one.path))


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
