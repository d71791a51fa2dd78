"""The placement of models of a given size on many machines, with its warnings."""

from re import search
from typing import Any

import pytest

from core.errors import EngineMissing
from serving.placement.hardware import Gpu, Hardware
from serving.placement.whisper import asr_memory, compute_types, place_model, usable_gpus

NANO, TINY, BASE, SMALL, TURBO, LARGE = 8, 75, 145, 484, 1620, 3090


def gpu(name: str, total: float, free: float, capability: str, **more: Any) -> Gpu:
    return Gpu(name, total, free, capability, **{"driver": "550.90", **more})


PI = Hardware(4, 4.0, free_gb=3.0)
VPS = Hardware(2, 2.0, free_gb=1.5)
ONE_CORE = Hardware(1, 2.0, free_gb=1.5)
LITTLE_MEMORY = Hardware(2, 1.0, free_gb=0.5)
DESKTOP = Hardware(16, 32.0, free_gb=28.0, physical_cores=8)
SERVER = Hardware(64, 256.0, free_gb=250.0, physical_cores=32)
OLD_DRIVER = Hardware(8, 16.0, (gpu("GTX 1080", 8, 7.5, "6.1", driver="470.82.01"),))
KEPLER = Hardware(8, 16.0, (gpu("Tesla K80", 12, 11.5, "3.7"),))
MAXWELL = Hardware(8, 16.0, (gpu("GTX 970", 4, 3.6, "5.2"),))
P100 = Hardware(8, 16.0, (gpu("Tesla P100", 16, 15.5, "6.0"),))
PASCAL = Hardware(8, 16.0, (gpu("GTX 1070", 8, 7.5, "6.1"),))
TURING_4 = Hardware(8, 16.0, (gpu("GTX 1650", 4, 3.3, "7.5"),))
L4 = Hardware(16, 64.0, (gpu("L4", 22.5, 22.0, "8.9"),))
H200 = Hardware(16, 128.0, (gpu("H200", 140, 139, "9.0"),))
FULL = Hardware(8, 16.0, (gpu("RTX 3060", 12, 0.4, "8.6"),))
TWINS = Hardware(32, 128.0, (gpu("A10", 24, 23, "8.6"), gpu("A10", 24, 23, "8.6", index=1)))
MIXED = Hardware(
    16, 64.0, (gpu("RTX 4090", 24, 23, "8.9"), gpu("GTX 1060", 6, 5.5, "6.1", index=1))
)
NO_LIBRARIES = Hardware(8, 16.0, L4.gpus, gpu_problem="a GPU needs libcublas.so.12")
UNKNOWN = Hardware(8, 16.0, (gpu("GPU of tomorrow", 48, 47, ""),))

CPU = ("cpu", "int8")


@pytest.mark.parametrize(
    ("machine", "size_mb", "seats", "batch", "threads"),
    [
        (VPS, TINY, [CPU] * 2, 4, 1),
        (VPS, NANO, [CPU], 4, 2),
        (VPS, BASE, [CPU], 4, 2),
        (ONE_CORE, TINY, [CPU], 4, 1),
        (LITTLE_MEMORY, TINY, [CPU], 4, 2),
        (PI, TINY, [CPU] * 2, 4, 2),
        (PI, SMALL, [CPU], 4, 4),
        (DESKTOP, SMALL, [CPU], 8, 8),
        (SERVER, SMALL, [CPU] * 4, 8, 8),
        (OLD_DRIVER, SMALL, [CPU], 8, 8),
        (KEPLER, SMALL, [CPU], 8, 8),
        (NO_LIBRARIES, SMALL, [CPU], 8, 8),
        (FULL, SMALL, [CPU], 8, 8),
        (MAXWELL, SMALL, [("cuda:0", "float32")], 8, 4),
        (MAXWELL, TURBO, [CPU], 8, 8),
        (P100, LARGE, [("cuda:0", "float32")], 4, 4),
        (PASCAL, LARGE, [("cuda:0", "int8")], 4, 4),
        (TURING_4, TINY, [("cuda:0", "float16")], 16, 4),
        (TURING_4, TURBO, [("cuda:0", "float16")], 4, 4),
        (TURING_4, LARGE, [("cuda:0", "int8_float16")], 2, 4),
        (L4, LARGE, [("cuda:0", "float16")], 8, 4),
        (H200, LARGE, [("cuda:0", "float16")], 16, 4),
        (UNKNOWN, TURBO, [("cuda:0", "float16")], 16, 4),
        (TWINS, LARGE, [("cuda:0", "float16"), ("cuda:1", "float16")], 8, 4),
        (MIXED, TURBO, [("cuda:0", "float16"), ("cuda:1", "int8")], 16, 4),
    ],
)
def test_models_are_placed_on_many_machines(
    machine: Hardware, size_mb: float, seats: list[tuple[str, str]], batch: int, threads: int
) -> None:
    placed = place_model(size_mb, machine, asr_memory(machine), {})
    assert [(seat.device, seat.compute_type) for seat in placed.workers] == seats
    first = placed.workers[0]
    assert (first.max_batch, first.cpu_threads) == (batch, threads)
    room = asr_memory(machine)
    assert all(mb <= room[device] for device, mb in placed.memory_mb().items())


@pytest.mark.parametrize(
    ("machine", "size_mb", "warning"),
    [
        (OLD_DRIVER, TINY, "driver 470.82.01 is older than 525: the processor"),
        (KEPLER, TINY, "compute capability 3.7 is below 5.0: the processor"),
        (NO_LIBRARIES, TINY, "needs libcublas.so.12: the processor"),
        (FULL, TINY, "RTX 3060 has room for 369 MB, a model of 75 MB needs 645: the processor"),
        (VPS, LARGE, "a model of 3090 MB is more than the 1382 MB"),
        (Hardware(2, 8.0, MIXED.gpus[1:]), LARGE * 3, "GTX 1060 has room for"),
    ],
)
def test_a_model_that_does_not_fit_gives_a_warning(
    machine: Hardware, size_mb: float, warning: str
) -> None:
    placed = place_model(size_mb, machine, asr_memory(machine), {})
    assert {seat.device for seat in placed.workers} == {"cpu"}
    assert any(search(warning, said) for said in placed.warnings), placed.warnings


def test_a_machine_without_gpu_gives_no_warning() -> None:
    assert place_model(SMALL, DESKTOP, asr_memory(DESKTOP), {}).warnings == ()


def test_a_gpu_that_is_too_small_does_not_affect_others() -> None:
    placed = place_model(LARGE * 2, MIXED, asr_memory(MIXED), {})
    assert [seat.device for seat in placed.workers] == ["cuda:0"]
    assert "GTX 1060 has room for" in placed.warnings[0]


def test_configured_options_take_precedence() -> None:
    wish = {"device": "cpu", "compute_type": "float32", "max_batch": 3, "cpu_threads": 5}
    (seat,) = place_model(SMALL, L4, asr_memory(L4), wish, workers=1).workers
    assert seat.options() == wish
    (seat,) = place_model(
        SMALL, L4, asr_memory(L4), {"compute_type": "int8", "max_batch": 2}
    ).workers
    assert (seat.device, seat.compute_type, seat.max_batch) == ("cuda:0", "int8", 2)
    assert [
        s.device for s in place_model(SMALL, TWINS, asr_memory(TWINS), {}, workers=3).workers
    ] == [
        "cuda:0",
        "cuda:1",
        "cuda:0",
    ]
    (seat,) = place_model(
        SMALL, TWINS, asr_memory(TWINS), {"device": "cuda", "device_index": 1}
    ).workers
    assert seat.options()["device_index"] == 1
    assert len(place_model(TINY, DESKTOP, asr_memory(DESKTOP), {}, workers=5).workers) == 5


@pytest.mark.parametrize(
    ("machine", "why"), [(DESKTOP, "nvidia-smi lists no GPU"), (OLD_DRIVER, "470"), (FULL, "room")]
)
def test_a_configured_gpu_that_cannot_be_used_is_refused(machine: Hardware, why: str) -> None:
    with pytest.raises(EngineMissing, match=f"asr.options.device is cuda, but .*{why}"):
        place_model(SMALL, machine, asr_memory(machine), {"device": "cuda"})


def test_configured_memory_is_the_limit() -> None:
    room = asr_memory(L4, 2000)
    assert room == {"cpu": 2000, "cuda:0": 2000}
    (seat,) = place_model(TURBO, L4, room, {}).workers
    assert (seat.compute_type, seat.max_batch) == ("int8_float16", 2)
    assert asr_memory(PI)["cpu"] == pytest.approx(0.9 * 3 * 1024)


@pytest.mark.parametrize(
    ("capability", "types"),
    [
        ("9.0", ("float16", "int8_float16")),
        ("7.0", ("float16", "int8_float16")),
        ("6.2", ("float32",)),
        ("6.1", ("int8",)),
        ("6.0", ("float32",)),
        ("5.0", ("float32",)),
    ],
)
def test_compute_types_are_the_fast_ones_of_the_card(
    capability: str, types: tuple[str, ...]
) -> None:
    assert compute_types(gpu("x", 8, 8, capability)) == types


def test_usable_gpus_keep_their_numbers() -> None:
    machine = Hardware(8, 16.0, (KEPLER.gpus[0], gpu("L4", 22.5, 22.0, "8.9", index=1)))
    good, reasons = usable_gpus(machine)
    assert [one.index for one in good] == [1]
    assert len(reasons) == 1


def test_a_gpu_of_unknown_memory_is_used_once_memory_is_configured() -> None:
    """A chip that shares the machine's memory, as the GB10, reports none. The next GPU keeps its
    number."""
    hardware = Hardware(16, 128.0, (gpu("GB10", 0, 0, "12.1"), *TWINS.gpus[1:]))
    alone = Hardware(16, 128.0, hardware.gpus[:1])
    placed = place_model(TURBO, alone, asr_memory(alone), {})
    assert placed.workers[0].device == "cpu"
    assert "GB10 does not report its memory (asr.memory_mb can state it)" in placed.warnings[0]
    assert place_model(TURBO, alone, asr_memory(alone, 8000), {}).workers[0].device == "cuda:0"
    assert [s.device for s in place_model(TURBO, hardware, asr_memory(hardware), {}).workers] == [
        "cuda:1"
    ]
