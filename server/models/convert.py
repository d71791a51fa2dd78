"""Converts a checkpoint to CTranslate2's format, with its own converter in a separate process."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from engines.asr.whisper.model_info import NOTES_FILE
from engines.base import AsrPadding
from engines.runtime.model_files import convert_whisper
from server.models.errors import MissingConversionTools, ModelsError
from server.models.inventory import (
    CHECKPOINT_PATTERNS,
    SourceRecord,
    holds_checkpoint,
    partial_folder,
    read_record,
    write_record,
)
from server.models.progress import DownloadProgress
from serving.models.catalogue import find_entry, short_name
from serving.placement.ct2_header import read_weights_file

SCRIPT = Path(convert_whisper.__file__)
"Converter, run as a script in another interpreter."

LIBRARIES = ("ctranslate2", "torch", "transformers")
"Libraries that the converter imports."

INSTALL_ADVICE = (
    "install them with `earshot extras add torch`, or give --python with the interpreter of an"
    f" environment that has {', '.join(LIBRARIES)}"
)

STAGES: Mapping[str, str] = {
    "read": "reading the checkpoint",
    "prepare": "starting transformers",
    "load": "loading the weights",
    "compare": "looking for equal weights",
    "quantize": "changing the number format",
    "write": "writing the model",
}
"Stage that the converter reports -> what is shown."

PROGRESS_LINE = re.compile(r"progress (\w+) (\d+) (\d+)")
"Stage, finished bytes and all bytes, as `convert_whisper.py` reports them."

FAILED_LINES = 3
"Number of the converter's last lines in the error message: the error, and a bit of its location."


@dataclass(frozen=True, slots=True)
class Conversion:
    """Parameters of one conversion."""

    checkpoint: Path
    "Folder of the checkpoint."
    name: str
    "Name of the new model, and of its folder."
    quantization: str
    "Number format of the weights in the file, such as `int8`."
    python: str = ""
    "Interpreter that has the libraries; empty: the one that runs Earshot."
    source: str = ""
    "Origin of the checkpoint, for the model's record."
    padding: AsrPadding | None = None
    """Padding that the weights were trained with. None: the model gets no note about it, unless one
    came with the checkpoint."""


def check_name(name: str, models_dir: Path) -> None:
    """Raises ModelsError if a new model cannot have that name."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ModelsError(
            f"{name!r} is not a valid name of a model: use letters and digits, and . _ - between"
            " them"
        )
    if (models_dir / name).exists():
        raise ModelsError(
            f"{models_dir / name} already exists; `earshot models rm {name}` removes it"
        )


def check_checkpoint(folder: Path) -> None:
    """Raises ModelsError if the folder holds no checkpoint that can be converted."""
    if (folder / "model.bin").is_file():
        entry = find_entry(short_name(folder.name))
        origin = entry.origin if entry and entry.origin else "its checkpoint"
        raise ModelsError(
            f"{folder} is already in CTranslate2's format and cannot be converted again. Its"
            " compute type is chosen when it is loaded (asr.options.compute_type); for a smaller"
            " file"
            f" convert {origin}"
        )
    if not holds_checkpoint(folder):
        raise ModelsError(f"{folder} holds no checkpoint: none of {', '.join(CHECKPOINT_PATTERNS)}")
    if not (folder / "config.json").is_file() and not convert_whisper.openai_file(folder):
        raise ModelsError(f"{folder} has no config.json")


def check_tools(python: str) -> None:
    """Raises MissingConversionTools if the libraries are not installed."""
    if python:
        return  # another interpreter reports missing libraries when it runs
    missing = [library for library in LIBRARIES if find_spec(library) is None]
    if missing:
        raise MissingConversionTools(f"converting needs {' and '.join(missing)}: {INSTALL_ADVICE}")


def convert(conversion: Conversion, models_dir: Path, progress: DownloadProgress) -> Path:
    """Converts a checkpoint and returns the folder of the new model. Blocking; takes minutes for a
    large model. `progress`: shows the bytes of each stage. Raises ModelsError."""
    partial = partial_folder(models_dir, conversion.name)
    shutil.rmtree(partial, ignore_errors=True)
    models_dir.mkdir(parents=True, exist_ok=True)
    try:
        _run_converter(conversion, partial, progress)
        weights = read_weights_file(partial / "model.bin")
        if weights.spec != "WhisperSpec":
            raise ModelsError(f"{conversion.checkpoint} is a {weights.spec}, not a Whisper model")
        write_notes(partial, conversion.padding)
        origin = read_record(conversion.checkpoint)
        write_record(
            partial,
            SourceRecord(
                source=origin.source if origin else conversion.source or str(conversion.checkpoint),
                revision=origin.revision if origin else "",
                quantization=conversion.quantization,
            ),
        )
        return partial.rename(models_dir / conversion.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def padding_of(checkpoint: Path) -> AsrPadding | None:
    """Returns the padding that the catalogue knows for a pulled checkpoint, or None."""
    entry = find_entry(checkpoint.name.removesuffix(".checkpoint"))
    return entry.padding if entry else None


def write_notes(folder: Path, padding: AsrPadding | None) -> None:
    """Writes the note about the padding into a model's folder, unless notes came with the
    checkpoint."""
    file = folder / NOTES_FILE
    if padding is not None and not file.exists():
        file.write_bytes(msgspec.json.encode({"padding": padding}) + b"\n")


def show_progress(lines: Iterable[str], progress: DownloadProgress) -> None:
    """Shows what the converter reports, until it ends. Other lines are left out: they come from its
    libraries."""
    shown_stage, shown_bytes, is_running = "", 0, False
    try:
        for line in lines:
            report = PROGRESS_LINE.fullmatch(line.strip())
            if report is None:
                continue
            stage, done_bytes, total_bytes = report[1], int(report[2]), int(report[3])
            if stage != shown_stage:
                progress.note(STAGES.get(stage, stage))
                shown_stage, shown_bytes, is_running = stage, 0, total_bytes > 0
                if is_running:
                    progress.start(total_bytes)
            if is_running:
                progress.add(done_bytes - shown_bytes)
                shown_bytes, is_running = done_bytes, done_bytes < total_bytes
                if not is_running:
                    progress.finish()
    finally:
        if is_running:  # an error message begins on a line of its own
            progress.finish()


def _run_converter(conversion: Conversion, output: Path, progress: DownloadProgress) -> None:
    """Runs the converter, which writes the model into `output`. Raises ModelsError with its last
    lines if it fails."""
    python = conversion.python or sys.executable
    # -P keeps the script's folder off the import path: module names there would hide the
    # libraries'.
    command = [
        python,
        "-P",
        str(SCRIPT),
        str(conversion.checkpoint),
        str(output),
        conversion.quantization,
    ]
    quiet_settings = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
    environment = {**os.environ, **quiet_settings}
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        try:
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        except OSError as error:
            raise MissingConversionTools(f"cannot start {python}: {error.strerror}") from error
        with process:
            try:
                assert process.stdout is not None
                show_progress(process.stdout, progress)
            except BaseException:  # Ctrl-C, too, ends the converter
                process.kill()
                raise
        if process.returncode == 0:
            return
        errors.seek(0)
        error_text = errors.read()
    error_lines = [line for line in error_text.splitlines() if line.strip()][-FAILED_LINES:]
    if error_lines and "ModuleNotFoundError" in error_lines[-1]:
        raise MissingConversionTools(
            f"{python}: {error_lines[-1].partition(': ')[2]}; {INSTALL_ADVICE}"
        )
    raise ModelsError(f"converting {conversion.checkpoint} failed:\n" + "\n".join(error_lines))
