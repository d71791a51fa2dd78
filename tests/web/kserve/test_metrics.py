"""The text for Prometheus, read with Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from web.kserve.metrics import COUNTERS, exposition
from web.kserve.statistics import ModelStatistics

TIMES_NS = {"queue": 2000, "compute_input": 3000, "compute_infer": 50_999, "compute_output": 1}


def test_each_counter_has_triton_s_name_and_the_value_of_its_model() -> None:
    statistics, odd = ModelStatistics(), ModelStatistics()
    statistics.add(3, TIMES_NS, 1)  # type: ignore[arg-type]
    statistics.add(1, TIMES_NS, 2)  # type: ignore[arg-type]
    odd.fail.add(7000)
    text = exposition({"whisper": statistics, 'a "b"\\c': odd}, "1")
    samples = {
        # The parser adds the ending of Prometheus' own libraries.
        (sample.name.removesuffix("_total"), sample.labels["model"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert {name for name, _ in samples} == set(COUNTERS)
    assert {name for name, model in samples if model == 'a "b"\\c'} == set(COUNTERS)
    assert samples["nv_inference_request_success", "whisper"] == 2
    assert samples["nv_inference_count", "whisper"] == 4
    assert samples["nv_inference_exec_count", "whisper"] == 2
    assert samples["nv_inference_compute_infer_duration_us", "whisper"] == 101
    assert samples["nv_inference_queue_duration_us", "whisper"] == 4
    assert samples["nv_inference_request_duration_us", "whisper"] == 112
    assert samples["nv_inference_request_failure", 'a "b"\\c'] == 1
    assert samples["nv_inference_request_failure", "whisper"] == 0


def test_before_the_first_request_there_is_no_sample() -> None:
    families = list(text_string_to_metric_families(exposition({}, "1")))
    assert [sample for family in families for sample in family.samples] == []
