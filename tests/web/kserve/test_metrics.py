"""The text for Prometheus, read with Prometheus' own parser."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.errors import EngineCrashed, OverloadedError, RequestError
from web.kserve.metrics import COUNTERS, FAILURES, PENDING, ProcessorMeter, exposition
from web.kserve.statistics import FAILURE_REASONS, FailureReason, ModelStatistics, failure_reason

TIMES_NS = {"queue": 2000, "compute_input": 3000, "compute_infer": 50_999, "compute_output": 1}
MACHINE = {"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"}


def read(
    models: dict[str, ModelStatistics], pending: dict[str, int]
) -> dict[tuple[str, str, str], float]:
    """Name, model and reason of each sample -> its value."""
    text = exposition(models, pending, ProcessorMeter(), "1")
    return {
        # The parser adds the ending of Prometheus' own libraries.
        (
            sample.name.removesuffix("_total"),
            sample.labels.get("model", ""),
            sample.labels.get("reason", ""),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_metric_has_triton_s_name_and_the_value_of_its_model() -> None:
    statistics, odd = ModelStatistics(), ModelStatistics()
    statistics.add(3, TIMES_NS, 1)  # type: ignore[arg-type]
    statistics.add(1, TIMES_NS, 2)  # type: ignore[arg-type]
    odd.add_failure(7000, RequestError("no"))
    models = {"whisper": statistics, 'a "b"\\c': odd}
    samples = read(models, {"whisper": 5, 'a "b"\\c': 0})
    for model in models:
        names = {name for name, of, _ in samples if of == model}
        assert names == {*COUNTERS, FAILURES, PENDING}
        assert {reason for name, of, reason in samples if (name, of) == (FAILURES, model)} == {
            *FAILURE_REASONS
        }
    assert samples["nv_inference_request_success", "whisper", ""] == 2
    assert samples["nv_inference_count", "whisper", ""] == 4
    assert samples["nv_inference_exec_count", "whisper", ""] == 2
    assert samples["nv_inference_compute_infer_duration_us", "whisper", ""] == 101
    assert samples["nv_inference_queue_duration_us", "whisper", ""] == 4
    assert samples["nv_inference_request_duration_us", "whisper", ""] == 112
    assert samples["nv_inference_pending_request_count", "whisper", ""] == 5
    assert samples["nv_inference_request_failure", 'a "b"\\c', "OTHER"] == 1
    assert samples["nv_inference_request_failure", "whisper", "OTHER"] == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OverloadedError("full", retry_after_s=1), "REJECTED"),
        (asyncio.CancelledError(), "CANCELED"),
        (EngineCrashed("asr", "tiny", "gone"), "BACKEND"),
        (ExceptionGroup("tasks", [EngineCrashed("asr", "tiny", "gone")]), "BACKEND"),
        (RequestError("wrong"), "OTHER"),
    ],
)
def test_a_failure_has_triton_s_reason(error: BaseException, reason: FailureReason) -> None:
    assert failure_reason(error) == reason


def test_without_models_there_are_the_machine_s_metrics_alone() -> None:
    samples = read({}, {})
    assert {name for name, _, _ in samples} == MACHINE
    assert 0 <= samples["nv_cpu_utilization", "", ""] <= 1
    used, total = (samples[f"nv_cpu_memory_{which}_bytes", "", ""] for which in ("used", "total"))
    assert 0 < used <= total
