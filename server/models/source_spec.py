"""Resolves the name of a model to the files to download."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from engines.codec.settings import CONFIG_FILE, WEIGHTS_FILE
from server.models.errors import ModelsError
from server.models.hub import Hub, HubFile
from server.models.sherpa_release import REPOSITORY as SHERPA_REPOSITORY
from server.models.sherpa_release import release_folder
from server.models.text_files import text_model_files
from server.models.voices import voice_of
from serving.models.catalogue import CatalogueEntry, find_entry, require_entry
from serving.placement.choose import WHISPER_FILES

SourceKind = Literal[
    "ct2",
    "checkpoint",
    "voice",
    "embed",
    "rerank",
    "clip",
    "endpoint",
    "llm",
    "speaker",
    "codec",
    "sherpa",
    "punctuation",
]
"""Kind of a download. ct2: weights of CTranslate2. checkpoint: weights that must be converted.
embed, rerank: a model for embeddings or reranking. clip: one that takes images, too. endpoint: a
model for turn detection. llm: a language model. speaker: a model that recognises speakers.
codec: sound to codes and back. sherpa: a recogniser of sherpa-onnx.
punctuation: a model that adds punctuation to the words of another one."""

MAIN_BRANCH = "main"
"Default branch of a repository."

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""Name of a repository on a hub. It becomes a folder's name, so it can be neither hidden nor a path
elsewhere."""

CT2_FILES = (*WHISPER_FILES, "preprocessor_config.json", "vocabulary.json", "vocabulary.txt")
"Files of a CTranslate2 model; not every model has all of them."

TOKENIZER_FILES = (
    "added_tokens.json", "config.json", "generation_config.json", "merges.txt", "normalizer.json",
    "preprocessor_config.json", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "vocab.json",
)  # fmt: skip
"Files that a checkpoint has in addition to its weights."

WEIGHTS = (r"model\.safetensors", r"model-\d+-of-\d+\.safetensors|model\.safetensors\.index\.json",
           r"pytorch_model\.bin", r"pytorch_model-\d+-of-\d+\.bin|pytorch_model\.bin\.index\.json",
           r"[^/]+\.pt")  # fmt: skip
"Patterns of a checkpoint's weights; the first one that matches is taken."


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Model or voice on a hub."""

    title: str
    "Name for messages."
    folder: str
    "Name of its folder in the models directory."
    repository: str
    entry: CatalogueEntry | None = None
    "Entry of the catalogue; None for a voice, or a repository that is not in it."
    endpoint: str = ""
    "Address of the hub, if the user gave the address of a page; empty: the configured hub."
    revision: str = MAIN_BRANCH
    "Branch, tag or commit."
    paths: tuple[str, ...] = ()
    "Files of a voice. Only these are fetched."
    is_archive: bool = False
    "True: the files come in an archive of a release, and no hub has them."


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """Files to download, and what they are."""

    kind: SourceKind
    files: tuple[HubFile, ...]


def source_of(name: str) -> ModelSource:
    """Parses a catalogue name, a voice, `sherpa:NAME`, `organisation/repository` or the address of
    its page. Raises UnknownModelError or ModelsError."""
    if (voice := voice_of(name)) is not None:
        return ModelSource(name, voice.folder, voice.repository, paths=voice.paths)
    if (folder := release_folder(name)) is not None:
        return ModelSource(name, folder, SHERPA_REPOSITORY, is_archive=True)
    if "://" in name:
        return _parse_page_address(name)
    if REPOSITORY.fullmatch(name) and find_entry(name) is None:
        return ModelSource(name, name.replace("/", "--"), name)
    entry = require_entry(name)
    revision = entry.revision or MAIN_BRANCH
    return ModelSource(entry.name, entry.folder, entry.repository, entry, revision=revision)


def checkpoint_of(entry: CatalogueEntry) -> ModelSource:
    """Returns the unconverted form of a known model."""
    if entry.format == "openai":
        return ModelSource(entry.name, entry.folder, entry.repository, entry)
    return ModelSource(entry.origin, entry.origin.replace("/", "--"), entry.origin)


def plan(hub: Hub, source: ModelSource, revision: str | None) -> DownloadPlan:
    """Lists the files to download. Raises ModelsError if the repository holds neither a Whisper nor
    a model for embeddings or reranking."""
    repository_files = _with_checksums(
        hub.files(source.repository, revision or source.revision), source.entry
    )
    names = {file.path for file in repository_files}
    if source.paths:
        return DownloadPlan("voice", _voice_files(repository_files, source))
    entry = source.entry
    if entry and entry.format == "openai":
        return DownloadPlan(
            "checkpoint", (*_select(repository_files, (entry.file,)), *_tokenizer_files(hub, entry))
        )
    if entry and entry.kind in ("endpoint", "llm"):
        return DownloadPlan(entry.kind, _select(repository_files, (entry.file,)))
    if entry and entry.kind == "codec":
        return DownloadPlan("codec", _select(repository_files, (CONFIG_FILE, WEIGHTS_FILE)))
    if "model.bin" in names:
        files = _select(repository_files, CT2_FILES)
        missing = [name for name in WHISPER_FILES if name not in names]
        if missing == ["tokenizer.json"] and entry and entry.origin:
            files += _select(hub.files(entry.origin), ("tokenizer.json",))
        elif missing:
            raise ModelsError(f"{source.repository} has no {', '.join(missing)}")
        return DownloadPlan("ct2", files)
    if (text_model := text_model_files(hub, repository_files)) is not None:
        return DownloadPlan(text_model.kind, text_model.files)
    for pattern in WEIGHTS:
        if weights := tuple(file for file in repository_files if re.fullmatch(pattern, file.path)):
            return DownloadPlan(
                "checkpoint", (*_select(repository_files, TOKENIZER_FILES), *weights)
            )
    content = ", ".join(sorted(names)[:8]) or "nothing"
    raise ModelsError(
        f"{source.repository} holds no model: neither model.bin nor a checkpoint; it holds"
        f" {content}"
    )


def _with_checksums(
    files: tuple[HubFile, ...], entry: CatalogueEntry | None
) -> tuple[HubFile, ...]:
    """Returns the files with the checksums that the catalogue demands. Raises ModelsError for a
    file that the hub does not have, or has with another checksum."""
    demanded = entry.sha256 if entry else {}
    found = {file.path: file for file in files}
    for path, checksum in demanded.items():
        if path not in found:
            raise ModelsError(f"the repository has no {path}, of which the catalogue has a sha256")
        listed = found[path].sha256
        if listed and listed != checksum:
            raise ModelsError(
                f"{found[path].repository}: {path} has the sha256 {listed} on the hub, and"
                f" {checksum} in the catalogue"
            )
    return tuple(replace(file, sha256=demanded.get(file.path, file.sha256)) for file in files)


def _voice_files(repository_files: Sequence[HubFile], source: ModelSource) -> tuple[HubFile, ...]:
    names = {file.path for file in repository_files}
    if missing := [path for path in source.paths if path not in names]:
        raise ModelsError(f"{source.repository} has no {', '.join(missing)}")
    return _select(repository_files, source.paths)


def _tokenizer_files(hub: Hub, entry: CatalogueEntry) -> tuple[HubFile, ...]:
    """Returns the tokenizer files of the model from which a bare .pt file was trained."""
    return tuple(
        file
        for file in hub.files(entry.origin)
        if file.path in TOKENIZER_FILES and file.path != "config.json"
    )


def _select(files: Sequence[HubFile], paths: Sequence[str]) -> tuple[HubFile, ...]:
    """Returns the files with one of these paths. Raises ModelsError if there is none."""
    selected = tuple(file for file in files if file.path in paths)
    if not selected:
        repository = f"{files[0].repository}" if files else "the repository"
        raise ModelsError(f"{repository} has no {', '.join(paths)}")
    return selected


def _parse_page_address(address: str) -> ModelSource:
    """Parses the address of a model's page, perhaps with a branch or commit. Raises ModelsError."""
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise ModelsError(f"{address} is not a valid address: {error}") from None
    path = parts.path.strip("/").split("/")
    repository = "/".join(path[:2])
    if parts.scheme not in {"http", "https"} or not REPOSITORY.fullmatch(repository):
        raise ModelsError(
            f"{address} is not the page of a model; expected https://HUB/ORGANISATION/REPOSITORY"
        )
    revision = path[3] if len(path) > 3 and path[2] in {"tree", "blob", "resolve"} else MAIN_BRANCH
    entry = find_entry(repository)
    entry = entry if entry and entry.repository == repository else None
    return ModelSource(
        repository,
        entry.folder if entry else repository.replace("/", "--"),
        repository,
        entry,
        f"{parts.scheme}://{parts.netloc}",
        revision,
    )
