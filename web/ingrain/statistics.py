"""Writes the statistics of models as Ingrain's `GET /metrics` does: the form is that of Triton's
statistics, in which numbers are texts."""

from collections.abc import Mapping

from serving.scheduling.statistics import CallStatistics, DurationSum

Json = Mapping[str, object]


def model_statistics(name: str, found: CallStatistics) -> Json:
    """Returns the statistics of one model, with names in snake_case."""
    nothing = DurationSum()
    return {
        "name": name,
        "version": "1",
        "last_inference": str(found.last_ms),
        "inference_count": str(found.success.count),
        "execution_count": str(found.calls.count),
        "inference_stats": {
            "success": _duration(found.success),
            "fail": _duration(found.failure),
            "queue": _duration(found.queue),
            "compute_input": _duration(nothing),
            "compute_infer": _duration(found.compute),
            "compute_output": _duration(nothing),
            "cache_hit": _duration(nothing),
            "cache_miss": _duration(nothing),
        },
        "batch_stats": [
            {
                "batch_size": str(size),
                "compute_input": _duration(nothing),
                "compute_infer": _duration(calls),
                "compute_output": _duration(nothing),
            }
            for size, calls in sorted(found.by_batch_size.items())
        ],
    }


def _duration(found: DurationSum) -> Json:
    return {"count": str(found.count), "ns": str(found.ns)}
