"""Reads the CPU quota and memory limit of this process's control group, which containers set.

`os.cpu_count` and psutil report the host's values. Both versions of Linux's hierarchy are read. The
limits of all groups above our own count, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
"Folder of the control groups."
PROCESS_GROUPS = Path("/proc/self/cgroup")
"File that names this process's groups."

UNLIMITED_BYTES = 2**60
"Values from here on mean no limit: version 1 writes a number near 2**63 where there is none."


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """Limits of a control group. None: no limit."""

    cpus: float | None = None
    "Number of processors, possibly a fraction."
    memory_bytes: int | None = None
    "Most memory that the group may use."
    free_bytes: int | None = None
    "Memory that the group may still take. The page cache that it can drop counts as free."


def read_cgroup_limits(
    root: Path = CGROUP_ROOT, process_groups: Path = PROCESS_GROUPS
) -> CgroupLimits:
    """Returns the limits of this process: none where there are no control groups (macOS)."""
    groups = _groups(process_groups)
    cpus = [*_quotas_v1(root / "cpu", groups.get("cpu", "/"))]
    memory = [*_memory_v1(root / "memory", groups.get("memory", "/"))]
    if (unified := groups.get("")) is not None:
        cpus += _quotas_v2(root, unified)
        memory += _memory_v2(root, unified)
    limit = min((limit for limit, _ in memory), default=None)
    free = min((max(0, limit - used) for limit, used in memory), default=None)
    return CgroupLimits(min(cpus, default=None), limit, free)


def _groups(process_groups: Path) -> dict[str, str]:
    """Returns our group's path by controller; "" is the unified hierarchy (version 2)."""
    path_by_controller: dict[str, str] = {}
    for line in _text(process_groups).splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        for controller in controllers.split(","):
            path_by_controller[controller] = path
    return path_by_controller


def _folders(root: Path, path: str) -> Iterator[Path]:
    """Yields our group's folder and those above it. In a container only the mounted root may
    exist."""
    folder = root / path.strip("/")
    while folder.is_relative_to(root):
        yield folder
        folder = folder.parent


def _quotas_v2(root: Path, path: str) -> Iterator[float]:
    """Yields the CPU quota of each group that has one, in processors."""
    for folder in _folders(root, path):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period)


def _quotas_v1(root: Path, path: str) -> Iterator[float]:
    for folder in _folders(root, path):
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota and period:  # the quota is -1 where there is none
            yield quota / period


def _memory_v2(root: Path, path: str) -> Iterator[tuple[int, int]]:
    """Yields (limit, bytes in use) of each group that has a limit."""
    for folder in _folders(root, path):
        if limit := _number(folder / "memory.max"):
            yield limit, _in_use(folder, "memory.current", "inactive_file")


def _memory_v1(root: Path, path: str) -> Iterator[tuple[int, int]]:
    for folder in _folders(root, path):
        limit = _number(folder / "memory.limit_in_bytes")
        if limit and limit < UNLIMITED_BYTES:
            yield limit, _in_use(folder, "memory.usage_in_bytes", "total_inactive_file")


def _in_use(folder: Path, usage: str, cache: str) -> int:
    """Returns the bytes in use, without the page cache that can be dropped."""
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == cache and value.isdigit():
            return max(0, (_number(folder / usage) or 0) - int(value))
    return _number(folder / usage) or 0


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
