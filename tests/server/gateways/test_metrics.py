"""Metrics of several gateways in one answer."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from server.gateways.metrics import counters, keep_ended, merged, read_ended
from server.runtime.metrics import PrometheusMetrics


def text_of(sessions: int, turns: int, seconds: float) -> str:
    metrics = PrometheusMetrics()
    metrics.gauge("earshot_sessions", sessions)
    metrics.count("earshot_turns", turns, status="completed")
    metrics.observe("earshot_tool_seconds", seconds, outcome="ok")
    return metrics.exposition().decode()


def values(text: str) -> dict[tuple[str, str, str], float]:
    """Returns (name, label gateway, outcome or status) -> value."""
    return {
        (
            sample.name,
            sample.labels.get("gateway", ""),
            sample.labels.get("status", sample.labels.get("outcome", "")),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_and_histograms_are_added_up_and_gauges_labelled() -> None:
    found = values(merged({"1": text_of(3, 10, 0.5), "2": text_of(4, 20, 1.5)}))
    assert found["earshot_turns_total", "", "completed"] == 30
    assert found["earshot_tool_seconds_count", "", "ok"] == 2
    assert found["earshot_tool_seconds_sum", "", "ok"] == 2.0
    assert found["earshot_sessions", "1", ""] == 3
    assert found["earshot_sessions", "2", ""] == 4
    assert ("earshot_sessions", "", "") not in found


def test_each_series_and_each_type_stands_once() -> None:
    lines = merged({"1": text_of(3, 10, 0.5), "2": text_of(4, 20, 1.5)}).splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(types) == len(set(types))
    assert len(series) == len(set(series))


def test_labels_of_a_gauge_are_kept() -> None:
    text = '# HELP g A gauge.\n# TYPE g gauge\ng{kind="a b"} 2.0\n'
    assert 'g{gateway="2",kind="a b"} 2.0' in merged({"2": text})


def test_the_counters_of_ended_gateways_stay(tmp_path: Path) -> None:
    keep_ended(tmp_path, text_of(3, 10, 0.5))
    keep_ended(tmp_path, text_of(4, 20, 1.5))
    found = values(merged({"3": text_of(1, 5, 0.5)}, read_ended(tmp_path)))
    assert found["earshot_turns_total", "", "completed"] == 35
    assert [key for key in found if key[0] == "earshot_sessions"] == [("earshot_sessions", "3", "")]


def test_nothing_but_counters_remains() -> None:
    assert "earshot_sessions" not in counters(text_of(3, 10, 0.5))
    assert read_ended(Path("/nowhere")) == ""
