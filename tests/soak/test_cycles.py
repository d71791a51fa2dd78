"""A thousand connections over both transports, which must leave nothing in memory."""

import asyncio

import pytest

from bench.capacity.cpu_affinity import cores
from bench.capacity.session_limit import cycles_of
from pipeline.conversation.conversation import MAX_CONVERSATIONS

CYCLES = 1000

WARM_UP = MAX_CONVERSATIONS + 200
"""Conversations are kept on purpose, the last thousand of them, some 12 kB for each of these: once
all places are taken, each new one replaces another."""

MAX_GROWTH_MB = 2.0
"Two kilobytes for each connection: less than any object that one could leave behind."

pytestmark = pytest.mark.soak


def test_a_thousand_connections_leave_nothing_behind() -> None:
    before, after = asyncio.run(cycles_of(cores(), CYCLES, WARM_UP))
    print(f"{before} -> {after}")
    assert after.rss_mb - before.rss_mb < MAX_GROWTH_MB
    assert (after.processes, after.threads) == (before.processes, before.threads)
    assert (after.files, after.tasks) == (before.files, before.tasks)
