"""Clients of a load test, without a server."""

import asyncio

from bench.client.http import Address
from bench.load import bodies
from bench.load.clients import LoadPlan, run


def test_no_request_is_sent_when_the_load_is_over() -> None:
    async def count_answers() -> int:
        is_over = asyncio.Event()
        is_over.set()
        kind = bodies.embeddings("m", words=2, inputs=1)
        plan = LoadPlan(Address("http://127.0.0.1:1"), kind, 4, 100, 1.0, is_kept=True)
        return len((await run(plan, is_over)).answers)

    assert asyncio.run(count_answers()) == 0
