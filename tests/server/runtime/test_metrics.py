"""Metrics are declared once, and every line of the product uses them as declared."""

import ast
from collections.abc import Iterator

import pytest

from server.runtime.metrics import METRICS, PrometheusMetrics
from tests.repo.files import PACKAGES, python_files

CALLS = {"count": "counter", "observe": "histogram", "gauge": "gauge"}


def uses() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yields place, kind, name and labels of every `metrics.count("earshot_...", label=...)`."""
    for path in python_files(*PACKAGES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=method),
                    args=[ast.Constant(value=str(name)), *_],
                    keywords=keywords,
                ) if method in CALLS and name.startswith("earshot_"):
                    labels = tuple(sorted(keyword.arg or "" for keyword in keywords))
                    yield f"{path.name}:{node.lineno}", CALLS[method], name, labels


@pytest.mark.many  # files
def test_every_used_metric_is_declared_with_its_kind_and_labels() -> None:
    found = list(uses())
    assert len(found) >= 8
    wrong = [
        f"{where}: {kind} {name}{labels}"
        for where, kind, name, labels in found
        if name not in METRICS
        or METRICS[name].kind != kind
        or tuple(sorted(METRICS[name].labels)) != labels
    ]
    assert wrong == []


def test_no_label_has_unbounded_values() -> None:
    """Each label has a few values that the code names; `batch` has 1 to 64."""
    ours = {
        "direction",
        "stage",
        "status",
        "code",
        "kind",
        "route",
        "priority",
        "batch",
        "outcome",
        "verdict",
        "standing",
    }
    assert {label for declared in METRICS.values() for label in declared.labels} <= ours


def test_metric_values_are_exported() -> None:
    metrics = PrometheusMetrics()
    metrics.count("earshot_asr_refused", 3, priority="partial")
    metrics.count("earshot_errors", code="engine_crashed")
    metrics.observe("earshot_stage_seconds", 0.04, stage="asr")
    metrics.gauge("earshot_sessions", 2)
    shown = metrics.exposition().decode()
    for line in (
        'earshot_asr_refused_total{priority="partial"} 3.0',
        'earshot_errors_total{code="engine_crashed"} 1.0',
        'earshot_stage_seconds_bucket{le="0.05",stage="asr"} 1.0',
        'earshot_stage_seconds_bucket{le="0.025",stage="asr"} 0.0',
        "earshot_sessions 2.0",
        "process_resident_memory_bytes",
    ):
        assert line in shown


def test_an_undeclared_metric_or_label_raises() -> None:
    metrics = PrometheusMetrics()
    with pytest.raises(KeyError, match="earshot_typo"):
        metrics.count("earshot_typo")
    with pytest.raises(ValueError, match="label"):
        metrics.count("earshot_errors", session="x")
    with pytest.raises(AssertionError, match="no histogram"):
        metrics.observe("earshot_errors", 1, code="x")
