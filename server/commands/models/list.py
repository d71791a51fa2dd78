"""`earshot models list`: shows the models folder and the models that can be pulled."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from engines.asr.sherpa.releases import releases
from server.commands.columns import align_columns
from server.models.inventory import USABLE_KINDS, ModelFolder
from server.models.sherpa_release import release_columns
from server.models.voices import HIBARI_FILES, HIBARI_PREFIX, KOKORO, PIPER_PREFIX
from serving.models.catalogue import entries
from serving.placement.sherpa import SCHEME


def as_table(
    models_dir: Path, folders: Sequence[ModelFolder], default_path: Path | None, show_all: bool
) -> Iterator[str]:
    """Yields the lines of a table for people. `folders`: content of the models folder.
    `default_path`: weights that the server would load. `show_all`: also describes each model that
    can be pulled."""
    if folders:
        rows: list[tuple[str, ...]] = [("", "NAME", "SIZE", "TYPE", "LANGUAGES", "FOLDER")]
        rows += [_row(folder, folder.path == default_path) for folder in folders]
        yield from align_columns(rows)
        if default_path:
            yield "* is loaded by default"
    else:
        yield f"no models in {models_dir}"
    pullable = _pullable_names(folders)
    yield ""
    if show_all:
        yield "Known, for `earshot models pull NAME`:"
        yield from align_columns(
            [
                (entry.name, entry.kind, f"{entry.size_mb} MB", entry.languages, entry.suits)
                for entry in entries()
                if entry.name in pullable
            ]
        )
    else:
        yield f"To pull: {', '.join(pullable)} (--all says more)"
    if show_all:
        yield ""
        yield "Models of sherpa-onnx, with the licence of their authors:"
        yield from align_columns([release_columns(one) for one in releases().values()])
    else:
        yield f"Models of sherpa-onnx: {len(releases())}, {SCHEME}NAME (--all lists them)"
    hibari = ", ".join(f"{HIBARI_PREFIX}{name}" for name in HIBARI_FILES)
    piper = f"{PIPER_PREFIX}en_US-lessac-medium"
    yield f"Voices, to pull: {KOKORO}, {hibari}, {piper} and others of Piper"


def as_json(models_dir: Path, folders: Sequence[ModelFolder], default_path: Path | None) -> str:
    """Returns installed and known models as JSON, for programs."""
    pullable = set(_pullable_names(folders))
    report: dict[str, object] = {
        "models_dir": str(models_dir),
        "installed": [
            {
                "name": folder.name,
                "path": str(folder.path),
                "kind": folder.kind,
                "size_bytes": folder.size_bytes,
                "weight_type": folder.weight_type,
                "languages": folder.languages,
                "problem": folder.problem,
                "is_default": folder.path == default_path,
            }
            for folder in folders
        ],
        "known": [
            {
                "name": entry.name,
                "kind": entry.kind,
                "aliases": entry.aliases,
                "repository": entry.repository,
                "format": entry.format,
                "size_mb": entry.size_mb,
                "mels": entry.mels,
                "is_multilingual": entry.is_multilingual,
                "languages": entry.languages,
                "suits": entry.suits,
                "is_installed": entry.name not in pullable,
            }
            for entry in entries()
        ],
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def _pullable_names(folders: Sequence[ModelFolder]) -> list[str]:
    installed_names = {folder.name for folder in folders if folder.kind in USABLE_KINDS}
    return [entry.name for entry in entries() if entry.name not in installed_names]


def _row(folder: ModelFolder, is_default: bool) -> tuple[str, ...]:
    description = {
        "model": folder.languages,
        "voice": folder.languages,
        "embed": folder.languages,
        "rerank": folder.languages,
        "clip": folder.languages,
        "endpoint": folder.languages,
        "llm": folder.languages,
        "speaker": folder.languages,
        "codec": folder.languages,
        "sherpa": folder.languages,
        "punctuation": folder.languages,
        "checkpoint": "must be converted",
        "partial": "partly downloaded",
        "broken": f"broken: {folder.problem}",
    }[folder.kind]
    size = f"{folder.size_bytes / 1e6:.0f} MB"
    return (
        "*" if is_default else "",
        folder.name,
        size,
        folder.weight_type,
        description,
        str(folder.path),
    )
