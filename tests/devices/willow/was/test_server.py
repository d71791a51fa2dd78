"""The application server in a server process, with its port and its database."""

import asyncio
import json
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.devices.willow.was.servers import SPEECH
from tests.devices.willow.was.simulated_device import SimulatedWillow, fetch
from tests.ports import reserved_port
from tests.server.process import serving

pytestmark = pytest.mark.live

ANSWER_S = 30


async def _turn(was_url: str) -> tuple[SimulatedWillow, bytes]:
    device = SimulatedWillow(1, was_url.replace("http", "ws", 1) + "/ws")
    async with asyncio.timeout(ANSWER_S):
        await device.boot()
        await device.configured()
        assert (await device.speak(SPEECH)).status == 200
        await device.send({"cmd": "endpoint", "data": {"text": "turn on the kitchen lights"}})
        await device.until(lambda: device.results() and "kitchen" in device.results()[-1]["speech"])
        status, _, body = await fetch(f"{was_url}/api/client", device.address)
        assert status == 200
        status, _, described = await fetch(f"{was_url}/openapi.json", device.address)
        assert status == 200
        OpenAPIV31SpecValidator(json.loads(described)).validate()
        await device.off()
    return device, body


def test_a_stock_device_needs_only_the_url(tmp_path: Path) -> None:
    with reserved_port() as port:
        was_url = f"http://127.0.0.1:{port}"
        settings = {"EARSHOT_WILLOW__WAS_PORT": str(port)}
        with serving(tmp_path, settings=settings) as server:
            device, clients = asyncio.run(_turn(was_url))
            assert device.results()[-1] == {"ok": True, "speech": "Turned on the kitchen lights."}
            assert json.loads(clients)[0]["hostname"] == device.hostname
            assert server.stop() == 0
    assert [line for line in server.said if "Willow's devices at" in line]
    assert not [line for line in server.said if "Traceback" in line], "\n".join(server.said)
