"""Detects the machine's cores, memory and GPUs; in a container, the part that it may use."""

import os
import shutil
import subprocess
from dataclasses import dataclass, replace

import psutil

from engines.runtime import cuda
from serving.placement.cgroup import CgroupLimits, read_cgroup_limits

QUERY_TIMEOUT_S = 5.0
"""Longest wait for nvidia-smi. A healthy driver answers within one second, and one that hangs must
not keep the server from starting."""

FIELDS = "name,memory.total,memory.free,compute_cap,driver_version"
"Fields that nvidia-smi is asked for."
OLD_FIELDS = "name,memory.total,memory.free,driver_version"
"Fields for drivers before 510, which do not know the capability and refuse the whole query."


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU."""

    name: str
    memory_gb: float
    "Memory in GiB; 0 if it is not known."
    free_gb: float
    "Free memory in GiB."
    capability: str
    "CUDA compute capability, such as 8.9; empty when the driver is too old to report it."
    driver: str = ""
    "Version of the driver, such as 550.90.07."
    index: int = 0
    "Number of the GPU as this process's CUDA counts."


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware that this process may use."""

    cores: int
    "Number of logical cores that this process may use."
    memory_gb: float
    "Memory in GiB."
    gpus: tuple[Gpu, ...] = ()
    free_gb: float | None = None
    "Free memory in GiB; None: all of it."
    physical_cores: int | None = None
    """Number of physical cores; None if it is not known. It matters because two threads of one core
    share its multipliers."""
    notes: tuple[str, ...] = ()
    "Sentences about limits, and about tools that did not answer."
    gpu_problem: str = ""
    "Reason why none of the GPUs can be used; empty if they can."


def detect_hardware(visible_gpus: str | None = None) -> Hardware:
    """Detects the hardware. It blocks the thread: a driver may take a second.

    `visible_gpus`: the value of CUDA_VISIBLE_DEVICES, needed because nvidia-smi lists all GPUs.
    """
    group = read_cgroup_limits()
    memory = psutil.virtual_memory()
    listed, note = _query_nvidia_smi()
    gpus = select_visible_gpus(parse_gpus(listed), visible_gpus)
    lacking = cuda.missing_libraries() if gpus else ()
    return with_limits(
        Hardware(
            cores=len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1,
            memory_gb=memory.total / 2**30,
            gpus=gpus,
            free_gb=memory.available / 2**30,
            physical_cores=psutil.cpu_count(logical=False),
            notes=(note,) if note else (),
            gpu_problem=cuda.install_hint(lacking) if lacking else "",
        ),
        group,
    )


def with_limits(hardware: Hardware, group: CgroupLimits) -> Hardware:
    """Returns the hardware reduced to the limits of a container."""
    cores, memory_gb = hardware.cores, hardware.memory_gb
    free_gb = memory_gb if hardware.free_gb is None else hardware.free_gb
    notes = list(hardware.notes)
    if group.cpus is not None and group.cpus < cores:
        cores = max(1, int(group.cpus))
        notes.append(f"its container has {group.cpus:g} of {hardware.cores} cores")
    if group.memory_bytes is not None and group.memory_bytes / 2**30 < memory_gb:
        memory_gb = group.memory_bytes / 2**30
        notes.append(f"its container has {memory_gb:.1f} of {hardware.memory_gb:.1f} GB of memory")
    if group.free_bytes is not None:
        free_gb = min(free_gb, group.free_bytes / 2**30)
    return replace(hardware, cores=cores, memory_gb=memory_gb, free_gb=free_gb, notes=tuple(notes))


def select_visible_gpus(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """Returns the GPUs that CUDA shows to us, numbered again from 0.

    `visible`: the value of CUDA_VISIBLE_DEVICES. A name like GPU-8f3... cannot be matched here:
    each one takes the GPU at its own position in the list.
    """
    if visible is None:
        return gpus
    named = [part.strip() for part in visible.split(",") if part.strip()]
    chosen: list[Gpu] = []
    for position, part in enumerate(named):
        index = (
            position if part.startswith(("GPU-", "MIG-")) else int(part) if part.isdigit() else -1
        )
        if not 0 <= index < len(gpus):
            break  # CUDA, too, ignores what follows an unknown name, such as NoDevFiles of Slurm
        chosen.append(gpus[index])
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(chosen))


def _query_nvidia_smi() -> tuple[str, str]:
    """Returns the output of `nvidia-smi`, and a message if it failed."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "", ""
    message = ""
    for fields in (FIELDS, OLD_FIELDS):
        command = [tool, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            return "", f"nvidia-smi does not answer: {error}"
        if result.returncode == 0:
            return result.stdout, ""
        message = (result.stdout + result.stderr).strip().partition("\n")[0]
    return "", f"nvidia-smi fails: {message}"


def parse_gpus(listed: str) -> tuple[Gpu, ...]:
    """Parses lines of FIELDS or OLD_FIELDS, and skips others. A chip that shares the machine's
    memory has [N/A] there: it counts as a GPU with a memory of 0."""
    gpus: list[Gpu] = []
    for line in listed.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == len(OLD_FIELDS.split(",")):
            parts.insert(3, "")
        try:
            name, total, free, capability, driver = parts
            memory = _gb(total), _gb(free)
        except ValueError:
            continue
        gpus.append(Gpu(name, *memory, capability, driver, len(gpus)))
    return tuple(gpus)


def _gb(mib: str) -> float:
    """Converts a field in MiB to GiB; 0 for [N/A]. Raises ValueError if it is no number."""
    return 0.0 if mib.startswith("[") else float(mib) / 1024
