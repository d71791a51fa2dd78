"""Builds llama.cpp's server from the source release of llama-cpp-python, which carries llama.cpp's
whole tree. An interrupted build is continued."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil

from engines.llm.llama_cpp.files import PROGRAM, PROGRAM_PATH
from engines.runtime.external_server.installation import (
    ServerDevice,
    ServerInstallation,
    read_marker,
    write_marker,
)
from server.commands.engines.folder import (
    check_space,
    installation_lock,
    log_file_of,
    remove,
    size_bytes,
)
from server.commands.engines.pip import KEPT_LINES, InstallError, pip, progress_options
from server.models.progress import DownloadProgress

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
"Source release on the package index. A newer one may change options and answers."

SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
"Checksum of the release."

SOURCE, BUILD = "source", "build"
"Folders of an installation that is under way."

TREE = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/"
"Folder of llama.cpp within the release."

UNUSED = ("docs/", "media/", "models/")
"Folders of llama.cpp that the server is not built from; they are more than half of it."

NEEDED_GB: dict[ServerDevice, float] = {"cpu": 1.0, "cuda": 4.0}
"Free space needed, in GB. What stays is the program: 20 MB for processors."

JOB_BYTES = 1_500_000_000
"Memory of one compiler at most. It decides how many run at once."

TOOLS: dict[ServerDevice, Sequence[str]] = {
    "cpu": ("cmake", "make", "cc", "c++"),
    "cuda": ("cmake", "make", "cc", "c++", "nvcc"),
}
"Programs that the build needs, by device."

CHECK_TIMEOUT_S = 60.0
"Time limit of the first run of the program."

OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    # One file, which can be moved.
    "-DBUILD_SHARED_LIBS=OFF",
    *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "APP", "UI")),
    # Nothing is fetched: no page, and no library for downloads.
    *("-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF"),
    "-DLLAMA_TOOLS_INSTALL=OFF",
)

_PERCENT = re.compile(r"^\[ *(\d+)%\]")
_REPORTED_PERCENT = 10


@dataclass(frozen=True, slots=True)
class LlamaCppInstaller:
    """Builds one installation. `progress` shows messages and downloads."""

    folder: Path
    device: ServerDevice
    progress: DownloadProgress

    def install(self, *, from_scratch: bool = False) -> ServerInstallation:
        """Builds what is missing, or everything if `from_scratch`. A complete installation stays as
        it is. Raises InstallError, IndexUnreachable or OSError."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with installation_lock(self.folder):
            existing = read_installation(self.folder)
            if existing and existing.device == self.device and not from_scratch:
                return existing
            if from_scratch or existing:
                remove(self.folder)
            check_tools(self.device)
            existing_gb = size_bytes(self.folder) / 1e9
            check_space(self.folder.parent, NEEDED_GB[self.device] - existing_gb)
            self.folder.mkdir(exist_ok=True)
            # Line by line: a long installation can be followed in the file.
            with log_file_of(self.folder).open("w", encoding="utf-8", buffering=1) as log:
                self._fetch_source(log)
                self._build(log)
            self._check_program()
            for name in (SOURCE, BUILD):
                shutil.rmtree(self.folder / name)
            installation = ServerInstallation(
                self.device, {PACKAGE: VERSION}, platform.python_version()
            )
            write_marker(self.folder, installation)
            return installation

    def _fetch_source(self, log: TextIO) -> None:
        """Downloads the release and unpacks llama.cpp, unless an earlier try did so."""
        source = self.folder / SOURCE
        if source.is_dir():
            self.progress.note(f"continuing with {self.folder}")
            return
        self.progress.note(f"downloading {PACKAGE} {VERSION} (77 MB)")
        partial = self.folder / f".{SOURCE}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        requirements_file = partial / "requirements.txt"
        requirements_file.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n")
        options = ("--no-deps", "--no-binary", PACKAGE, *progress_options(), "--require-hashes")
        files = ("--dest", str(partial), "--requirement", str(requirements_file))
        python = Path(sys.executable)
        pip(
            python,
            *("download", *options, *files),
            report_progress=self.progress.note,
            report_bytes=self.progress.file_bytes,
            log=log,
        )
        (archive,) = partial.glob("*.tar.gz")
        unpack(archive, partial / SOURCE)
        (partial / SOURCE).rename(source)
        shutil.rmtree(partial)

    def _build(self, log: TextIO) -> None:
        source, build = self.folder / SOURCE, self.folder / BUILD
        cuda = ("-DGGML_CUDA=ON",) if self.device == "cuda" else ()
        self.progress.note("compiling; this takes minutes, and longer on a small machine")
        configure = ("cmake", "-S", str(source), "-B", str(build), *OPTIONS, *cuda)
        _run(configure, log, self.progress.note)
        job_count = max(1, min(len(os.sched_getaffinity(0)), _memory_bytes() // JOB_BYTES))
        compile_ = ("cmake", "--build", str(build), "--target", PROGRAM)
        _run((*compile_, "--parallel", str(job_count)), log, self.progress.note)
        (self.folder / PROGRAM_PATH).parent.mkdir(exist_ok=True)
        shutil.copy2(build / PROGRAM_PATH, self.folder / PROGRAM_PATH)

    def _check_program(self) -> None:
        """Runs the program once: what does not start counts as not installed."""
        self.progress.note("checking that it starts")
        command = [str(self.folder / PROGRAM_PATH), "--version"]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InstallError(f"{PROGRAM} did not start in {CHECK_TIMEOUT_S:g} s") from None
        if result.returncode:
            last_line = (result.stderr.strip() or "no reason given").splitlines()[-1]
            raise InstallError(f"{PROGRAM} does not start: {last_line}")


def read_installation(folder: Path) -> ServerInstallation | None:
    """Returns what is installed in a folder; None if nothing is, or the build broke off."""
    return read_marker(folder, PROGRAM_PATH)


def check_tools(device: ServerDevice) -> None:
    """Raises InstallError if a program that the build needs is missing."""
    missing = [tool for tool in TOOLS[device] if shutil.which(tool) is None]
    if "nvcc" in missing:
        raise InstallError("nvcc is missing, which is part of NVIDIA's CUDA toolkit; or use --cpu")
    if missing:
        raise InstallError(
            f"{', '.join(missing)} missing; on Debian and Ubuntu: apt install cmake build-essential"
        )


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks llama.cpp out of a release into `folder`. Raises InstallError for another archive."""
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                name = member.name.removeprefix(TREE)
                if name != member.name and not name.startswith(UNUSED):
                    member.name = name
                    opened.extract(member, folder, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise InstallError(f"{archive.name} is no readable archive: {error}") from error
    if not (folder / "CMakeLists.txt").is_file():
        raise InstallError(f"{archive.name} does not hold llama.cpp")


def _run(command: Sequence[str], log: TextIO, report_progress: Callable[[str], None]) -> None:
    """Runs one step of the build. Raises InstallError with the compiler's message."""
    last_lines: deque[str] = deque(maxlen=KEPT_LINES)
    reported_percent = 0
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                last_lines.append(line.rstrip())
                match = _PERCENT.match(line)
                if match and int(match[1]) >= reported_percent + _REPORTED_PERCENT:
                    reported_percent = int(match[1]) // _REPORTED_PERCENT * _REPORTED_PERCENT
                    report_progress(f"{reported_percent} %")
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise InstallError(f"the build failed: {_reason(last_lines)}")


def _reason(lines: Sequence[str]) -> str:
    """Returns the first line that names an error, or the last line."""
    text = [line for line in lines if line]
    errors = (line for line in text if "error" in line.lower() or "No space left" in line)
    return next(errors, text[-1] if text else "no reason given")


def _memory_bytes() -> int:
    available: int = psutil.virtual_memory().available
    return available
