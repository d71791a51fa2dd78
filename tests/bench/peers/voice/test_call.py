"""Calls to a fake server, and to a server that cannot be reached."""

import asyncio

import pytest

from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import CannotConnect, ClientTransport, SessionRequest
from bench.peers.systems import free_port
from bench.peers.voice.call import realtime_line, small_webrtc_line
from bench.tools.utterance_audio import make_utterance
from tests.bench.client.fake_realtime_server import Behaviour, FakeRealtime, speech

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]


@pytest.mark.parametrize("transport", ["ws", "webrtc"])
def test_the_answer_of_a_realtime_server_is_timed(transport: ClientTransport) -> None:
    async def run() -> float | None:
        fake = FakeRealtime(Behaviour())
        async with (
            asyncio.timeout(20),
            fake.running() as url,
            realtime_line(Address(url), transport, SessionRequest()) as say,
        ):
            return await say(make_utterance("hello", speech(), RATE_HZ))

    took_ms = asyncio.run(run())
    assert took_ms is not None
    assert 190 < took_ms < 2000  # it waits for 200 ms of silence


def test_the_error_names_a_system_that_cannot_be_reached() -> None:
    async def run() -> None:
        async with small_webrtc_line(free_port()):
            pass

    with pytest.raises(CannotConnect, match="no answer to our offer"):
        asyncio.run(run())
