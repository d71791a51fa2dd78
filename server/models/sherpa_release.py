"""Recognisers of sherpa-onnx by name: archives on the project's page of releases.

An archive has weights in several forms, recordings and scripts. Only what Earshot loads is kept.
"""

import re
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core.errors import EarshotError
from engines.asr.sherpa.hotwords import find_lexicon
from engines.asr.sherpa.model_folder import SherpaModel, read_model
from engines.asr.sherpa.releases import (
    PREFIX,
    SherpaRelease,
    find_release,
    is_spotter,
    releases,
)
from server.models.download import BLOCK_BYTES, check_free_space
from server.models.errors import ModelsError
from server.models.hub import Hub, HubFile
from serving.models.catalogue import UnknownModelError
from serving.placement.sherpa import SCHEME

GITHUB = "https://github.com"
REPOSITORY, TAG, SPOTTER_TAG = "k2-fsa/sherpa-onnx", "asr-models", "kws-models"
"Repository, and its releases that hold the archives of recognisers and of keyword spotters."

RELEASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"Pattern of the name of an archive, which becomes the name of a folder."

KEPT_NAME = re.compile(r"\w[\w.+-]*\.(onnx|ort|txt|model|vocab|phone|md)|LICENSE")
"Pattern of the names of files that are unpacked."

MAX_UNPACKED_BYTES = 8 * 2**30
"Limit of what an archive may unpack to. The largest release has 4 GB."


@dataclass(frozen=True, slots=True)
class ReleaseHub(Hub):
    """A `Hub` whose files are attached to the releases of a repository. It needs no token, and has
    no listing and no checksums."""

    endpoint: str = GITHUB

    def open(self, file: HubFile, start: int) -> Any:
        """Opens a file for reading from the byte `start` on. See `Hub.open`."""
        path = f"{quote(file.repository)}/releases/download/{quote(file.commit)}/{quote(file.path)}"
        headers: Mapping[str, str] = {"Range": f"bytes={start}-"} if start else {}
        return self._open(path, headers, f"{file.repository}/{file.commit}/{file.path}")


def release_folder(identifier: str) -> str | None:
    """Returns the name of the folder of `sherpa:NAME`; None if another kind of model is named. A
    name with the prefix of all releases is taken as it is, so that newer ones can be fetched.

    Raises UnknownModelError for another name that is not in the list, with similar ones.
    """
    if not identifier.startswith(SCHEME):
        return None
    name = identifier.removeprefix(SCHEME)
    if release := find_release(name):
        return PREFIX + release.name
    if name.startswith(PREFIX) and RELEASE_NAME.fullmatch(name):
        return name
    similar = get_close_matches(name, releases(), n=3, cutoff=0.5) or list(releases())
    raise UnknownModelError(
        f"no release of sherpa-onnx is called {name[:64]!r}; similar: {', '.join(similar)};"
        f" any other is named in full: {SCHEME}{PREFIX}NAME",
        param="model",
    )


def archive_of(folder: str) -> HubFile:
    """Returns the archive of a release."""
    tag = SPOTTER_TAG if is_spotter(folder) else TAG
    return HubFile(REPOSITORY, tag, f"{folder}.tar.bz2", None)


def unpack(archive: Path, folder: Path) -> SherpaModel:
    """Unpacks the archive of a release into `folder`, and returns the model. Raises ModelsError if
    it is no readable archive, too large, or holds no model that can be loaded."""
    unpacked_bytes = 0
    try:
        with tarfile.open(archive, "r:bz2") as opened:
            for member in opened:
                name = member.name.rpartition("/")[2]
                # Folders below the first one hold recordings, and tokens of other models.
                depth = member.name.removeprefix("./").count("/")
                if not member.isfile() or depth > 1 or not KEPT_NAME.fullmatch(name):
                    continue
                unpacked_bytes += member.size
                if unpacked_bytes > MAX_UNPACKED_BYTES:
                    raise ModelsError(
                        f"{archive.name} unpacks to more than {MAX_UNPACKED_BYTES >> 30} GB"
                    )
                check_free_space(member.size, folder)
                source = opened.extractfile(member)
                assert source is not None
                with source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target, BLOCK_BYTES)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ModelsError(f"{archive.name} is no readable archive: {error}") from error
    try:
        return read_model(folder)
    except EarshotError as error:
        raise ModelsError(f"{archive.name} holds no model that can be loaded: {error}") from error


def kept_paths(model: SherpaModel) -> frozenset[str]:
    """Returns the files of an unpacked release that are kept: those that are loaded, its licence
    and its notes."""
    used = {path.name for path in (*model.files.values(), model.tokens)}
    if model.bpe_vocabulary is not None:
        used.add(model.bpe_vocabulary.name)
    if is_spotter(model.name) and (lexicon := find_lexicon(model.folder)) is not None:
        used.add(lexicon.name)
    papers = {path.name for path in model.folder.iterdir() if path.name in ("LICENSE", "README.md")}
    return frozenset(used | papers)


def release_columns(release: SherpaRelease) -> tuple[str, ...]:
    """Returns what a list says about a release: name, kind, size, languages, licence."""
    return (
        SCHEME + release.name,
        _purpose(release),
        f"{release.size_mb} MB" if release.size_mb else "-",
        " ".join(release.languages),
        release.licence,
    )


def _purpose(release: SherpaRelease) -> str:
    if release.spots_keywords:
        return "wake words"
    return "streaming" if release.is_streaming else "whole utterances"


def config_lines(folder: Path) -> str:
    """Returns the lines of configuration that select a pulled model."""
    if is_spotter(folder.name):
        options = f'model = "{folder.name}", words = ["hey jarvis"], stop_words = ["stop"]'
        return f'[wake]\nengine = "sherpa"\noptions = {{ {options} }}'
    return f'[asr]\nmodel = "{SCHEME}{folder.name.removeprefix(PREFIX)}"'
