"""Placement of a Whisper model: device, compute type, workers, batch size, threads. Pure, with
reasons.

Memory is estimated here. What a worker on the processor really takes is measured when it runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import EngineMissing
from serving.placement.hardware import Gpu, Hardware

MemoryByDevice = Mapping[str, float]
"MB that recognisers may take, by device (`cpu`, `cuda:0`)."

CPU = "cpu"
"Name of the processor as a device."

OLDEST_DRIVER = 525
"First major version of the driver for CUDA 12, which CTranslate2 is built with."
OLDEST_CAPABILITY = (5, 0)
"First compute capability that CUDA 12 supports: Maxwell, of 2014."
TENSOR_CORES = (7, 0)
"First compute capability with tensor cores."
INT8_BEFORE = (6, 1)
"The one capability without tensor cores that multiplies 8-bit numbers: GTX 10 and Tesla P4."

GPU_BATCHES = (16, 8, 4, 2, 1)
"Batch sizes that are tried on a GPU, the largest first."
FAIR_BATCH = 4
"Batch size that is worth more than exact weights: below it, smaller weights are tried."
MODEST_SHARE = 0.7
"Share of the room that a placement with a batch above FAIR_BATCH should not exceed."

GPU_BASE_MB = 600.0
"Memory of CUDA itself and the kernels of cuBLAS."
CPU_BASE_MB = 200.0
"Memory of a worker with its libraries, without a model."
ITEM_SHARE = 0.1
"""Memory for each item of a batch, as a share of the float16 weights: 310 MB for large, 8 MB for
tiny."""

SMALLER = {"int8": 0.5, "int8_float16": 0.5, "int8_bfloat16": 0.5, "int8_float32": 0.55}
"Size of the weights in these compute types, relative to float16."
LARGER = {"float32": 2.0}
"Size of the weights in these compute types, relative to float16."

THREADS_PER_WORKER = 8
"Threads beyond which a decode gains little, while a second decode at the same time gains much."
MAX_THREADS = 16
"Most threads of one worker."
MAX_CPU_WORKERS = 4
"Most worker processes of one model on the processor."
TINY_MB = (30.0, 100.0)
"""Least and largest size as float16 of models that have two workers on two cores or more, each with
half of the threads. With one worker, a quarter of the final decodes waited for another decode of
the same utterance, 100 ms and more. A second thread makes a decode of tiny.en no faster. Larger
models need the threads, and smaller ones make nobody wait."""
TINY_WORKERS = 2
"Least number of workers of these models."
GPU_THREADS = 4
"Processor threads of a worker on a GPU, for features and tokens; the GPU does the rest."


@dataclass(frozen=True, slots=True)
class WorkerPlacement:
    """Placement of one worker process."""

    device: str
    "`cpu`, or `cuda:0` and so on."
    compute_type: str
    "Number type that CTranslate2 computes with, such as float16."
    max_batch: int
    "Largest number of items in one call."
    cpu_threads: int
    "Threads that the worker computes with."
    memory_mb: float
    "Estimated memory of the worker."

    def options(self) -> dict[str, Any]:
        """Returns the placement as settings of the engine."""
        device, _, index = self.device.partition(":")
        settings: dict[str, object] = {
            "device": device,
            "compute_type": self.compute_type,
            "max_batch": self.max_batch,
            "cpu_threads": self.cpu_threads,
        }
        return {**settings, "device_index": int(index)} if int(index or 0) else settings


@dataclass(frozen=True, slots=True)
class ModelPlacement:
    """Placement of all workers of one model."""

    workers: tuple[WorkerPlacement, ...]
    "One placement for each worker."
    why: str
    "Phrase that describes where and how the model runs."
    warnings: tuple[str, ...] = ()
    "Sentences about GPUs that are not used, or about too little memory."

    def memory_mb(self) -> dict[str, float]:
        """Returns the estimated memory of all workers in MB, by device."""
        memory_by_device: dict[str, float] = {}
        for placement in self.workers:
            memory_by_device[placement.device] = (
                memory_by_device.get(placement.device, 0.0) + placement.memory_mb
            )
        return memory_by_device


def asr_memory(hardware: Hardware, memory_mb: float = 0) -> MemoryByDevice:
    """Returns the MB that recognisers may take, by device.

    `memory_mb`: the configured limit for each device. With 0 it is half of the memory, at least
    4 GiB (enough for one large model), and at most nine tenths of what is free.
    """
    free_gb = hardware.memory_gb if hardware.free_gb is None else hardware.free_gb
    devices = [(CPU, hardware.memory_gb, free_gb)]
    devices += [
        (f"cuda:{gpu.index}", gpu.memory_gb, gpu.free_gb) for gpu in usable_gpus(hardware)[0]
    ]
    return {
        device: memory_mb or 1024 * min(0.9 * free, max(total / 2, 4.0))
        for device, total, free in devices
    }


def usable_gpus(hardware: Hardware) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Returns the GPUs that CTranslate2 can use, and the reasons why the others cannot be used."""
    usable: list[Gpu] = []
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
            usable.append(gpu)
    return tuple(usable), tuple(reasons)


def compute_types(gpu: Gpu) -> tuple[str, ...]:
    """Returns the compute types that the GPU computes fast, the most exact first. CTranslate2 would
    fall back silently to another type; we do not rely on that."""
    capability = _capability(gpu)
    if capability is None or capability >= TENSOR_CORES:
        return ("float16", "int8_float16")
    return ("int8",) if capability == INT8_BEFORE else ("float32",)


def place_model(
    size_mb: float,
    hardware: Hardware,
    room: MemoryByDevice,
    options: Mapping[str, object],
    workers: int = 0,
) -> ModelPlacement:
    """Returns the placement of a model. `size_mb`: its size as float16. `room`: MB by device.
    `options`: the configured ones, which win. `workers`: number of processes; 0: as suits the
    machine.

    Raises EngineMissing when a GPU is demanded and none has room.
    """
    device = options.get("device", "auto")
    if device == CPU:
        return _on_cpu(size_mb, hardware, room, options, workers, ())
    gpus, reasons = usable_gpus(hardware)
    placements, refused = _on_gpus(size_mb, gpus, room, options, workers)
    reasons = (*reasons, *refused)
    if placements:
        types = [
            f"{placement.compute_type}, batch {placement.max_batch}" for placement in placements
        ]
        names = [gpu.name for gpu in gpus if _is_used(gpu, placements)]
        why = f"on {_distinct(names)} ({_distinct(types)})"
        return ModelPlacement(placements, why, reasons)
    if device != "auto":
        why = "; ".join(reasons) or "nvidia-smi lists no GPU"
        raise EngineMissing("asr", "faster_whisper", f"asr.options.device is {device}, but {why}")
    warnings = tuple(f"{reason}: the processor is used instead" for reason in reasons)
    return _on_cpu(size_mb, hardware, room, options, workers, warnings)


def _on_gpus(
    size_mb: float,
    gpus: Sequence[Gpu],
    room: MemoryByDevice,
    options: Mapping[str, object],
    workers: int,
) -> tuple[tuple[WorkerPlacement, ...], tuple[str, ...]]:
    """Returns one placement on each GPU that has room, or `workers` of them in turn; and the
    reasons why the other GPUs have none."""
    if (index := options.get("device_index")) is not None:
        gpus = [gpu for gpu in gpus if gpu.index == index]
    each = max(1, -(-workers // len(gpus))) if gpus else 1
    fitting: list[WorkerPlacement] = []
    refused: list[str] = []
    for gpu in gpus:
        free_mb = room[f"cuda:{gpu.index}"] / each
        placements = _gpu_placements(size_mb, gpu, options)
        if placement := _best(placements, free_mb):
            fitting.append(placement)
            continue
        need_mb = min(placement.memory_mb for placement in placements)
        room_text = f"{gpu.name} has room for {free_mb:.0f} MB"
        if not gpu.memory_gb:
            room_text = f"{gpu.name} does not report its memory (asr.memory_mb can state it)"
        refused.append(f"{room_text}, a model of {size_mb:.0f} MB needs {need_mb:.0f}")
    if not fitting:
        return (), tuple(refused)
    count = workers or len(fitting)
    return tuple(fitting[i % len(fitting)] for i in range(count)), tuple(refused)


def _gpu_placements(size_mb: float, gpu: Gpu, options: Mapping[str, Any]) -> list[WorkerPlacement]:
    """Returns the possible placements on a GPU: the most exact weights first, and for each the
    largest batch first."""
    compute_type = options.get("compute_type")
    batches = (options["max_batch"],) if "max_batch" in options else GPU_BATCHES
    return [
        WorkerPlacement(
            f"cuda:{gpu.index}",
            kind,
            batch,
            options.get("cpu_threads", GPU_THREADS),
            GPU_BASE_MB + _weights_mb(size_mb, kind) + ITEM_SHARE * size_mb * batch,
        )
        for kind in ((compute_type,) if compute_type else compute_types(gpu))
        for batch in batches
    ]


def _best(placements: Sequence[WorkerPlacement], free_mb: float) -> WorkerPlacement | None:
    """Returns the best placement that fits; None if none does.

    Exact weights with a fair batch come first, then smaller weights, then smaller batches. A batch
    above the fair one must leave room for further models.
    """
    fitting = [placement for placement in placements if placement.memory_mb <= free_mb]
    fair = [placement for placement in fitting if placement.max_batch >= FAIR_BATCH]
    if not fair:
        return fitting[0] if fitting else None
    exact = [placement for placement in fair if placement.compute_type == fair[0].compute_type]
    modest = [placement for placement in exact if placement.memory_mb <= MODEST_SHARE * free_mb]
    return modest[0] if modest else exact[-1]


def _on_cpu(
    size_mb: float,
    hardware: Hardware,
    room: MemoryByDevice,
    options: Mapping[str, Any],
    workers: int,
    warnings: tuple[str, ...],
) -> ModelPlacement:
    compute_type = options.get("compute_type") or "int8"
    batch = options.get("max_batch") or (8 if hardware.cores >= THREADS_PER_WORKER else 4)
    need_mb = CPU_BASE_MB + _weights_mb(size_mb, compute_type) + ITEM_SHARE * size_mb * batch
    cores = hardware.cores
    if cores > THREADS_PER_WORKER:  # with fewer cores, the second thread of each core still helps
        cores = max(THREADS_PER_WORKER, min(cores, hardware.physical_cores or cores))
    fitting = max(1, int(room[CPU] // need_mb))
    least_mb, most_mb = TINY_MB
    least = min(TINY_WORKERS, cores) if least_mb <= size_mb <= most_mb else 1
    wanted = max(least, min(cores // THREADS_PER_WORKER, MAX_CPU_WORKERS))
    count = workers or min(wanted, fitting)
    threads = options.get("cpu_threads") or max(1, min(cores // count, MAX_THREADS))
    if need_mb * count > room[CPU]:
        memory = f"{count} x {need_mb:.0f} MB for a model of {size_mb:.0f} MB"
        warnings += (f"{memory} is more than the {room[CPU]:.0f} MB that recognisers may take",)
    placements = (WorkerPlacement(CPU, compute_type, batch, threads, need_mb),) * count
    how = f"{compute_type}, batch {batch}, {count} x {threads} threads"
    return ModelPlacement(placements, f"on the processor ({how})", warnings)


def _distinct(texts: Sequence[str]) -> str:
    """Joins texts with commas, each of them once."""
    return ", ".join(dict.fromkeys(texts))


def _weights_mb(size_mb: float, compute_type: str) -> float:
    return size_mb * SMALLER.get(compute_type, LARGER.get(compute_type, 1.0))


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    major, _, minor = gpu.capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _is_used(gpu: Gpu, placements: Sequence[WorkerPlacement]) -> bool:
    return any(placement.device == f"cuda:{gpu.index}" for placement in placements)
