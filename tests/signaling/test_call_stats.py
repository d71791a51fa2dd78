"""The quality of a connection: sent to clients that ask for it, and observed in the metrics for
all."""

import json

import pytest

from core.net.connection_stats import AudioFlowStats, ConnectionStats
from media.webrtc.aiortc_internals.transport import lose_packets
from signaling.call_stats import count_quality
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.protocol.server_events import QUALITY_EVENT
from signaling.realtime.session.settings import SessionConfiguration
from tests.pipeline.fakes import Counts
from tests.signaling.realtime.fakes import Client, play
from tests.signaling.realtime.servers import Server, against
from tests.signaling.realtime.webrtc_client import talking

pytestmark = pytest.mark.live

QUALITY = ConnectionStats(
    "webrtc",
    round_trip_ms=12.34,
    codec="opus",
    protocol="udp",
    local_candidate="host",
    remote_candidate="prflx",
    received=AudioFlowStats(packets=500, lost=5, loss=0.0123456, jitter_ms=3.21, buffer_ms=0.6),
    sent=AudioFlowStats(),
)


def test_the_quality_is_sent_only_if_included() -> None:
    stock, asking = Client(), Client()

    async def scene(connection: RealtimeConnection) -> None:
        await connection.send_quality(QUALITY)
        connection.close()

    play(stock, scene)
    assert QUALITY_EVENT not in stock.types
    play(asking, scene, terms=SessionConfiguration(include=frozenset({QUALITY_EVENT})))
    assert asking.sent[-1]["type"] == "earshot.connection"
    assert asking.sent[-1]["connection"] == {
        "transport": "webrtc",
        "round_trip_ms": 12.3,
        "codec": "opus",
        "protocol": "udp",
        "local_candidate": "host",
        "remote_candidate": "prflx",
        "up": {"packets": 500, "lost": 5, "loss": 0.0123, "jitter_ms": 3.2, "buffer_ms": 0.6},
        "down": {"packets": 0, "lost": 0, "loss": None, "jitter_ms": None, "buffer_ms": None},
    }


def test_unknown_values_are_not_observed() -> None:
    metrics = Counts()
    count_quality(QUALITY, metrics)
    count_quality(ConnectionStats("websocket"), metrics)
    assert {name: seen for name, seen in metrics.observed.items() if ":" not in name} == {
        "earshot_connection_round_trip_seconds": [pytest.approx(0.01234)],
        "earshot_connection_loss_ratio": [0.0123456],
        "earshot_connection_jitter_seconds": [pytest.approx(0.00321)],
        "earshot_jitter_buffer_seconds": [pytest.approx(0.0006)],
    }


def test_a_call_reports_the_loss_of_its_incoming_packets() -> None:
    async def scene(server: Server) -> None:
        session = {"type": "realtime", "include": [QUALITY_EVENT]}
        async with talking(server, session) as caller:
            peer = server.door.calls._calls[caller.call_id]._peer
            assert peer is not None
            arrived = 0

            def each_fifth() -> bool:
                nonlocal arrived
                arrived += 1
                return arrived % 5 == 0

            lose_packets(peer._audio.receiver, each_fifth)
            while True:
                told = (await caller.expect(QUALITY_EVENT))[-1]["connection"]
                if (told["up"]["loss"] or 0) > 0.1:
                    break
            assert told["up"]["loss"] <= 0.3
            assert told["up"]["buffer_ms"] > 0
            assert (told["transport"], told["codec"]) == ("webrtc", "opus")
            assert told["local_candidate"] == "host"
            noted = server.world.metrics.observed["earshot_connection_loss_ratio"]
            assert any(loss == pytest.approx(told["up"]["loss"], abs=1e-4) for loss in noted)
        await server.all_left()

    against(scene)


def test_a_websocket_reports_its_round_trip_if_included() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime?model=default") as ws:
            session = {"type": "realtime", "include": [QUALITY_EVENT]}
            await ws.send_str(json.dumps({"type": "session.update", "session": session}))
            while (event := await ws.receive_json())["type"] != QUALITY_EVENT:
                pass
            told = event["connection"]
            assert (told["transport"], told["up"], told["codec"]) == ("websocket", None, None)
            assert 0 <= told["round_trip_ms"] < 10_000  # on a machine that is not quiet
        await server.all_left()

    against(scene)


def test_a_ping_of_the_client_is_answered() -> None:
    async def scene(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime?model=default", autoping=False) as ws:
            await ws.ping(b"are you there")
            while not isinstance(data := (await ws.receive()).data, bytes):
                pass
            assert data == b"are you there"
        await server.all_left()

    against(scene)
