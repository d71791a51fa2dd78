"""Declares every metric of the server in one table; implements `core.ports.Metrics` for Prometheus.
Labels have few values: never a session, a call, a path with an id or text of a caller."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from aiohttp import web as aioweb
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from core.http.routes import Route
from engines.registry import EngineKind

STAGE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10)
"Buckets for stages of a turn: dense where an answer feels instant (300 ms) or slow (1 s)."

VOICE_STAGE_BUCKETS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"Buckets for stages of a voice: from a GPU to a long clause on a slow processor."

COMPUTE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"Buckets for recognition calls: from one frame to a long utterance on a slow processor."

LOAD_BUCKETS_S = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"Buckets for the loading of models: from PocketSphinx to a large Whisper on a cold disk."

PAUSE_BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.5)
"Buckets for the reaction to a barge-in: dense around one packet (20 ms); the target is 60 ms."

FACTOR_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5)
"Buckets for processing time divided by audio length. Above 1 a voice is slower than playback."

LOSS_BUCKETS = (0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"Buckets for packet loss as a share. Below 1 % it is inaudible; 10 % costs words."

NETWORK_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.4, 1)
"Buckets for round trip and jitter: from the same room to a phone on another continent."

BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"Buckets for the items of one call. A recogniser's batch size can be set to 64 at most."


@dataclass(frozen=True, slots=True)
class MetricDeclaration:
    """Declaration of one metric under its name in the code. Prometheus adds `_total` to
    counters."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    "Sentence for people who read the metrics."
    labels: tuple[str, ...] = ()
    "Names of the labels."
    buckets: tuple[float, ...] = ()
    "Upper limits of a histogram's buckets; empty for other kinds."


WORK: Mapping[EngineKind, str] = {
    "vad": "voice activity detection",
    "wake": "wake words",
    "endpoint": "end of turn detection",
    "asr": "recognition",
    "llm": "language",
    "tts": "speech",
    "embed": "embeddings",
    "rerank": "reranking",
    "clip": "embeddings of texts and images",
    "speaker": "speaker recognition",
    "codec": "audio codecs",
}
"Work of the models of each kind, a noun. A test checks that no kind is missing."


def _scheduling_metrics(kind: EngineKind) -> Mapping[str, MetricDeclaration]:
    """Returns the metrics of the scheduler for models of one kind."""
    prefix, work = f"earshot_{kind}", WORK[kind]
    return {
        f"{prefix}_queue_seconds": MetricDeclaration(
            "histogram",
            f"Time that a request waited for the {work} worker.",
            ("priority",),
            COMPUTE_BUCKETS_S,
        ),
        f"{prefix}_compute_seconds": MetricDeclaration(
            "histogram",
            f"Time to compute one {work} batch of this size.",
            ("batch",),
            COMPUTE_BUCKETS_S,
        ),
        f"{prefix}_batch_size": MetricDeclaration(
            "histogram", f"Requests in one {work} batch.", (), BATCH_BUCKETS
        ),
        f"{prefix}_refused": MetricDeclaration(
            "counter", f"Requests for {work} refused: the wait would be too long.", ("priority",)
        ),
        f"{prefix}_superseded": MetricDeclaration(
            "counter", f"Waiting requests for {work} replaced by newer ones.", ("priority",)
        ),
        f"{prefix}_expired": MetricDeclaration(
            "counter", f"Requests for {work} that the worker did not begin in time.", ("priority",)
        ),
    }


def _registry_metrics(kind: EngineKind) -> Mapping[str, MetricDeclaration]:
    """Returns the metrics of the registry for models of one kind. It may get models of any kind at
    any time."""
    prefix, work = f"earshot_{kind}", WORK[kind]
    return {
        f"{prefix}_models_loaded": MetricDeclaration(
            "gauge", f"Models for {work} that are in memory now."
        ),
        f"{prefix}_load_seconds": MetricDeclaration(
            "histogram", f"Time to load and warm up one model for {work}.", (), LOAD_BUCKETS_S
        ),
        f"{prefix}_evictions": MetricDeclaration(
            "counter", f"Models for {work} unloaded because another one needed their memory."
        ),
    }


METRICS: Mapping[str, MetricDeclaration] = {
    "earshot_stage_seconds": MetricDeclaration(
        "histogram", "Time that a turn spent in a stage.", ("stage",), STAGE_BUCKETS_S
    ),
    "earshot_response_latency_seconds": MetricDeclaration(
        "histogram",
        "Time from the end of the user's speech to the first sound or text.",
        (),
        STAGE_BUCKETS_S,
    ),
    "earshot_speculation": MetricDeclaration(
        "counter", "Answers begun before the turn was certainly over, by outcome.", ("outcome",)
    ),
    "earshot_speculation_wasted_seconds": MetricDeclaration(
        "histogram",
        "Work in pauses on recognition and answers that were not used.",
        ("kind",),
        STAGE_BUCKETS_S,
    ),
    "earshot_barge_in": MetricDeclaration(
        "counter", "Speech over an answer, by how it was judged.", ("verdict",)
    ),
    "earshot_barge_in_pause_seconds": MetricDeclaration(
        "histogram",
        "Time from the detection of speech over an answer to silence.",
        (),
        PAUSE_BUCKETS_S,
    ),
    "earshot_gate_hold_seconds": MetricDeclaration(
        "histogram",
        "Time for which an answer was ready before its turn was over.",
        (),
        STAGE_BUCKETS_S,
    ),
    "earshot_playout_underruns": MetricDeclaration(
        "counter", "Gaps in the sound of an answer, because the next sound was not ready."
    ),
    "earshot_llm_tokens": MetricDeclaration(
        "counter",
        "Tokens read and written by language models, if the model reports them.",
        ("kind",),
    ),
    "earshot_tts_realtime_factor": MetricDeclaration(
        "histogram",
        "Processing time of a clause divided by the length of its sound.",
        (),
        FACTOR_BUCKETS,
    ),
    "earshot_tts_stage_queue_seconds": MetricDeclaration(
        "histogram",
        "Time that a clause waited for a stage of a voice that has several.",
        ("stage",),
        VOICE_STAGE_BUCKETS_S,
    ),
    "earshot_tts_stage_compute_seconds": MetricDeclaration(
        "histogram",
        "Time that a stage of a voice took for a clause, with the others of its batch.",
        ("stage",),
        VOICE_STAGE_BUCKETS_S,
    ),
    "earshot_tts_stage_batch_size": MetricDeclaration(
        "histogram",
        "Mean number of clauses in a stage's steps while it computed a clause.",
        ("stage",),
        BATCH_BUCKETS,
    ),
    "earshot_tts_fallbacks": MetricDeclaration(
        "counter",
        "Clauses that the fallback voice spoke, by the error of the chosen voice.",
        ("code",),
    ),
    "earshot_tts_cache": MetricDeclaration(
        "counter", "Short clauses looked up in the cache of voices, by outcome.", ("outcome",)
    ),
    "earshot_tts_cache_bytes": MetricDeclaration(
        "gauge", "Size of the cached sound of frequent replies."
    ),
    "earshot_esphome_connect_failures": MetricDeclaration(
        "counter", "Failed attempts to connect to an ESPHome satellite, by the reason.", ("code",)
    ),
    "earshot_esphome_runs": MetricDeclaration(
        "counter", "Runs of ESPHome satellites by outcome.", ("outcome",)
    ),
    "earshot_willow_connections": MetricDeclaration(
        "gauge", "Connections of Willow devices that are open now."
    ),
    "earshot_willow_unknown_messages": MetricDeclaration(
        "counter", "Messages of Willow devices with an unknown type."
    ),
    "earshot_wyoming_connections": MetricDeclaration(
        "gauge", "Wyoming connections that are open now."
    ),
    "earshot_telephone_calls": MetricDeclaration("gauge", "Telephone calls that are open now."),
    "earshot_xiaozhi_connections": MetricDeclaration(
        "gauge", "Connections of xiaozhi boards that are open now."
    ),
    "earshot_xiaozhi_check_ins": MetricDeclaration(
        "counter",
        "Check-ins of xiaozhi boards at their start, by the board's standing.",
        ("standing",),
    ),
    "earshot_xiaozhi_bad_input": MetricDeclaration(
        "counter", "Data of xiaozhi boards that is neither Opus nor a valid message.", ("kind",)
    ),
    "earshot_sessions": MetricDeclaration("gauge", "Sessions that are open now."),
    "earshot_tasks": MetricDeclaration("gauge", "Tasks of the event loop that are alive now."),
    "earshot_turns": MetricDeclaration("counter", "Turns by how they ended.", ("status",)),
    "earshot_turns_continued": MetricDeclaration(
        "counter",
        "Speech soon after the end of a turn; joined: it was one turn, answered once.",
        ("outcome",),
    ),
    "earshot_tool_seconds": MetricDeclaration(
        "histogram", "Time to run one tool, by outcome.", ("outcome",), STAGE_BUCKETS_S
    ),
    "earshot_home_assistant_connected": MetricDeclaration(
        "gauge", "1 while Home Assistant is connected."
    ),
    "earshot_mqtt_connected": MetricDeclaration("gauge", "1 while the MQTT broker is connected."),
    "earshot_mqtt_commands": MetricDeclaration(
        "counter", "Commands by MQTT, by outcome: `done`, or the code of an error.", ("outcome",)
    ),
    "earshot_home_assistant_seconds": MetricDeclaration(
        "histogram",
        "Time for Home Assistant to answer a sentence, by outcome.",
        ("outcome",),
        STAGE_BUCKETS_S,
    ),
    "earshot_tool_errors": MetricDeclaration(
        "counter", "Tools that failed, by stable code.", ("code",)
    ),
    "earshot_worker_restarts": MetricDeclaration(
        "counter", "Model workers started again after they died.", ("kind",)
    ),
    "earshot_errors": MetricDeclaration("counter", "Errors by stable code.", ("code",)),
    "earshot_asr_queue_seconds": MetricDeclaration(
        "histogram",
        "Time that a request waited for a recognition worker.",
        ("priority",),
        COMPUTE_BUCKETS_S,
    ),
    "earshot_asr_compute_seconds": MetricDeclaration(
        "histogram",
        "Time to compute one recognition batch of this size.",
        ("batch",),
        COMPUTE_BUCKETS_S,
    ),
    "earshot_asr_batch_size": MetricDeclaration(
        "histogram", "Utterances or segments in one recognition batch.", (), BATCH_BUCKETS
    ),
    "earshot_asr_short_windows": MetricDeclaration(
        "counter",
        "Recognition windows below 30 s; unless accepted, final ones are decoded again in 30 s.",
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
    **_scheduling_metrics("embed"),
    **_scheduling_metrics("rerank"),
    **_scheduling_metrics("clip"),
    **_scheduling_metrics("speaker"),
    **_scheduling_metrics("codec"),
    **{
        name: declaration
        for kind in get_args(EngineKind)
        for name, declaration in _registry_metrics(kind).items()
    },
    "earshot_connection_loss_ratio": MetricDeclaration(
        "histogram",
        "Lost share of a call's latest packets, every 2 s. up: to the server, with late packets.",
        ("direction",),
        LOSS_BUCKETS,
    ),
    "earshot_connection_jitter_seconds": MetricDeclaration(
        "histogram", "Jitter of a call's packets, every 2 s.", ("direction",), NETWORK_BUCKETS_S
    ),
    "earshot_connection_round_trip_seconds": MetricDeclaration(
        "histogram",
        "Round trip time between a client and the server, every 2 s.",
        (),
        NETWORK_BUCKETS_S,
    ),
    "earshot_jitter_buffer_seconds": MetricDeclaration(
        "histogram",
        "Time that packets waited in the server's jitter buffers, every 2 s.",
        (),
        NETWORK_BUCKETS_S,
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
        self._metrics: dict[str, Counter | Gauge | Histogram] = {
            name: _create_metric(name, declaration, self._registry)
            for name, declaration in METRICS.items()
        }

    def count(self, name: str, value: float = 1, /, **labels: str) -> None:
        metric = self._find(name, labels)
        assert isinstance(metric, Counter), f"{name} is no counter"
        metric.inc(value)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        metric = self._find(name, labels)
        assert isinstance(metric, Histogram), f"{name} is no histogram"
        metric.observe(seconds)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        metric = self._find(name, labels)
        assert isinstance(metric, Gauge), f"{name} is no gauge"
        metric.set(value)

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _find(self, name: str, labels: Mapping[str, str]) -> Counter | Gauge | Histogram:
        if name not in self._metrics:
            raise KeyError(f"metric {name!r} is not declared in server/runtime/metrics.py")
        metric = self._metrics[name]
        return metric.labels(**labels) if labels else metric


def _create_metric(
    name: str, declaration: MetricDeclaration, registry: CollectorRegistry
) -> Counter | Gauge | Histogram:
    match declaration.kind:
        case "counter":
            return Counter(name, declaration.help, declaration.labels, registry=registry)
        case "gauge":
            return Gauge(name, declaration.help, declaration.labels, registry=registry)
        case "histogram":
            return Histogram(
                name,
                declaration.help,
                declaration.labels,
                buckets=declaration.buckets,
                registry=registry,
            )


def metrics_routes(metrics: PrometheusMetrics) -> tuple[Route, ...]:
    """Returns the route `GET /metrics`."""

    async def text(_: aioweb.Request) -> bytes:
        return metrics.exposition()

    return (metrics_route(metrics, text),)


def metrics_route(
    metrics: PrometheusMetrics, text: Callable[[aioweb.Request], Awaitable[bytes]]
) -> Route:
    """Returns the route `GET /metrics`. `text`: returns the answer to a request."""

    async def show(request: aioweb.Request) -> aioweb.Response:
        metrics.gauge("earshot_tasks", len(asyncio.all_tasks()))
        return aioweb.Response(
            body=await text(request), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    return Route(
        "GET",
        "/metrics",
        show,
        "Show counters and histograms for Prometheus.",
        "server",
        response_content_type="text/plain",
        scope="manage",
    )
