"""Timing by the device's own events, after warm-up; and the top speed of the device."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

WARM_UP = 3
"Calls before the timing, in which libraries choose their kernels."


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Milliseconds of each run."""

    each: Sequence[float]

    @property
    def median(self) -> float:
        return median(self.each)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({min(self.each):.2f}-{max(self.each):.2f})"


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call of a compared system that fails on this machine."""

    error: str

    def __str__(self) -> str:
        return f"failed: {self.error}"


FAILURES = (RuntimeError, ValueError, TypeError, AttributeError, ImportError, NotImplementedError)
"Errors that libraries raise where a call does not fit their version or this machine."


def timed(call: Callable[[], Any], device: torch.device, runs: int) -> float:
    """Returns the milliseconds of one call, as the mean of `runs` calls."""
    if device.type != "cuda":
        began_s = time.perf_counter()
        for _ in range(runs):
            call()
        return 1000 * (time.perf_counter() - began_s) / runs
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(runs):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / runs


def alternating(
    calls: Sequence[Callable[[], Any]], device: torch.device, rounds: int
) -> list[RunTimes]:
    """Runs each call once per round, in turn, so that all have the same clock speeds and background
    load."""
    for call in calls:
        for _ in range(WARM_UP):
            call()
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for times, call in zip(found, calls, strict=True):
            times.append(timed(call, device, 1))
    return [RunTimes(times) for times in found]


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """Speed measured on this device."""

    bytes_per_s: float
    "Speed of a copy, read and written bytes together."
    flop_per_s: float
    "Speed of a large matrix product."


def compare(
    ours: Callable[[], Any],
    peers: Sequence[Callable[[], Any]],
    device: torch.device,
    rounds: int,
) -> tuple[RunTimes, list[RunTimes | FailedCall]]:
    """Times Earshot and the compared systems in turn. A system that fails gets its error as its
    cell."""
    failed: dict[int, FailedCall] = {}
    for index, peer in enumerate(peers):
        try:
            peer()
        except FAILURES as error:
            reason = str(error).partition("\n")[0][:80].replace("|", "/")
            failed[index] = FailedCall(f"{type(error).__name__} {reason}")
    able = [peer for index, peer in enumerate(peers) if index not in failed]
    mine, *others = alternating([ours, *able], device, rounds)
    rest = iter(others)
    return mine, [failed[i] if i in failed else next(rest) for i in range(len(peers))]


def floors(device: torch.device, dtype: torch.dtype) -> DeviceSpeed:
    """Measures the speed of the device."""
    size = 2**30 if device.type == "cuda" else 2**24
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    (copy,) = alternating([lambda: target.copy_(source)], device, 7)
    edge = 8192 if device.type == "cuda" else 512
    left = torch.randn(edge, edge, device=device, dtype=dtype)
    (product,) = alternating([lambda: left @ left], device, 7)
    return DeviceSpeed(2 * size / min(copy.each) * 1000, 2 * edge**3 / min(product.each) * 1000)
