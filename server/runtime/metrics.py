"""Declares every metric of the server in one table; implements `core.ports.Metrics` for Prometheus.
Labels have few values: never a session, a call, a path with an id or text of a caller."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from aiohttp import web as aioweb
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from core.http.routes import Route

STAGE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10)
"Stages of a turn. Dense where an answer feels instant (under 300 ms) or slow (over 1 s)."

COMPUTE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"Recognition calls: from a decoded frame to a long utterance on a slow processor."

LOAD_BUCKETS_S = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"Model loads: from PocketSphinx to a large Whisper from a cold disk."

PAUSE_BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.5)
"Reaction to a barge-in. Dense around the 20 ms of one packet; the target is 60 ms."

FACTOR_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5)
"Processing time divided by audio length. Above 1 a voice cannot keep up with playback."

LOSS_BUCKETS = (0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"Packet loss as a share. Below 1 % it is inaudible; 10 % costs words."

NETWORK_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.4, 1)
"Round trip and jitter: from the same room to a phone on the other side of the world."

BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"Items in one call. A recogniser's batch size can be set to 64 at most."


@dataclass(frozen=True, slots=True)
class MetricDeclaration:
    """Declaration of one metric under its name in the code. Prometheus adds `_total` to
    counters."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS: Mapping[str, MetricDeclaration] = {
    "earshot_stage_seconds": MetricDeclaration(
        "histogram", "Time a turn spent in a stage.", ("stage",), STAGE_BUCKETS_S
    ),
    "earshot_response_latency_seconds": MetricDeclaration(
        "histogram", "End of the user's speech to the first sound or text.", (), STAGE_BUCKETS_S
    ),
    "earshot_speculation": MetricDeclaration(
        "counter", "Answers begun before the turn was over, by what became of them.", ("outcome",)
    ),
    "earshot_speculation_wasted_seconds": MetricDeclaration(
        "histogram",
        "How long was worked in pauses on what nobody got.",
        ("kind",),
        STAGE_BUCKETS_S,
    ),
    "earshot_barge_in": MetricDeclaration(
        "counter", "Speech over an answer, by what it was taken for.", ("verdict",)
    ),
    "earshot_barge_in_pause_seconds": MetricDeclaration(
        "histogram", "Speech over an answer: from its detection to silence.", (), PAUSE_BUCKETS_S
    ),
    "earshot_gate_hold_seconds": MetricDeclaration(
        "histogram", "How long an answer was ready before its turn was over.", (), STAGE_BUCKETS_S
    ),
    "earshot_playout_underruns": MetricDeclaration(
        "counter", "Gaps in the sound of an answer: the next was not ready."
    ),
    "earshot_llm_tokens": MetricDeclaration(
        "counter", "Tokens read and written by language models, where they say.", ("kind",)
    ),
    "earshot_tts_realtime_factor": MetricDeclaration(
        "histogram", "Time spent on a clause over its length as sound.", (), FACTOR_BUCKETS
    ),
    "earshot_tts_fallbacks": MetricDeclaration(
        "counter", "Clauses that the spare voice spoke, by why the first did not.", ("code",)
    ),
    "earshot_tts_cache": MetricDeclaration(
        "counter", "Short clauses asked of the voice, by whether they were known.", ("outcome",)
    ),
    "earshot_tts_cache_bytes": MetricDeclaration(
        "gauge", "Sound that is kept of frequent replies."
    ),
    "earshot_willow_connections": MetricDeclaration("gauge", "Sockets of Willow devices open now."),
    "earshot_willow_unknown_messages": MetricDeclaration(
        "counter", "Messages of Willow devices that mean nothing here."
    ),
    "earshot_wyoming_connections": MetricDeclaration(
        "gauge", "Wyoming connections that are open now."
    ),
    "earshot_xiaozhi_connections": MetricDeclaration(
        "gauge", "Connections of xiaozhi boards, open now."
    ),
    "earshot_xiaozhi_check_ins": MetricDeclaration(
        "counter", "Starts of xiaozhi boards, by the board's standing.", ("standing",)
    ),
    "earshot_xiaozhi_bad_input": MetricDeclaration(
        "counter", "What xiaozhi boards sent that is no Opus or no message.", ("kind",)
    ),
    "earshot_sessions": MetricDeclaration("gauge", "Sessions that are open now."),
    "earshot_tasks": MetricDeclaration("gauge", "Tasks of the event loop that are alive now."),
    "earshot_turns": MetricDeclaration("counter", "Turns by how they ended.", ("status",)),
    "earshot_tool_seconds": MetricDeclaration(
        "histogram", "Running one tool, by how that ended.", ("outcome",), STAGE_BUCKETS_S
    ),
    "earshot_home_assistant_connected": MetricDeclaration(
        "gauge", "1 while Home Assistant is connected."
    ),
    "earshot_home_assistant_seconds": MetricDeclaration(
        "histogram", "Sentences handed to Home Assistant.", ("outcome",), STAGE_BUCKETS_S
    ),
    "earshot_tool_errors": MetricDeclaration(
        "counter", "Tools that failed, by stable code.", ("code",)
    ),
    "earshot_worker_restarts": MetricDeclaration(
        "counter", "Model workers started again after they died.", ("kind",)
    ),
    "earshot_errors": MetricDeclaration("counter", "Errors by stable code.", ("code",)),
    "earshot_asr_queue_seconds": MetricDeclaration(
        "histogram", "Wait for a recognition worker.", ("priority",), COMPUTE_BUCKETS_S
    ),
    "earshot_asr_compute_seconds": MetricDeclaration(
        "histogram", "Computing one recognition batch of this size.", ("batch",), COMPUTE_BUCKETS_S
    ),
    "earshot_asr_batch_size": MetricDeclaration(
        "histogram", "Utterances or parts in one recognition batch.", (), BATCH_BUCKETS
    ),
    "earshot_asr_short_windows": MetricDeclaration(
        "counter",
        "Recognition windows below 30 s; unless accepted, decoded again in 30 s, by the reason.",
        ("outcome",),
    ),
    "earshot_asr_rejected_words": MetricDeclaration(
        "counter", "Words of sessions that were decoded and then rejected as noise."
    ),
    "earshot_asr_refused": MetricDeclaration(
        "counter", "Recognition requests refused: the wait would be too long.", ("priority",)
    ),
    "earshot_asr_superseded": MetricDeclaration(
        "counter", "Waiting requests replaced by newer ones of the same utterance.", ("priority",)
    ),
    "earshot_asr_expired": MetricDeclaration(
        "counter", "Recognition requests that no worker began in time.", ("priority",)
    ),
    "earshot_asr_models_loaded": MetricDeclaration(
        "gauge", "Recognition models that are in memory now."
    ),
    "earshot_asr_load_seconds": MetricDeclaration(
        "histogram", "Loading and warming one recognition model.", (), LOAD_BUCKETS_S
    ),
    "earshot_asr_evictions": MetricDeclaration(
        "counter", "Recognition models unloaded because another needed their room."
    ),
    "earshot_connection_loss_ratio": MetricDeclaration(
        "histogram",
        "Lost share of a call's latest packets, every 2 s; up: to us, late ones too.",
        ("direction",),
        LOSS_BUCKETS,
    ),
    "earshot_connection_jitter_seconds": MetricDeclaration(
        "histogram", "Jitter of a call's packets, every 2 s.", ("direction",), NETWORK_BUCKETS_S
    ),
    "earshot_connection_round_trip_seconds": MetricDeclaration(
        "histogram", "Round trip between a client and us, every 2 s.", (), NETWORK_BUCKETS_S
    ),
    "earshot_jitter_buffer_seconds": MetricDeclaration(
        "histogram", "How long our jitter buffers held packets, every 2 s.", (), NETWORK_BUCKETS_S
    ),
    "earshot_http_requests": MetricDeclaration(
        "counter", "Requests by route and status.", ("route", "status")
    ),
}
"Metric name in the code -> its declaration."


class PrometheusMetrics:
    """Implements `core.ports.Metrics`. An undeclared name or wrong labels are a bug, and raise."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._made: dict[str, Counter | Gauge | Histogram] = {
            name: _make(name, declared, self._registry) for name, declared in METRICS.items()
        }

    def count(self, name: str, value: float = 1, /, **labels: str) -> None:
        metric = self._of(name, labels)
        assert isinstance(metric, Counter), f"{name} is no counter"
        metric.inc(value)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        metric = self._of(name, labels)
        assert isinstance(metric, Histogram), f"{name} is no histogram"
        metric.observe(seconds)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        metric = self._of(name, labels)
        assert isinstance(metric, Gauge), f"{name} is no gauge"
        metric.set(value)

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _of(self, name: str, labels: Mapping[str, str]) -> Counter | Gauge | Histogram:
        if name not in self._made:
            raise KeyError(f"metric {name!r} is not declared in server/runtime/metrics.py")
        metric = self._made[name]
        return metric.labels(**labels) if labels else metric


def _make(
    name: str, declared: MetricDeclaration, registry: CollectorRegistry
) -> Counter | Gauge | Histogram:
    match declared.kind:
        case "counter":
            return Counter(name, declared.help, declared.labels, registry=registry)
        case "gauge":
            return Gauge(name, declared.help, declared.labels, registry=registry)
        case "histogram":
            return Histogram(
                name, declared.help, declared.labels, buckets=declared.buckets, registry=registry
            )


def metrics_routes(metrics: PrometheusMetrics) -> tuple[Route, ...]:
    """Returns the route `GET /metrics`."""

    async def show(_: aioweb.Request) -> aioweb.Response:
        metrics.gauge("earshot_tasks", len(asyncio.all_tasks()))
        return aioweb.Response(
            body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    return (
        Route(
            "GET",
            "/metrics",
            show,
            "Show counters and histograms for Prometheus.",
            "server",
            response_content_type="text/plain",
        ),
    )
