"""Where a Whisper runs and how: device, compute type, workers, batch, threads. Pure, with reasons.

Memory is estimated here; what a worker on the processor really takes is measured when it runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import EngineMissing
from serving.placement.hardware import Gpu, Hardware

MemoryByDevice = Mapping[str, float]
"Device (`cpu`, `cuda:0`) -> megabytes that recognisers may take there."

CPU = "cpu"

OLDEST_DRIVER = 525
"The first for CUDA 12, which CTranslate2 is built with."
OLDEST_CAPABILITY = (5, 0)
"The first that CUDA 12 computes on: Maxwell, of 2014."
TENSOR_CORES = (7, 0)
INT8_BEFORE = (6, 1)
"The one capability without tensor cores that multiplies 8 bit numbers: GTX 10 and Tesla P4."

GPU_BATCHES = (16, 8, 4, 2, 1)
FAIR_BATCH = 4
"Below it, smaller weights are worth more than exact ones."
MODEST_SHARE = 0.7
"Of the room, for a larger batch than that."

GPU_BASE_MB = 600.0
"CUDA's own, and the kernels of cuBLAS."
CPU_BASE_MB = 200.0
"A worker with its libraries, without a model."
ITEM_SHARE = 0.1
"What each item of a batch takes beside the weights: 310 MB for large, 8 MB for tiny."

SMALLER = {"int8": 0.5, "int8_float16": 0.5, "int8_bfloat16": 0.5, "int8_float32": 0.55}
LARGER = {"float32": 2.0}
"Of the size as float16."

THREADS_PER_WORKER = 8
"Beyond it a decode gains little from more threads, and two at once gain much."
MAX_THREADS = 16
MAX_CPU_WORKERS = 4
GPU_THREADS = 4
"For features and tokens; the GPU does the rest."


@dataclass(frozen=True, slots=True)
class WorkerPlacement:
    """One worker's place."""

    device: str
    "cpu, or cuda:0 and so on."
    compute_type: str
    max_batch: int
    cpu_threads: int
    memory_mb: float

    def options(self) -> dict[str, Any]:
        """As the engine's settings say it."""
        device, _, index = self.device.partition(":")
        said: dict[str, Any] = {
            "device": device,
            "compute_type": self.compute_type,
            "max_batch": self.max_batch,
            "cpu_threads": self.cpu_threads,
        }
        return {**said, "device_index": int(index)} if int(index or 0) else said


@dataclass(frozen=True, slots=True)
class ModelPlacement:
    seats: tuple[WorkerPlacement, ...]
    "One for each worker."
    why: str
    warnings: tuple[str, ...] = ()

    def memory_mb(self) -> dict[str, float]:
        """Device -> what its workers take."""
        taken: dict[str, float] = {}
        for seat in self.seats:
            taken[seat.device] = taken.get(seat.device, 0.0) + seat.memory_mb
        return taken


def asr_memory(hardware: Hardware, memory_mb: float = 0) -> MemoryByDevice:
    """What recognisers may take. `memory_mb` is the configured limit for each device; 0: half of
    what there is and nine tenths of what is free, but enough for one large model."""
    free_gb = hardware.memory_gb if hardware.free_gb is None else hardware.free_gb
    there = [(CPU, hardware.memory_gb, free_gb)]
    there += [(f"cuda:{gpu.index}", gpu.memory_gb, gpu.free_gb) for gpu in usable_gpus(hardware)[0]]
    return {
        device: memory_mb or 1024 * min(0.9 * free, max(total / 2, 4.0))
        for device, total, free in there
    }


def usable_gpus(hardware: Hardware) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs that can compute at all, and why the others cannot."""
    good: list[Gpu] = []
    reasons: list[str] = []
    for gpu in hardware.gpus:
        if hardware.gpu_problem:
            reasons.append(f"{gpu.name}: {hardware.gpu_problem}")
            continue
        major = gpu.driver.partition(".")[0]
        if major.isdigit() and int(major) < OLDEST_DRIVER:
            reasons.append(f"{gpu.name}: its driver {gpu.driver} is older than {OLDEST_DRIVER}")
        elif (capability := _capability(gpu)) is not None and capability < OLDEST_CAPABILITY:
            reasons.append(f"{gpu.name}: its compute capability {gpu.capability} is below 5.0")
        else:
            good.append(gpu)
    return tuple(good), tuple(reasons)


def compute_types(gpu: Gpu) -> tuple[str, ...]:
    """What it computes fast, the most exact first. CTranslate2 falls back silently: we do not."""
    capability = _capability(gpu)
    if capability is None or capability >= TENSOR_CORES:
        return ("float16", "int8_float16")
    return ("int8",) if capability == INT8_BEFORE else ("float32",)


def place_model(
    size_mb: float,
    hardware: Hardware,
    room: MemoryByDevice,
    options: Mapping[str, Any],
    workers: int = 0,
) -> ModelPlacement:
    """Seats for a model of `size_mb` as float16. `options` are the configured ones, which win;
    `workers` 0: as suits the machine.

    Raises EngineMissing when a GPU is demanded and there is none with room.
    """
    device = options.get("device", "auto")
    if device == CPU:
        return _on_cpu(size_mb, hardware, room, options, workers, ())
    gpus, reasons = usable_gpus(hardware)
    seats, refused = _on_gpus(size_mb, gpus, room, options, workers)
    reasons = (*reasons, *refused)
    if seats:
        types = ", ".join(dict.fromkeys(f"{s.compute_type}, batch {s.max_batch}" for s in seats))
        names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus if _is_of(gpu, seats)))
        return ModelPlacement(seats, f"on {names} ({types})", reasons)
    if device != "auto":
        why = "; ".join(reasons) or "nvidia-smi lists no GPU"
        raise EngineMissing("asr", "faster_whisper", f"asr.options.device is {device}, but {why}")
    warnings = tuple(f"{reason}: the processor does its work" for reason in reasons)
    return _on_cpu(size_mb, hardware, room, options, workers, warnings)


def _on_gpus(
    size_mb: float,
    gpus: Sequence[Gpu],
    room: MemoryByDevice,
    options: Mapping[str, Any],
    workers: int,
) -> tuple[tuple[WorkerPlacement, ...], tuple[str, ...]]:
    """One seat on each GPU that has room, or `workers` of them in turn; why others have none."""
    if (index := options.get("device_index")) is not None:
        gpus = [gpu for gpu in gpus if gpu.index == index]
    each = max(1, -(-workers // len(gpus))) if gpus else 1
    fitting: list[WorkerPlacement] = []
    refused: list[str] = []
    for gpu in gpus:
        free_mb = room[f"cuda:{gpu.index}"] / each
        seats = _gpu_seats(size_mb, gpu, options)
        if seat := _best(seats, free_mb):
            fitting.append(seat)
            continue
        need = min(seat.memory_mb for seat in seats)
        room_is = f"{gpu.name} has room for {free_mb:.0f} MB"
        if not gpu.memory_gb:
            room_is = f"{gpu.name} does not say what memory it has (asr.memory_mb may)"
        refused.append(f"{room_is}, a model of {size_mb:.0f} MB needs {need:.0f}")
    if not fitting:
        return (), tuple(refused)
    count = workers or len(fitting)
    return tuple(fitting[i % len(fitting)] for i in range(count)), tuple(refused)


def _gpu_seats(size_mb: float, gpu: Gpu, options: Mapping[str, Any]) -> list[WorkerPlacement]:
    """The most exact weights first, of each the largest batch first."""
    wished = options.get("compute_type")
    batches = (options["max_batch"],) if "max_batch" in options else GPU_BATCHES
    return [
        WorkerPlacement(
            f"cuda:{gpu.index}",
            kind,
            batch,
            options.get("cpu_threads", GPU_THREADS),
            GPU_BASE_MB + _weights_mb(size_mb, kind) + ITEM_SHARE * size_mb * batch,
        )
        for kind in ((wished,) if wished else compute_types(gpu))
        for batch in batches
    ]


def _best(seats: Sequence[WorkerPlacement], free_mb: float) -> WorkerPlacement | None:
    """Exact weights with a fair batch, then smaller weights, then smaller batches; None: none fits.
    A batch beyond the fair one leaves room for further models."""
    fitting = [seat for seat in seats if seat.memory_mb <= free_mb]
    fair = [seat for seat in fitting if seat.max_batch >= FAIR_BATCH]
    if not fair:
        return fitting[0] if fitting else None
    exact = [seat for seat in fair if seat.compute_type == fair[0].compute_type]
    modest = [seat for seat in exact if seat.memory_mb <= MODEST_SHARE * free_mb]
    return modest[0] if modest else exact[-1]


def _on_cpu(
    size_mb: float,
    hardware: Hardware,
    room: MemoryByDevice,
    options: Mapping[str, Any],
    workers: int,
    warnings: tuple[str, ...],
) -> ModelPlacement:
    kind = options.get("compute_type") or "int8"
    batch = options.get("max_batch") or (8 if hardware.cores >= THREADS_PER_WORKER else 4)
    need = CPU_BASE_MB + _weights_mb(size_mb, kind) + ITEM_SHARE * size_mb * batch
    cores = hardware.cores
    if cores > THREADS_PER_WORKER:  # on fewer, the second thread of a core still helps
        cores = max(THREADS_PER_WORKER, min(cores, hardware.physical_cores or cores))
    fitting = max(1, int(room[CPU] // need))
    count = workers or max(1, min(cores // THREADS_PER_WORKER, MAX_CPU_WORKERS, fitting))
    threads = options.get("cpu_threads") or max(1, min(cores // count, MAX_THREADS))
    if need * count > room[CPU]:
        much = f"{count} x {need:.0f} MB for a model of {size_mb:.0f} MB"
        warnings += (f"{much} is more than the {room[CPU]:.0f} MB that recognisers may take",)
    seats = (WorkerPlacement(CPU, kind, batch, threads, need),) * count
    how = f"{kind}, batch {batch}, {count} x {threads} threads"
    return ModelPlacement(seats, f"on the processor ({how})", warnings)


def _weights_mb(size_mb: float, compute_type: str) -> float:
    return size_mb * SMALLER.get(compute_type, LARGER.get(compute_type, 1.0))


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    major, _, minor = gpu.capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _is_of(gpu: Gpu, seats: Sequence[WorkerPlacement]) -> bool:
    return any(seat.device == f"cuda:{gpu.index}" for seat in seats)
