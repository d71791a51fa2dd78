"""`stats_summary-NAME.txt`: what the server counted during the run, from its `/metrics`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import ClientError, ClientSession
from prometheus_client.parser import text_string_to_metric_families

from bench.client.http import Address

QUEUE = "earshot_asr_queue_seconds_sum"
"Metric: seconds that requests waited for a worker."

COMPUTE = "earshot_asr_compute_seconds_sum"
"Metric: seconds that workers computed."

CALLS = "earshot_asr_compute_seconds_count"
"Metric: number of calls of workers."

REJECTED_WORDS = "earshot_asr_rejected_words_total"
"Metric: words that were rejected as noise."

BATCH_LABEL = "batch"
"Label of the computing times: number of items that were computed at once."

HEADER = (
    "Read from the server's /metrics before and after; other clients of the server count too. ",
    "Input and output are part of the infer time; they are not measured separately. ",
    "",
)


@dataclass(frozen=True, slots=True)
class CallStats:
    """All calls of one batch size."""

    count: int
    infer_s: float


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Counts since the server's start, or between two moments."""

    queue_s: float = 0.0
    infer_s: float = 0.0
    calls: Mapping[int, CallStats] = field(default_factory=dict)
    "Calls by batch size."
    rejected_words: int = 0
    "Words of sessions that were decoded and then rejected as noise."

    def since(self, before: "ServerStats") -> "ServerStats":
        """Returns the difference to earlier counts."""
        none = CallStats(0, 0.0)
        calls = {
            size: CallStats(
                now.count - before.calls.get(size, none).count,
                now.infer_s - before.calls.get(size, none).infer_s,
            )
            for size, now in self.calls.items()
        }
        made = {size: call for size, call in calls.items() if call.count}
        return ServerStats(
            self.queue_s - before.queue_s,
            self.infer_s - before.infer_s,
            made,
            self.rejected_words - before.rejected_words,
        )


def parsed(exposition: str) -> ServerStats | None:
    """Reads Prometheus' text format; returns None when it is not from an Earshot server."""
    queue_s: float | None = None
    infer_s = 0.0
    rejected_words = 0
    counts: dict[int, float] = {}
    seconds: dict[int, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == QUEUE:
                queue_s = (queue_s or 0.0) + sample.value
            infer_s += sample.value if sample.name == COMPUTE else 0.0
            rejected_words += round(sample.value) if sample.name == REJECTED_WORDS else 0
            if sample.name in {CALLS, COMPUTE} and BATCH_LABEL in sample.labels:
                into = counts if sample.name == CALLS else seconds
                size = int(sample.labels[BATCH_LABEL])
                into[size] = into.get(size, 0.0) + sample.value
    if queue_s is None:
        return None
    calls = {
        size: CallStats(round(count), seconds.get(size, 0.0)) for size, count in counts.items()
    }
    return ServerStats(queue_s, infer_s, calls, rejected_words)


async def read(address: Address) -> ServerStats | None:
    """Reads the server's metrics; returns None when it has none, or others than Earshot's."""
    async with ClientSession(headers=address.headers) as http:
        try:
            async with http.get(f"{address.url}/metrics", ssl=address.ssl()) as response:
                return parsed(await response.text()) if response.ok else None
        except (ClientError, TimeoutError, ValueError, UnicodeDecodeError):
            return None


def stats_text(model: str, stats: ServerStats | None) -> str:
    """Returns the Triton client's lines for the model and for each batch size."""
    lines: Sequence[str] = HEADER
    if stats is None:
        lines = (*lines, "The server has no metrics of Earshot. ")
    else:
        lines = (
            *lines,
            f"model name is {model} ",
            (
                f"queue time {stats.queue_s:<5.2f} s, compute infer time {stats.infer_s:<5.2f} s, "
                f"compute input time {0:<5.2f} s, compute output time {0:<5.2f} s "
            ),
            *(_row(size, calls) for size, calls in sorted(stats.calls.items())),
        )
    return "".join(f"{line}\n" for line in lines)


def _row(size: int, calls: CallStats) -> str:
    """Keeps a spelling mistake that readers of these files look for."""
    total_ms, count = calls.infer_s * 1000, calls.count
    return (
        f"execuate inference with batch_size {size:<2} total {count:<5} times, "
        f"total_infer_time {total_ms:<9.2f} ms, "
        f"avg_infer_time {total_ms:<9.2f}/{count:<5}={total_ms / count:.2f} ms, "
        f"avg_infer_time_per_sample {total_ms:<9.2f}/{count:<5}/{size}"
        f"={total_ms / count / size:.2f} ms "
    )
