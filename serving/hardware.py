"""What this machine has: cores, memory, GPUs."""

import os
import shutil
import subprocess
from dataclasses import dataclass

import psutil

QUERY_TIMEOUT_S = 5.0
"A healthy driver answers within one second; a hanging one must not keep the server from starting."


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory_gb: float
    free_gb: float
    capability: str
    "CUDA compute capability, e.g. 8.9."


@dataclass(frozen=True, slots=True)
class Hardware:
    cores: int
    memory_gb: float
    gpus: tuple[Gpu, ...] = ()


def look() -> Hardware:
    """Ask the system. Blocking: a driver may take a second."""
    return Hardware(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
        memory_gb=psutil.virtual_memory().total / 2**30,
        gpus=_gpus(),
    )


def _gpus() -> tuple[Gpu, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    fields = "name,memory.total,memory.free,compute_cap"
    command = [tool, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(
            command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse_gpus(listed.stdout)


def parse_gpus(listed: str) -> tuple[Gpu, ...]:
    """`nvidia-smi`'s lines `name, total MiB, free MiB, capability`; others are skipped."""
    gpus = []
    for line in listed.splitlines():
        name, *numbers = (part.strip() for part in line.rsplit(",", 3))
        try:
            total, free, capability = numbers
            gpus.append(Gpu(name, float(total) / 1024, float(free) / 1024, capability))
        except ValueError:
            continue
    return tuple(gpus)
