"""Everything that is fuzzed."""

from itertools import chain

from tests.fuzz import (
    bodies,
    calls,
    files,
    forms,
    house,
    realtime,
    streams,
    willow,
    wyoming,
    xiaozhi,
)

TARGETS = tuple(
    chain.from_iterable(
        module.TARGETS
        for module in (
            *(realtime, calls, forms, willow, wyoming, xiaozhi, house, bodies, files, streams),
        )
    )
)
