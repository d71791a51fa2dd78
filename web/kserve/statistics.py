"""Counts requests and their times per model, as Triton reports them."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.errors import EngineError, OverloadedError, first_error

FailureReason = Literal["REJECTED", "CANCELED", "BACKEND", "OTHER"]
FAILURE_REASONS: tuple[FailureReason, ...] = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
"""Reasons for which Triton counts failed requests. REJECTED: a queue is full or the server stops.
CANCELED: the client has left. BACKEND: the model failed. OTHER: mostly a wrong request."""

Stage = Literal["queue", "compute_input", "compute_infer", "compute_output"]
STAGES: tuple[Stage, ...] = ("queue", "compute_input", "compute_infer", "compute_output")


@dataclass(slots=True)
class Duration:
    """A number of requests, and the sum of their times."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Adds one request. Its time counts at least 1 ns: clients take 0 for no measurement."""
        self.count += 1
        self.ns += max(1, ns)

    def fields(self) -> dict[str, int]:
        """Returns both as fields of a message."""
        return {"count": self.count, "ns": self.ns}


def failure_reason(error: BaseException) -> FailureReason:
    """Returns Triton's name of the reason for which a request failed."""
    match first_error(error):
        case asyncio.CancelledError():
            return "CANCELED"
        case OverloadedError():
            return "REJECTED"
        case EngineError():
            return "BACKEND"
        case _:
            return "OTHER"


def _durations() -> dict[Stage, Duration]:
    return {stage: Duration() for stage in STAGES}


@dataclass(slots=True)
class ModelStatistics:
    """Statistics of one model under the name that its clients use."""

    last_inference_ms: int = 0
    "Unix time of the last request in ms."
    inferences: int = 0
    "Number of texts or recordings."
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    failures: Counter[FailureReason] = field(default_factory=Counter)
    "Failed requests by reason."
    stages: dict[Stage, Duration] = field(default_factory=_durations)
    batches: dict[int, dict[Stage, Duration]] = field(default_factory=dict)
    "Number of texts or recordings of a request -> times of the requests with that number."

    def add(self, batch_size: int, stages_ns: Mapping[Stage, int], now_ms: int) -> None:
        """Adds a request that succeeded. `now_ms`: Unix time in ms."""
        self.last_inference_ms = now_ms
        self.inferences += batch_size
        self.success.add(sum(stages_ns.values()))
        batch = self.batches.setdefault(batch_size, _durations())
        for stage in STAGES:
            self.stages[stage].add(stages_ns[stage])
            batch[stage].add(stages_ns[stage])

    def add_failure(self, ns: int, error: BaseException) -> None:
        """Adds a request that failed with this error after `ns`."""
        self.fail.add(ns)
        self.failures[failure_reason(error)] += 1

    def fields(self, name: str, version: str) -> dict[str, Any]:
        """Returns the statistics as fields of a message."""
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_inference_ms,
            "inference_count": self.inferences,
            "execution_count": self.success.count,
            "inference_stats": {
                "success": self.success.fields(),
                "fail": self.fail.fields(),
                **{stage: self.stages[stage].fields() for stage in STAGES},
            },
            "batch_stats": [
                {
                    "batch_size": size,
                    **{stage: batch[stage].fields() for stage in STAGES if stage != "queue"},
                }
                for size, batch in sorted(self.batches.items())
            ],
        }
