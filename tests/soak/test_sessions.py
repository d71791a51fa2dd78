"""Call after call on one server: every turn is answered correctly, and nothing is left behind."""

import asyncio
import os
from pathlib import Path

import pytest

from bench.client.http import Address
from bench.measurements.resources import Footprint, metrics, quiet_footprint
from tests.server.process import Running, serving
from tests.soak.talkers import Log, all_four

pytestmark = pytest.mark.live

SOAK_S = float(os.environ.get("EARSHOT_SOAK_S", "600"))

ROUND_S = 45.0
"After each round all talkers disconnect, and the server is measured empty."

WARM_UP_ROUNDS = 2
"Caches fill, thread pools start and memory is fragmented once."

MAX_GROWTH_MB = 24.0
"A call needs some 10 MB while it lives, so one in a hundred that stays is detected in an hour."

MAX_CONVERSATION_MB = 0.05
"Conversations are kept on purpose, the last thousand of them; this is the limit per call."

MAX_WRONG = 0.02
"The share of wrong turns: clients and server share the machine, and a late frame costs a word."

MAX_STRAY_FILES = 2
"The sockets of clients that have just disconnected."


@pytest.mark.soak
def test_memory_files_and_threads_do_not_grow(tmp_path: Path) -> None:
    with serving(tmp_path, recogniser={}) as server:
        log, footprints = Log(), list[Footprint]()
        asyncio.run(_soak(server, log, footprints))
        shown = asyncio.run(metrics(Address(server.url)))
        assert server.stop() == 0
    assert shown["earshot_sessions"] == 0
    assert [line for line in server.said if "ERROR" in line or "Traceback" in line] == []
    _check_turns(log)
    _check_growth(footprints, log.calls)


async def _soak(server: Running, log: Log, footprints: list[Footprint]) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + SOAK_S
    while loop.time() < ends_at or len(footprints) <= WARM_UP_ROUNDS:
        await all_four(server.url, ROUND_S, log)
        footprints.append(await quiet_footprint(Address(server.url), server.process.pid))
        print(f"{log.calls} calls, {len(log.turns)} turns, {footprints[-1]}")


def _check_turns(log: Log) -> None:
    assert log.cancelled > 0
    assert log.vanished > 0
    unanswered = [(text, report.error) for text, report in log.turns if report.status != "answered"]
    assert unanswered == []
    wrong = [(text, report.transcript) for text, report in log.turns if report.transcript != text]
    assert len(wrong) <= MAX_WRONG * len(log.turns), wrong


def _check_growth(footprints: list[Footprint], calls: int) -> None:
    warm, last = footprints[WARM_UP_ROUNDS - 1], footprints[-1]
    assert last.rss_mb - warm.rss_mb < MAX_GROWTH_MB + calls * MAX_CONVERSATION_MB, footprints
    assert last.files - warm.files <= MAX_STRAY_FILES, footprints
    for name in ("processes", "threads", "tasks"):
        assert getattr(last, name) <= getattr(warm, name), footprints
