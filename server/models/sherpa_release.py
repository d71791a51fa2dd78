"""Models of sherpa-onnx by name: archives, and single files, on the project's page of releases.

An archive has weights in several forms, recordings and scripts. Only what Earshot loads is kept. A
model that recognises people is a single file.
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
from engines.asr.sherpa.punctuation import holds_punctuation, read_punctuation_file
from engines.asr.sherpa.releases import (
    PREFIX,
    SherpaRelease,
    find_release,
    is_spotter,
    releases,
)
from engines.speaker.sherpa.model_file import SUFFIX, find_speaker_file, read_speaker_file
from server.models.download import BLOCK_BYTES, check_free_space
from server.models.errors import ModelsError
from server.models.hub import Hub, HubFile
from serving.models.catalogue import UnknownModelError
from serving.placement.sherpa import SCHEME

GITHUB = "https://github.com"
REPOSITORY, TAG, SPOTTER_TAG = "k2-fsa/sherpa-onnx", "asr-models", "kws-models"
"Repository, and its releases that hold the archives of recognisers and of keyword spotters."
PUNCTUATION_TAG = "punctuation-models"
"Release with the archives of models that add punctuation."
VOICES_TAG = "speaker-recongition-models"
"Release with the files of models that recognise people; the project spells it so."

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
        return release.folder
    if name.startswith(PREFIX) and RELEASE_NAME.fullmatch(name):
        return name
    similar = get_close_matches(name, releases(), n=3, cutoff=0.5) or list(releases())
    raise UnknownModelError(
        f"no release of sherpa-onnx is called {name[:64]!r}; similar: {', '.join(similar)};"
        f" any other is named in full: {SCHEME}{PREFIX}NAME",
        param="model",
    )


def archive_of(folder: str) -> HubFile:
    """Returns the archive of a release, or its single file."""
    release = find_release(folder)
    if release is not None and release.use == "voices":
        return HubFile(REPOSITORY, VOICES_TAG, f"{folder}{SUFFIX}", None)
    tag = SPOTTER_TAG if is_spotter(folder) else TAG
    if release is not None and release.use == "punctuation":
        tag = PUNCTUATION_TAG
    return HubFile(REPOSITORY, tag, f"{folder}.tar.bz2", None)


def unpack(archive: Path, folder: Path) -> frozenset[str]:
    """Unpacks the archive of a release into `folder`, and returns the files that are kept. Raises
    ModelsError if it is no readable archive, too large, or holds no model that can be loaded."""
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
        if holds_punctuation(folder):
            return frozenset({read_punctuation_file(folder).name} | _papers(folder))
        return kept_paths(read_model(folder))
    except EarshotError as error:
        raise ModelsError(f"{archive.name} holds no model that can be loaded: {error}") from error


def check_speaker_file(folder: Path) -> None:
    """Raises ModelsError if the file in a folder is no model that recognises people."""
    try:
        read_speaker_file(folder)
    except EarshotError as error:
        raise ModelsError(f"the release holds no model that can be loaded: {error}") from error


def kept_paths(model: SherpaModel) -> frozenset[str]:
    """Returns the files of an unpacked release that are kept: those that are loaded, its licence
    and its notes."""
    used = {path.name for path in (*model.files.values(), model.tokens)}
    if model.bpe_vocabulary is not None:
        used.add(model.bpe_vocabulary.name)
    if is_spotter(model.name) and (lexicon := find_lexicon(model.folder)) is not None:
        used.add(lexicon.name)
    return frozenset(used | _papers(model.folder))


def _papers(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name in ("LICENSE", "README.md")}


def release_columns(release: SherpaRelease) -> tuple[str, ...]:
    """Returns what a list says about a release: name, kind, size, languages, licence."""
    return (
        SCHEME + release.name,
        _purpose(release),
        f"{release.size_mb} MB" if release.size_mb else "-",
        " ".join(release.languages),
        release.licence,
    )


PURPOSES = {
    "keywords": "wake words",
    "voices": "who speaks",
    "punctuation": "punctuation",
}
"Use of a release other than for words -> how a list calls it."


def _purpose(release: SherpaRelease) -> str:
    if release.use != "words":
        return PURPOSES[release.use]
    return "streaming" if release.is_streaming else "whole utterances"


def config_lines(folder: Path) -> str:
    """Returns the lines of configuration that select a pulled model."""
    if find_speaker_file(folder) is not None:
        return f'[speakers]\nmodel = "{SCHEME}{folder.name}"'
    if holds_punctuation(folder):
        return f'[asr.options]\npunctuation = "{folder.name}"'
    if is_spotter(folder.name):
        options = f'model = "{folder.name}", words = ["hey jarvis"], stop_words = ["stop"]'
        return f'[wake]\nengine = "sherpa"\noptions = {{ {options} }}'
    return f'[asr]\nmodel = "{SCHEME}{folder.name.removeprefix(PREFIX)}"'
