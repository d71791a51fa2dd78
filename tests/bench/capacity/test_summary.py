"""The summary of the measurements of `python -m bench.capacity`."""

from pathlib import Path

import pytest

from bench.capacity.one_run import CapacityRun, MeasurementWindow
from bench.capacity.summary import extrapolated, table
from bench.capacity.systems import configuration
from bench.capacity.webrtc_load import PacketArrival, interval_errors_ms
from bench.capacity.websocket_load import ECHO, WITH_SERVER_VAD, WITHOUT_VAD
from server.config.load import load

STEP = 960


def run(cpu_s: float, sessions: int = 10, errors_ms: tuple[float, ...] = ()) -> CapacityRun:
    window = MeasurementWindow(began=0, wall_s=10, cpu_s=cpu_s, waited_s=1, lags_ms=[1, 2, 3])
    return CapacityRun(sessions, window, 100, errors_ms, refusals=2)


def test_an_even_stream_has_no_interval_errors() -> None:
    arrivals = [PacketArrival(tick * STEP, tick * 0.02) for tick in range(5)]
    assert interval_errors_ms(arrivals) == pytest.approx([0, 0, 0, 0])


def test_a_late_packet_counts_twice_and_a_pause_in_the_audio_not_at_all() -> None:
    late = [PacketArrival(0, 0), PacketArrival(STEP, 0.027), PacketArrival(2 * STEP, 0.04)]
    assert interval_errors_ms(late) == pytest.approx([7, 7])
    gap = [PacketArrival(0, 0), PacketArrival(10 * STEP, 0.2)]
    assert interval_errors_ms(gap) == pytest.approx([0])


def test_rtp_timestamps_may_wrap() -> None:
    arrivals = [PacketArrival(2**32 - STEP, 0), PacketArrival(0, 0.02)]
    assert interval_errors_ms(arrivals) == pytest.approx([0])


def test_the_table_has_medians_ranges_and_ratios() -> None:
    found = {
        "stock": {10: [run(4.0), run(3.0), run(5.0)]},
        "earshot": {10: [run(1.0), run(2.0), run(1.0)]},
    }
    head, _, stock, ours = table(found, "stock").splitlines()
    assert "interval" not in head
    assert "| stock | 10 | 4.00 (3.00-5.00) | 1.00 x | 100 | 10 |" in stock
    assert "| earshot | 10 | 1.00 (1.00-2.00) | 0.25 x | 100 | 10 |" in ours
    assert ours.endswith("| 6 |")


def test_a_missing_measurement_is_marked() -> None:
    found = {"stock": {10: [run(4.0)], 20: []}, "earshot": {10: [], 20: [run(2.0, 20)]}}
    rows = table(found, "stock").splitlines()[2:]
    assert [row.split(" | ")[2] for row in rows] == [
        "4.00 (4.00-4.00)",
        "not measured",
        "not measured",
        "1.00 (1.00-1.00)",
    ]
    assert rows[3].split(" | ")[3] == "-"
    assert extrapolated(found).endswith("extrapolated from 20, not measured: earshot 100.")


def test_packet_intervals_are_shown_if_measured() -> None:
    found = {"stock": {10: [run(4.0, errors_ms=(1.0,) * 99 + (50.0,))]}}
    assert "interval error p99, ms" in table(found, "stock")


def test_sessions_per_core_are_extrapolated_from_the_largest_run() -> None:
    found = {"stock": {10: [run(4.0)], 20: [run(10.0, 20)]}, "echo": {10: [run(1.0)]}}
    text = extrapolated(found)
    assert text == "Sessions on a full core, extrapolated from 20, not measured: stock 20."


@pytest.mark.parametrize("is_deaf", [True, False])
def test_the_server_under_test_loads_its_configuration(is_deaf: bool, tmp_path: Path) -> None:
    file = tmp_path / "earshot.toml"
    file.write_text(configuration(answer_ms=4000, is_deaf=is_deaf, max_sessions=7))
    config = load({}, file=file).config
    assert config.server.max_sessions == 7
    assert config.tts.options == {"tone_ms": 4000}
    assert (config.vad.engine == "bench.server.stub_engines.vad") is is_deaf


def test_only_our_server_gets_turn_detection_settings() -> None:
    assert ECHO.greeting() == []
    (off,) = WITHOUT_VAD.greeting()
    (on,) = WITH_SERVER_VAD.greeting()
    assert '"turn_detection":null' in off
    assert '"type":"server_vad"' in on
