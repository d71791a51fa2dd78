"""Writes the statistics of KServe's models in Prometheus' text format, with Triton's names.

The names are those of Triton's metrics page (`docs/user_guide/metrics.md`). They end without the
`_total` that Prometheus' own libraries add, so the text is written here.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import psutil
from aiohttp import hdrs
from aiohttp import web as aioweb

from core.http.routes import Route
from web.kserve.settings import KserveSettings
from web.kserve.statistics import FAILURE_REASONS, STAGES, ModelStatistics, Stage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Counter = Callable[[ModelStatistics], int]
"Function that returns the value of a counter for one model."


def _us(ns: int) -> int:
    return ns // 1000


def _stage_us(stage: Stage) -> Counter:
    return lambda statistics: _us(statistics.stages[stage].ns)


COUNTERS: Mapping[str, tuple[str, Counter]] = {
    "nv_inference_request_success": (
        "Number of successful requests",
        lambda statistics: statistics.success.count,
    ),
    "nv_inference_count": (
        "Number of texts or recordings that were computed",
        lambda statistics: statistics.inferences,
    ),
    "nv_inference_exec_count": (
        "Number of requests that were computed",
        lambda statistics: statistics.success.count,
    ),
    "nv_inference_request_duration_us": (
        "Time of successful requests in microseconds",
        lambda statistics: _us(statistics.success.ns),
    ),
    **{
        f"nv_inference_{stage}_duration_us": (
            f"Time of the stage {stage} in microseconds",
            _stage_us(stage),
        )
        for stage in STAGES
    },
}
"Name of a counter -> help text, and its value."

FAILURES = "nv_inference_request_failure"
"Name of the counter of failed requests, which has one sample for each reason."

PENDING = "nv_inference_pending_request_count"
"Name of the number of waiting requests, by which clusters add and remove servers."


class ProcessorMeter:
    """Measures how busy the machine's processor was between two readings."""

    def __init__(self) -> None:
        self._last_busy_s, self._last_s = _processor_s()

    def busy_share(self) -> float:
        """Returns the busy share of the time since the last reading, 0 to 1."""
        busy_s, all_s = _processor_s()
        share = (busy_s - self._last_busy_s) / max(all_s - self._last_s, 1e-9)
        self._last_busy_s, self._last_s = busy_s, all_s
        return min(1.0, max(0.0, share))


def exposition(
    models: Mapping[str, ModelStatistics],
    pending: Mapping[str, int],
    processor: ProcessorMeter,
    version: str,
) -> str:
    """Returns all metrics. `pending`: number of waiting requests by model. `version`: version of
    each model."""
    lines = (*_lines(models, pending, version), *_machine_lines(processor))
    return "".join(f"{line}\n" for line in lines)


def _lines(
    models: Mapping[str, ModelStatistics], pending: Mapping[str, int], version: str
) -> Iterator[str]:
    labels = {model: f'model="{_escaped(model)}",version="{version}"' for model in models}
    for name, (text, value_of) in COUNTERS.items():
        yield from _head(name, text, "counter")
        for model, statistics in models.items():
            yield f"{name}{{{labels[model]}}} {value_of(statistics)}"
    yield from _head(FAILURES, "Number of failed requests", "counter")
    for model, statistics in models.items():
        for reason in FAILURE_REASONS:
            count = statistics.failures[reason]
            yield f'{FAILURES}{{{labels[model]},reason="{reason}"}} {count}'
    yield from _head(PENDING, "Number of requests that wait for a model", "gauge")
    for model, count in pending.items():
        yield f"{PENDING}{{{labels[model]}}} {count}"


def _machine_lines(processor: ProcessorMeter) -> Iterator[str]:
    memory = psutil.virtual_memory()
    gauges = {
        "nv_cpu_utilization": ("Busy share of the processor, 0 to 1", processor.busy_share()),
        "nv_cpu_memory_total_bytes": ("Memory of the machine in bytes", memory.total),
        "nv_cpu_memory_used_bytes": ("Memory in use in bytes", memory.total - memory.available),
    }
    for name, (text, value) in gauges.items():
        yield from _head(name, text, "gauge")
        yield f"{name} {value}"


def _head(name: str, text: str, kind: Literal["counter", "gauge"]) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _processor_s() -> tuple[float, float]:
    """Returns the seconds that the processor was busy since the machine's start, and all."""
    times = psutil.cpu_times()
    all_s = sum(times)
    return all_s - times.idle - getattr(times, "iowait", 0.0), all_s


def _escaped(text: str) -> str:
    """Returns a label's value as the format writes it. Folders of models may have any name."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def metrics_routes(show: Callable[[], str], settings: KserveSettings) -> tuple[Route, ...]:
    """Returns the route of the metrics port. `show`: returns the text. `settings`: clients that
    need no key."""

    async def answer(_: aioweb.Request) -> aioweb.Response:
        return aioweb.Response(body=show().encode(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

    return (
        Route(
            "GET",
            "/metrics",
            answer,
            "Show metrics of KServe's models for Prometheus, with Triton's names.",
            "kserve",
            response_content_type="text/plain",
            admits_peer=settings.admits,
            scope="models",
        ),
    )
