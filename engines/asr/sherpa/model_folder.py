"""Reads a folder with a model of sherpa-onnx without loading it, and checks everything that the
library would end its process for: missing files, files of another kind, missing notes, tokens that
do not fit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError, EngineMissing
from engines.asr.sherpa.families import (
    DECODER,
    ENCODER,
    FAMILIES,
    FRAME_MS,
    JOINER,
    MODEL,
    ModelFamily,
)
from engines.asr.sherpa.hotwords import find_bpe_vocabulary
from engines.base.decode_steps import DecodeSteps
from engines.runtime.model_files.onnx_file import OnnxNotes, read_notes

NAME = "sherpa"
"Name of the engine in errors."
AUTO = "auto"
"Setting of the family that leaves it to the notes of the files."

INT8 = ".int8."
"Part of the name of a file with weights of 8 bits."

FILE_PATTERNS: Mapping[str, str] = {
    ENCODER: r"(.*[-_.])?encoder([-_.].*)?\.(onnx|ort)|encode(\.int8)?\.onnx",
    DECODER: r"(.*[-_.])?decoder([-_.].*)?\.(onnx|ort)",
    JOINER: r"(.*[-_.])?joiner([-_.].*)?\.onnx",
    MODEL: r"(.*[-_.])?model([-_.].*)?\.onnx",
    "paraformer": r"model([-_.].*)?\.onnx",
    "preprocessor": r"preprocess(\.int8)?\.onnx",
    "uncached_decoder": r"uncached_decode(\.int8)?\.onnx",
    "cached_decoder": r"cached_decode(\.int8)?\.onnx",
}
"Pattern of the names of the files of each part, as the public releases have them."

WINDOW_EDGE_MS = 18
"""Audio that the last frame of a window needs beyond its own 10 ms: half of what a frame of 25 ms
overlaps, rounded up, and the next frame, for which the library waits."""

BLANKS = frozenset(("<blk>", "<eps>", "<blank>"))
"""Names of the blank token, which stands for no word. A model whose words are found frame by frame
needs one of them."""


@dataclass(frozen=True, slots=True)
class SherpaModel:
    """A model that the library will accept, as far as its files tell."""

    folder: Path
    family: ModelFamily
    files: Mapping[str, Path]
    "File of each part."
    tokens: Path
    bpe_vocabulary: Path | None
    "Pieces of words with their scores; None: the folder has none, so hot words do not work."
    notes: Mapping[str, str]
    "Notes of the first part."
    is_upper_case: bool
    "True: the model knows no small letters, so its text is written in small letters."

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def steps(self) -> DecodeSteps | None:
        """Positions in the audio at which a streaming model decodes; None for other models."""
        if self.family.window_keys is None:
            return None
        window, shift = (self._number(key) for key in self.family.window_keys)
        return DecodeSteps(window * FRAME_MS + WINDOW_EDGE_MS, shift * FRAME_MS)

    @property
    def look_ahead_ms(self) -> float:
        """Length of the audio at the end of each window whose words come with the next one; 0 for
        models that do not stream."""
        steps = self.steps
        return steps.first_ms - steps.every_ms if steps is not None else 0.0

    def _number(self, key: str) -> int:
        return int(self.notes[key])


def read_model(folder: Path, family: str = AUTO) -> SherpaModel:
    """Returns the model in a folder. `family`: name of a family, or AUTO.

    Raises EngineMissing if there is no model, ConfigError if the library would refuse it.
    """
    if not folder.is_dir():
        raise EngineMissing("asr", NAME, f"there is no folder {folder}")
    names = {path.name for path in folder.iterdir() if path.is_file()}
    if not any(name.endswith((".onnx", ".ort")) for name in names):
        raise EngineMissing("asr", NAME, f"{folder} holds no .onnx file")
    chosen = [candidate for candidate in FAMILIES if family in (AUTO, candidate.name)]
    if not chosen:
        allowed = ", ".join((AUTO, *(candidate.name for candidate in FAMILIES)))
        raise ConfigError(f"asr.options.family: no family {family!r}; there are: {allowed}")
    problems: dict[str, str] = {}
    for candidate in chosen:
        files = {part: _file_of(part, folder, names) for part in candidate.parts}
        found = {part: file for part, file in files.items() if file is not None}
        if len(found) < len(files):
            missing = ", ".join(part for part in files if part not in found)
            problems[candidate.name] = f"it has no file of the {missing}"
            continue
        notes = {part: _notes_of(file) for part, file in found.items() if file.suffix == ".onnx"}
        if problem := candidate.problem(notes) or _format_problem(candidate, found):
            problems[candidate.name] = problem
            continue
        return _checked(folder, candidate, found, notes, names)
    raise ConfigError(f"{folder}: {_summary(problems)}")


def _file_of(part: str, folder: Path, names: set[str]) -> Path | None:
    """Returns the file of a part, the one of 8 bits first; None if there is none."""
    pattern = re.compile(FILE_PATTERNS[part])
    fitting = [name for name in names if pattern.fullmatch(name)]
    if not fitting:
        return None
    return folder / min(fitting, key=lambda name: (INT8 not in name, name))


def _format_problem(family: ModelFamily, files: Mapping[str, Path]) -> str:
    """Returns why files without notes do not fit a family; empty if they do."""
    has_notes = all(file.suffix == ".onnx" for file in files.values())
    is_ort_family = family.name == "moonshine-v2"
    return "" if has_notes != is_ort_family else "its files have another format"


def _notes_of(file: Path) -> OnnxNotes:
    try:
        return read_notes(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is no ONNX file, or damaged: {error}") from error


def _checked(
    folder: Path,
    family: ModelFamily,
    files: Mapping[str, Path],
    notes: Mapping[str, OnnxNotes],
    names: set[str],
) -> SherpaModel:
    """Checks the tokens and the numbers among the notes. Raises ConfigError."""
    tokens = _tokens_file(folder, names)
    texts = read_tokens(tokens)
    first = notes.get(family.parts[0])
    metadata = first.metadata if first is not None else {}
    for key in (
        *(family.window_keys or ()),
        *(("vocab_size",) if "vocab_size" in metadata else ()),
    ):
        if not metadata[key].isdecimal() or int(metadata[key]) < 1:
            raise ConfigError(f"{folder}: the note {key} is {metadata[key]!r}, not a number from 1")
    needed = _token_count(family, notes)
    if needed is not None and len(texts) < needed:
        raise ConfigError(f"{tokens} has {len(texts)} tokens, and the model has {needed}")
    if MODEL in files and family.name.endswith("ctc") and not BLANKS & texts.keys():
        raise ConfigError(
            f"{tokens} has no blank token, which is one of {', '.join(sorted(BLANKS))}"
        )
    letters = "".join(texts)
    return SherpaModel(
        folder=folder,
        family=family,
        files=files,
        tokens=tokens,
        bpe_vocabulary=find_bpe_vocabulary(folder) if family.can_search else None,
        notes=metadata,
        is_upper_case=any(map(str.isupper, texts)) and not _has_small_letters(letters),
    )


def _has_small_letters(letters: str) -> bool:
    """Returns whether words may have small letters. Names of tokens like <blk> do not count."""
    return any(map(str.islower, re.sub(r"<[^<>]*>|#\d", "", letters)))


def _token_count(family: ModelFamily, notes: Mapping[str, OnnxNotes]) -> int | None:
    """Returns the number of tokens that the model can choose; None if its files do not say."""
    if family.is_recurrent:  # the note does not count the blank
        return int(notes[ENCODER].metadata["vocab_size"]) + 1
    if family.parts == (MODEL,):
        return notes[MODEL].last_size
    decoder = notes.get(DECODER)
    size = decoder.metadata.get("vocab_size", "") if decoder is not None else ""
    return int(size) if size.isdecimal() else None


def _tokens_file(folder: Path, names: set[str]) -> Path:
    candidates = sorted(name for name in names if re.fullmatch(r"(.*[-_.])?tokens\.txt", name))
    if not candidates:
        raise ConfigError(f"{folder} has no tokens.txt")
    return folder / min(candidates, key=len)


def read_tokens(file: Path) -> Mapping[str, int]:
    """Returns the ids of the tokens. Raises ConfigError for a file of another form."""
    ids: dict[str, int] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as text: {error}") from error
    for number, line in enumerate(lines, start=1):
        text, _, identifier = line.rstrip().rpartition(" ")
        if line.strip() and not identifier.isdecimal():
            raise ConfigError(f"{file}: line {number} does not have the form `token id`")
        if line.strip():
            ids[text] = int(identifier)
    if not ids:
        raise ConfigError(f"{file} has no tokens")
    return ids


def _summary(problems: Mapping[str, str]) -> str:
    """Returns why no family fits: the problems of each family whose files are all there, or that
    there is none."""
    if len(problems) == 1:
        ((name, why),) = problems.items()
        return f"this is no {name}: {why}"
    named = [f"no {name}, as {why}" for name, why in problems.items() if "no file of" not in why]
    if not named:
        return f"the files fit no family; there are: {', '.join(problems)}"
    return f"the files fit no family: {'; '.join(named)}"
