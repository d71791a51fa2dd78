"""Payloads between a gateway and the model host.

Both speak the worker protocol (`engines.runtime.worker.protocol`), so for a gateway the host is one
more worker: a connection for each model, a LoadRequest, then calls. The options of the LoadRequest
are a `PoolSpec` for recognisers, and a `ProcessSpec` for voices and language models, whose calls
reach their worker as they are. The calls to a pool:

| method | arguments | result |
|---|---|---|
| `submit` | `SubmitArguments` | `AsrResult` |
| `promote` | the id of an utterance | None |
| `forget` | the id of an utterance | None |
| `watch` | None | a stream of `PoolState`, without an end |

A connection may also begin with the call `metrics`, whose result is a text in Prometheus' format.
"""

from typing import Any

from msgspec import Struct

from engines.runtime.worker.payloads import AsrItemMessage
from serving.scheduling.statistics import CallStatistics

SUBMIT, PROMOTE, WATCH, METRICS = "submit", "promote", "watch", "metrics"
"Names of the methods that only the host has."


class PoolSpec(Struct, frozen=True):
    """How a recogniser is run."""

    called: str
    "Name of the model in logs and errors."
    workers: list[dict[str, Any]]
    "Options of the engine for each worker process."
    lanes: int
    "Number of calls that each worker computes at once."


class ProcessSpec(Struct, frozen=True):
    """How a voice or a language model is run."""

    options: dict[str, Any]
    "Options of the engine."
    max_calls: int | None = None
    "Most calls at once, of all gateways together; None: the engine has no such limit."


class SubmitArguments(Struct, frozen=True):
    """Arguments of `Scheduler.submit`."""

    item: AsrItemMessage
    priority: int
    deadline_s: float | None = None


class PoolState(Struct, frozen=True):
    """State of a pool, which the host sends to each gateway when it has changed."""

    is_ready: bool
    "True if a worker is running now."
    waiting: int
    "Number of requests of all gateways that no worker has taken."
    wait_s: dict[int, float]
    "Priority -> expected wait of a new request, in seconds."
    resident_mb: int
    "Memory of the worker processes, in MB."
    statistics: CallStatistics
