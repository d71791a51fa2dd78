"""One client floods the server with many or with large events; another client hardly notices."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

from tests.server.process import environment, serving

pytestmark = [pytest.mark.live, pytest.mark.alone]

RATES = {"small": 10_000, "large": 500}
"Events a second: the large ones have 60 kB, and as much comes back."
FLOOD_S = 2.5

ASKED, TIMES = 40, 3
"""Round trips of the other client per try, and the number of tries. The best of three is compared,
because other load on the machine makes any one of them slow."""

EVERY_S = 0.02
"As often as audio comes."

MAX_MORE_S = 0.05
"""In the slowest of twenty: two and a half frames of audio. A server that first reads all of what
one client has sent took 0.14 s more."""


async def round_trip_s(
    ws: ClientWebSocketResponse, counts: Callable[[], bool] = lambda: True
) -> float:
    """Returns the p95 of the best try: of the first and of those that ended while `counts` held."""
    took = [await tried(ws)]
    while len(took) < TIMES:
        took.append(await tried(ws))
        if not counts():
            return min(took[:-1])
    return min(took)


async def tried(ws: ClientWebSocketResponse) -> float:
    loop = asyncio.get_running_loop()
    took: list[float] = []
    for _ in range(ASKED):
        asked = loop.time()
        await ws.send_json({"type": "response.cancel"})
        while (await ws.receive_json())["type"] != "error":
            pass
        took.append(loop.time() - asked)
        await asyncio.sleep(EVERY_S)
    return sorted(took)[len(took) * 95 // 100]


async def compare_with_floods(url: str, folder: Path) -> None:
    """Compares the p95 of another client's round trip before the floods and during each."""
    async with ClientSession() as http, http.ws_connect(f"{url}/v1/realtime") as ws:
        quiet = await round_trip_s(ws)
        for kind, rate in RATES.items():
            loud, flood = await during_a_flood(ws, url, folder, kind, rate)
            print(f"p95 {1000 * quiet:.1f} ms, {kind} flood {1000 * loud:.1f} ms; {flood}")
            # However fast the machine is: the server had all it could do, or all that was planned.
            assert flood["idle"] < flood["bursts"] / 10
            assert flood["answers"] > flood["sent"] / 2
            assert loud < quiet + MAX_MORE_S, kind


async def during_a_flood(
    ws: ClientWebSocketResponse, url: str, folder: Path, kind: str, rate: int
) -> tuple[float, dict[str, int]]:
    """Returns the p95 of the round trip in seconds, and the counters of the flooder."""
    flood = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.integration.flooder", url, kind, str(rate), str(FLOOD_S)),
        env=environment(folder),
        stdout=subprocess.PIPE,
    )
    assert flood.stdout is not None
    assert await flood.stdout.readline() == b"begun\n"
    loud = await round_trip_s(ws, lambda: flood.returncode is None)
    printed, _ = await flood.communicate()
    return loud, json.loads(printed)


def test_a_flood_from_one_client_does_not_delay_another(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        asyncio.run(compare_with_floods(server.url.rstrip("/"), tmp_path))
