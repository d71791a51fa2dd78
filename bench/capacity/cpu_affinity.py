"""Server and load apart: each on a processor core of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from core.errors import RequestError


@dataclass(frozen=True, slots=True)
class CpuAssignment:
    server: int
    load: int


def cores() -> CpuAssignment:
    """The first and the last core that this process may use. Raises RequestError."""
    if not hasattr(os, "sched_setaffinity"):
        raise RequestError("this system cannot pin a process to a core")
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise RequestError("two cores are needed: one for the server, one for its load")
    return CpuAssignment(usable[0], usable[-1])


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """This thread, and what it starts meanwhile, runs on this core only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
