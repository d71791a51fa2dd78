"""The report about engines is made for each request and passed on unchanged."""

import msgspec
import pytest

from tests.web.client import Client, with_client
from tests.web.reports import REPORT
from web.engines import EnginesReport, engine_routes

pytestmark = pytest.mark.live


def test_the_report_survives_the_wire() -> None:
    calls = []

    def report() -> EnginesReport:
        calls.append(1)
        return REPORT

    async def use(client: Client) -> None:
        for _ in range(2):
            answer = await client.get("/earshot/engines")
            assert answer.headers["Cache-Control"] == "no-store"
            assert msgspec.convert(await answer.json(), EnginesReport) == REPORT

    with_client(engine_routes(report), use)
    assert len(calls) == 2
