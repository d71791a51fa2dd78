"""Corpus of a run: recordings with their texts, and their distribution among tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import RequestError

MANIFEST = "wav.scp"
"File in a corpus folder with `id path`."
TEXTS = "trans.txt"
"File in a corpus folder with `id words`."
PATH_COLUMN = "path"
"First word of a table whose first line names the columns."


class BadCorpus(RequestError):
    """Error in a manifest or table; the message names file and line."""

    code = "bad_corpus"


@dataclass(frozen=True, slots=True)
class CorpusClip:
    """One recording and its reference text."""

    id: str
    path: Path
    text: str
    language: str | None = None


def load_corpus(source: Path) -> list[CorpusClip]:
    """Reads a folder with wav.scp and trans.txt, or a table of paths and texts. Raises
    BadCorpus."""
    clips = list(_manifest(source) if source.is_dir() else _table(source))
    if not clips:
        raise BadCorpus(f"{source}: no recordings are listed")
    for clip in clips:
        if not clip.path.is_file():
            raise BadCorpus(f"{source}: {clip.id}: there is no file {clip.path}")
    return clips


def shares(clips: Sequence[CorpusClip], tasks: int) -> list[list[CorpusClip]]:
    """Splits the recordings into contiguous shares of almost equal size, never an empty one."""
    tasks = min(tasks, len(clips))
    size, longer = divmod(len(clips), tasks)
    ends = [size * (n + 1) + min(n + 1, longer) for n in range(tasks)]
    return [list(clips[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]


def _manifest(folder: Path) -> Iterator[CorpusClip]:
    """Reads Kaldi's two files: `id path`, relative to the folder, and `id words`."""
    texts = {
        fields[0]: fields[1]
        for number, line in _lines(folder / TEXTS)
        if (fields := _fields(folder / TEXTS, number, line, "an id and at least one word"))
    }
    for number, line in _lines(folder / MANIFEST):
        name, path = _fields(folder / MANIFEST, number, line, "exactly an id and a path")
        if len(path.split()) != 1:
            raise _wrong(folder / MANIFEST, number, "exactly an id and a path", line)
        if name not in texts:
            raise BadCorpus(f"{folder / MANIFEST}:{number}: {TEXTS} has no text for {name!r}")
        yield CorpusClip(name, folder / path, texts[name])


def _table(file: Path) -> Iterator[CorpusClip]:
    """Reads a tab-separated table: a path relative to the table, optionally a language, and the
    text."""
    for number, line in _lines(file):
        row = [field.strip() for field in line.split("\t")]
        if number == 1 and row[0] == PATH_COLUMN:
            continue
        if len(row) not in {2, 3} or not row[0] or not row[-1]:
            raise _wrong(file, number, "a path, perhaps a language, and a text, with tabs", line)
        language = row[1] or None if len(row) == 3 else None
        yield CorpusClip(row[0], file.parent / row[0], row[-1], language)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not blank, with their numbers."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadCorpus(f"{file}: is no UTF-8 text") from error
    except OSError as error:
        raise BadCorpus(f"{file}: {error.strerror or error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line


def _fields(file: Path, number: int, line: str, wanted: str) -> tuple[str, str]:
    """Returns the first word, and the others joined by single blanks."""
    first, *rest = line.split()
    if not rest:
        raise _wrong(file, number, wanted, line)
    return first, " ".join(rest)


def _wrong(file: Path, number: int, wanted: str, line: str) -> BadCorpus:
    return BadCorpus(f"{file}:{number}: expected {wanted}, got {line!r}")
