"""Writes the statistics of KServe's models in Prometheus' text format, with Triton's names.

The names are those of Triton's metrics page (`docs/user_guide/metrics.md`). They end without the
`_total` that Prometheus' own libraries add, so the text is written here.
"""

from collections.abc import Callable, Iterator, Mapping

from aiohttp import hdrs
from aiohttp import web as aioweb

from core.http.routes import Route
from web.kserve.settings import KserveSettings
from web.kserve.statistics import STAGES, ModelStatistics, Stage

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
    "nv_inference_request_failure": (
        "Number of failed requests",
        lambda statistics: statistics.fail.count,
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


def exposition(models: Mapping[str, ModelStatistics], version: str) -> str:
    """Returns the counters of all models that had a request. `version`: version of each model."""
    return "".join(f"{line}\n" for line in _lines(models, version))


def _lines(models: Mapping[str, ModelStatistics], version: str) -> Iterator[str]:
    for name, (text, value_of) in COUNTERS.items():
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} counter"
        for model, statistics in models.items():
            labels = f'model="{_escaped(model)}",version="{version}"'
            yield f"{name}{{{labels}}} {value_of(statistics)}"


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
            "Show counters of KServe's models for Prometheus, with Triton's names.",
            "kserve",
            response_content_type="text/plain",
            admits_peer=settings.admits,
            scope="models",
        ),
    )
