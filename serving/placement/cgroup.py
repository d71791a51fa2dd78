"""What a container may use: the CPU quota and memory limit of its control group.

`os.cpu_count` and psutil tell the host's. Both versions of Linux's hierarchy are read; a limit of
any group above ours counts, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")

UNLIMITED_BYTES = 2**60
"Version 1 writes a number near 2**63 where there is no limit."


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """None: no limit."""

    cpus: float | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None
    "What the group may still take; the page cache that it can drop counts as free."


def read_cgroup_limits(root: Path = ROOT, own: Path = OWN) -> CgroupLimits:
    """Of this process. Where there are no control groups (macOS), nothing is limited."""
    groups = _groups(own)
    cpus = [*_quotas_v1(root / "cpu", groups.get("cpu", "/"))]
    memory = [*_memory_v1(root / "memory", groups.get("memory", "/"))]
    if (unified := groups.get("")) is not None:
        cpus += _quotas_v2(root, unified)
        memory += _memory_v2(root, unified)
    limit = min((limit for limit, _ in memory), default=None)
    free = min((max(0, limit - used) for limit, used in memory), default=None)
    return CgroupLimits(min(cpus, default=None), limit, free)


def _groups(own: Path) -> dict[str, str]:
    """Controller -> our group's path; "" is the unified hierarchy."""
    found: dict[str, str] = {}
    for line in _text(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _folders(root: Path, path: str) -> Iterator[Path]:
    """Our group's folder and those above it. In a container only the mounted root may exist."""
    folder = root / path.strip("/")
    while folder.is_relative_to(root):
        yield folder
        folder = folder.parent


def _quotas_v2(root: Path, path: str) -> Iterator[float]:
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
    """(limit, in use) of every group that has a limit."""
    for folder in _folders(root, path):
        if limit := _number(folder / "memory.max"):
            yield limit, _in_use(folder, "memory.current", "inactive_file")


def _memory_v1(root: Path, path: str) -> Iterator[tuple[int, int]]:
    for folder in _folders(root, path):
        limit = _number(folder / "memory.limit_in_bytes")
        if limit and limit < UNLIMITED_BYTES:
            yield limit, _in_use(folder, "memory.usage_in_bytes", "total_inactive_file")


def _in_use(folder: Path, usage: str, cache: str) -> int:
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
