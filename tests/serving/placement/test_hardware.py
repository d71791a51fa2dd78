"""The GPUs that the driver lists and CUDA shows, and the limits of a container."""

import stat
from pathlib import Path

import pytest

from serving.placement import hardware
from serving.placement.cgroup import CgroupLimits, read_cgroup_limits
from serving.placement.hardware import (
    Gpu,
    Hardware,
    detect_hardware,
    parse_gpus,
    select_visible_gpus,
    with_limits,
)

pytestmark = pytest.mark.live

H200 = Gpu("NVIDIA H200", 140.0, 139.0, "9.0", "575.57.08")
TWO = (H200, Gpu("NVIDIA L4", 22.0, 21.0, "8.9", "575.57.08", 1))


def test_gpus_are_parsed_from_the_drivers_lines() -> None:
    listed = "NVIDIA H200, 143360, 142336, 9.0, 575.57.08\nbroken line\nX, [N/A], [N/A], 7.5, 1\n"
    assert parse_gpus(listed) == (H200, Gpu("X", 0.0, 0.0, "7.5", "1", 1))
    assert parse_gpus("GeForce GTX 1080, 8192, 8000, 470.82.01") == (
        Gpu("GeForce GTX 1080", 8.0, 8000 / 1024, "", "470.82.01"),
    )


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        (None, ["NVIDIA H200", "NVIDIA L4"]),
        ("", []),
        ("-1", []),
        ("1", ["NVIDIA L4"]),
        ("1,0", ["NVIDIA L4", "NVIDIA H200"]),
        ("0,7,1", ["NVIDIA H200"]),
        ("GPU-8f3c", ["NVIDIA H200"]),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_selects_gpus(wish: str | None, names: list[str]) -> None:
    seen = select_visible_gpus(TWO, wish)
    assert [gpu.name for gpu in seen] == names
    assert [gpu.index for gpu in seen] == list(range(len(names)))


def test_the_limits_of_a_container_apply() -> None:
    host = Hardware(64, 256.0, free_gb=200.0)
    assert with_limits(host, CgroupLimits()) == host
    small = with_limits(host, CgroupLimits(2.5, 4 * 2**30, 3 * 2**30))
    assert (small.cores, small.memory_gb, small.free_gb) == (2, 4.0, 3.0)
    assert small.notes == (
        "its container has 2.5 of 64 cores",
        "its container has 4.0 of 256.0 GB of memory",
    )
    assert with_limits(host, CgroupLimits(0.5)).cores == 1


def _write(root: Path, **files: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text)


def test_limits_of_unified_cgroups_and_their_parents_apply(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/pod/server\n")
    root = tmp_path / "cgroup"
    _write(root, cpu__max="max 100000", memory__max="max")
    _write(root / "pod", cpu__max="150000 100000", memory__max=str(8 * 2**30))
    (root / "pod" / "memory.current").write_text(str(6 * 2**30))
    (root / "pod" / "memory.stat").write_text(f"anon 1\ninactive_file {2**30}\n")
    _write(root / "pod" / "server", cpu__max="400000 100000", memory__max="max")
    assert read_cgroup_limits(root, own) == CgroupLimits(1.5, 8 * 2**30, 3 * 2**30)
    own.write_text("0::/../outside\n")
    assert read_cgroup_limits(root, own) == CgroupLimits()


def test_limits_of_version_1_cgroups_are_read(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/docker/1\n1:cpu,cpuacct:/docker/1\n0::/\n")
    root = tmp_path / "cgroup"
    # Inside a container only the mounted root has our files.
    _write(root / "cpu", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    _write(root / "memory", memory__limit_in_bytes=str(2**31), memory__usage_in_bytes=str(2**30))
    assert read_cgroup_limits(root, own) == CgroupLimits(2.0, 2**31, 2**30)
    _write(root / "cpu", cpu__cfs_quota_us="-1")
    _write(root / "memory", memory__limit_in_bytes="9223372036854771712")
    assert read_cgroup_limits(root, own) == CgroupLimits()


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert read_cgroup_limits(tmp_path, tmp_path / "none") == CgroupLimits()


def _driver(folder: Path, script: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("script", "gpus", "note"),
    [
        ("echo 'NVIDIA L4, 23034, 22000, 8.9, 575.1'", ("8.9",), ""),
        (
            """case "$*" in *compute_cap*) echo 'Field is not valid'; exit 2;; esac
            echo 'GTX 1080, 8192, 8000, 470.82'""",
            ("",),
            "",
        ),
        ("echo 'NVIDIA-SMI has failed'; exit 9", (), "nvidia-smi fails: NVIDIA-SMI has failed"),
        ("exec sleep 60", (), "nvidia-smi does not answer"),
    ],
)
def test_the_driver_is_queried_and_its_failures_noted(
    script: str, gpus: tuple[str, ...], note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _driver(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if "sleep" in script:
        monkeypatch.setattr(hardware, "QUERY_TIMEOUT_S", 0.2)
    found = detect_hardware()
    assert tuple(gpu.capability for gpu in found.gpus) == gpus
    assert any(said.startswith(note) for said in (*found.notes, ""))
    assert detect_hardware("").gpus == ()
