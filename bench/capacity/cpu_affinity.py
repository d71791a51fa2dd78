"""Pins server and load each to a processor core of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from core.errors import RequestError


@dataclass(frozen=True, slots=True)
class CpuAssignment:
    """Numbers of the two cores."""

    server: int
    load: int


def cores() -> CpuAssignment:
    """Returns the first and the last core that this process may use. Raises RequestError."""
    if not hasattr(os, "sched_setaffinity"):
        raise RequestError("this system cannot pin a process to a core")
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise RequestError("two cores are needed: one for the server, one for its load")
    return CpuAssignment(usable[0], usable[-1])


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pins this thread, and the processes that it starts meanwhile, to this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
