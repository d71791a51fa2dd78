"""The line about the connection at the end of `talk`, and the times of a turn."""

from dataclasses import replace

import pytest

from bench.client.connection_stats import combined_report, quality_line
from bench.client.conversation import TurnReport
from bench.talk.output import times
from core.net.connection_stats import AudioFlowStats, ConnectionStats

CALL = ConnectionStats(
    "webrtc",
    round_trip_ms=12.345,
    codec="opus",
    protocol="udp",
    local_candidate="host",
    remote_candidate="relay",
    received=AudioFlowStats(packets=1000, lost=4, loss=0.1, jitter_ms=0.84, buffer_ms=0.04),
    sent=AudioFlowStats(packets=500, lost=5, loss=0.2, jitter_ms=2.0),
)
SERVER_REPORT = {
    "round_trip_ms": 99.0,
    "up": {"packets": 400, "lost": 8, "jitter_ms": 3.1, "buffer_ms": 1},
}


def test_an_earshot_server_reports_loss_and_jitter_of_the_uplink() -> None:
    assert quality_line(combined_report(CALL, SERVER_REPORT)) == (
        "network: round trip 12.3 ms, loss up 2.0 down 0.4 %, jitter up 3.1 down 0.8 ms, "
        "buffer up 1.0 down 0.0 ms; opus over udp, host to relay"
    )


def test_another_server_reports_the_uplink_by_rtcp() -> None:
    assert quality_line(combined_report(CALL, {})) == (
        "network: round trip 12.3 ms, loss up 1.0 down 0.4 %, jitter up 2.0 down 0.8 ms, "
        "buffer down 0.0 ms; opus over udp, host to relay"
    )


@pytest.mark.parametrize("server_report", [{}, {"up": None}, {"up": {"packets": 0, "lost": 0}}])
def test_unknown_figures_are_left_out(server_report: dict[str, object]) -> None:
    socket = ConnectionStats("websocket", protocol="tcp")
    assert quality_line(combined_report(socket, server_report)) == (
        "network: round trip not known; websocket over tcp"
    )
    silent = replace(CALL, round_trip_ms=None, received=AudioFlowStats(), sent=AudioFlowStats())
    assert combined_report(silent, server_report).loss_up is None


def test_a_websocket_shows_the_round_trip_of_the_server() -> None:
    socket = ConnectionStats("websocket", protocol="tcp")
    line = quality_line(combined_report(socket, {"round_trip_ms": 3.25}))
    assert line == "network: round trip 3.2 ms; websocket over tcp"


def report(voice_to_voice_ms: float | None, *, is_end_known: bool = True) -> TurnReport:
    own = (voice_to_voice_ms, 500.0, None, None)
    return TurnReport(
        "answered", "hello", "Hi.", "", *own, None, (), 300.0, is_end_known=is_end_known
    )


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (report(640), "voice to voice 640 ms"),
        (report(-80), "answered 80 ms before you ended"),
        (
            report(None, is_end_known=False),
            "voice to voice not known (sound goes on after the speech)",
        ),
    ],
)
def test_a_time_that_cannot_be_measured_is_not_shown(found: TurnReport, line: str) -> None:
    assert times(found) == [f"  here:    {line}, first words 500 ms after you began"]
