"""The Grafana dashboard asks for metrics that the server has, and shows all of them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from server.runtime.metrics import METRICS
from tests.shared import ROOT

DASHBOARD = json.loads((ROOT / "deploy/grafana/earshot.json").read_text(encoding="utf-8"))

SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
"Kind of a metric -> endings that Prometheus adds to its name."

SERIES = {
    name + suffix: metric for name, metric in METRICS.items() for suffix in SUFFIXES[metric.kind]
}
"Name of a series in Prometheus -> the metric it belongs to."

ADDED_LABELS = {"job", "instance", "le"}
"Labels that Prometheus adds."


def _panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


QUERIES = [(panel["title"], target) for panel in _panels() for target in panel["targets"]]


@pytest.mark.parametrize(("title", "target"), QUERIES, ids=lambda value: str(value)[:40])
def test_a_query_names_existing_series_and_labels(title: str, target: dict[str, str]) -> None:
    query, legend = target["expr"], target["legendFormat"]
    names = re.findall(r"\b(?:earshot|process)_\w+", query)
    assert names, title
    for name in names:
        assert name in SERIES or name.startswith("process_"), f"{title}: no series {name}"
    known = {label for name in names if name in SERIES for label in SERIES[name].labels}
    grouped = {
        label for labels in re.findall(r"by \(([^)]*)\)", query) for label in labels.split(", ")
    }
    assert grouped <= known | ADDED_LABELS, title
    assert set(re.findall(r"{{(\w+)}}", legend)) <= grouped, f"{title}: {legend}"
    assert query.count("(") == query.count(")")
    assert query.count('job=~"$job", instance=~"$instance"') == len(names), title


KINDS_WITHOUT_A_REGISTRY = ("vad", "wake", "endpoint", "llm", "tts")
"Kinds of which the registry holds no models: their load, eviction and number stay 0."


def test_every_metric_of_the_server_is_shown() -> None:
    shown = " ".join(target["expr"] for _, target in QUERIES)
    unused = {
        f"earshot_{kind}_{count}"
        for kind in KINDS_WITHOUT_A_REGISTRY
        for count in ("models_loaded", "load_seconds", "evictions")
    }
    assert unused < METRICS.keys()
    assert not [
        name
        for name, metric in METRICS.items()
        if name not in unused
        and not any(f"{name}{suffix}" in shown for suffix in SUFFIXES[metric.kind])
    ]


def test_no_panel_covers_another_and_each_is_explained() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert all(panel["description"].endswith(".") for panel in _panels())
    identities = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identities)) == len(identities)
