"""Metrics are declared once, and every line of the product uses them as declared."""

import ast
from collections.abc import Iterator
from typing import get_args

import pytest

from engines.registry import EngineKind
from server.runtime.metrics import METRICS, WORK, PrometheusMetrics
from serving.asr.scheduling import ASR_SCHEDULING
from serving.text.model import POLICIES
from tests.repo.files import PACKAGES, python_files

CALLS = {"count": "counter", "observe": "histogram", "gauge": "gauge"}

OUTCOMES = ["refused", "superseded", "expired"]
"Endings that `serving.scheduling.admission` adds to the kind of a model."

OF_THE_REGISTRY = ["load_seconds", "evictions", "models_loaded"]
"Metrics that a model of any kind has, because the registry may serve it."


def uses() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yields place, kind, name and labels of every `metrics.count("earshot_...", label=...)`."""
    for path in python_files(*PACKAGES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=method), args=[text, *_], keywords=keywords
                ) if method in CALLS and (name := name_of(text)).startswith("earshot_"):
                    labels = tuple(sorted(keyword.arg or "" for keyword in keywords))
                    yield f"{path.name}:{node.lineno}", CALLS[method], name, labels


def name_of(text: ast.expr) -> str:
    """Returns the name that an expression writes, with `*` for what it inserts; empty if it is no
    text."""
    match text:
        case ast.Constant(value=str(name)):
            return name
        case ast.JoinedStr(values=parts):
            return "".join(
                str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts
            )
        case _:
            return ""


def declared_names(name: str) -> list[str]:
    """Returns every name that a use may mean: those of all kinds of models that the scheduler or
    the registry serves."""
    if "*" not in name:
        return [name]
    scheduled = [policy.kind for policy in (ASR_SCHEDULING, *POLICIES.values())]
    outcomes = OUTCOMES if name == "earshot_*_*" else [name.removeprefix("earshot_*_")]
    kinds = get_args(EngineKind) if outcomes[0] in OF_THE_REGISTRY else scheduled
    return [f"earshot_{kind}_{outcome}" for kind in kinds for outcome in outcomes]


@pytest.mark.many  # files
def test_every_used_metric_is_declared_with_its_kind_and_labels() -> None:
    found = list(uses())
    assert len(found) >= 8
    wrong = [
        f"{where}: {kind} {name}{labels}"
        for where, kind, used, labels in found
        for name in declared_names(used)
        if name not in METRICS
        or METRICS[name].kind != kind
        or tuple(sorted(METRICS[name].labels)) != labels
    ]
    assert wrong == []


def test_a_new_kind_of_model_is_described_before_it_can_be_counted() -> None:
    """The registry counts in the `finally` of a model's task: what is missing there would end the
    server with all its models."""
    assert set(WORK) == set(get_args(EngineKind))
    metrics = PrometheusMetrics()
    for kind in get_args(EngineKind):
        metrics.gauge(f"earshot_{kind}_models_loaded", 1)
        metrics.count(f"earshot_{kind}_evictions")
        metrics.observe(f"earshot_{kind}_load_seconds", 0.1)


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
