"""Metrics of a server, the chart, and the summary of a run."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.asr.corpus import CorpusClip
from bench.asr.measure import ClipResult, CorpusRun
from bench.asr.report.chart import chart, nice
from bench.asr.report.server_stats import CallStats, ServerStats, parsed, stats_text
from bench.asr.report.summary import summary, table
from bench.asr.report.wis_table import WisTableRow
from bench.asr.report.wis_table import table as wis_table
from bench.asr.streaming import StreamedTranscript

EXPOSITION = """\
# TYPE earshot_asr_queue_seconds histogram
earshot_asr_queue_seconds_count{priority="final"} 3.0
earshot_asr_queue_seconds_sum{priority="final"} 0.5
earshot_asr_queue_seconds_count{priority="partial"} 9.0
earshot_asr_queue_seconds_sum{priority="partial"} 1.0
# TYPE earshot_asr_compute_seconds histogram
earshot_asr_compute_seconds_count{batch="1"} 6.0
earshot_asr_compute_seconds_sum{batch="1"} 1.2
earshot_asr_compute_seconds_count{batch="8"} 2.0
earshot_asr_compute_seconds_sum{batch="8"} 0.8
# TYPE earshot_asr_rejected_words counter
earshot_asr_rejected_words_total 12.0
"""


def test_the_report_has_lines_for_the_metrics_of_the_server() -> None:
    stats = parsed(EXPOSITION)
    assert stats is not None
    assert stats.rejected_words == 12
    assert stats_text("whisper", stats).splitlines()[3:] == [
        "model name is whisper ",
        (
            "queue time 1.50  s, compute infer time 2.00  s, "
            "compute input time 0.00  s, compute output time 0.00  s "
        ),
        (
            "execuate inference with batch_size 1  total 6     times, "
            "total_infer_time 1200.00   ms, avg_infer_time 1200.00  /6    =200.00 ms, "
            "avg_infer_time_per_sample 1200.00  /6    /1=200.00 ms "
        ),
        (
            "execuate inference with batch_size 8  total 2     times, "
            "total_infer_time 800.00    ms, avg_infer_time 800.00   /2    =400.00 ms, "
            "avg_infer_time_per_sample 800.00   /2    /8=50.00 ms "
        ),
    ]


def test_only_counts_since_the_start_of_the_run_are_reported() -> None:
    before = ServerStats(1.0, 2.0, {1: CallStats(5, 2.0)})
    after = ServerStats(1.5, 3.0, {1: CallStats(5, 2.0), 2: CallStats(4, 1.0)}, 7)
    assert after.since(before) == ServerStats(0.5, 1.0, {2: CallStats(4, 1.0)}, 7)


def test_a_server_without_our_metrics_has_no_lines() -> None:
    assert parsed("# TYPE up gauge\nup 1\n") is None
    assert stats_text("whisper", None).endswith("The server has no metrics of Earshot. \n")


def test_the_chart_is_well_formed_and_has_the_values() -> None:
    picture = chart("<a> & b", [float(ms) for ms in range(1, 101)], 0.25, "request to answer")
    root = ET.fromstring(picture)
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "<a> & b" in texts
    assert "100 recordings, RTF 0.250; request to answer" in texts
    assert {"p50 50 ms", "p90 90 ms", "p95 95 ms", "p99 99 ms", "100 %", "100 ms"} <= set(texts)
    (curve,) = root.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for point in curve.attrib["points"].split()]
    assert len(points) == 201
    assert points == sorted(points, key=lambda point: (point[0], -point[1]))


@pytest.mark.parametrize(("value", "axis"), [(0.3, 1), (1.5, 2), (600, 1000), (1000, 1000), (3, 5)])
def test_an_axis_ends_with_a_round_number(value: float, axis: float) -> None:
    assert nice(value) == axis


def run_of(*answers: StreamedTranscript) -> CorpusRun:
    clips = [CorpusClip(str(number), Path("x"), "turn it on") for number in range(len(answers))]
    return CorpusRun(
        [ClipResult(clip, 2.0, answer) for clip, answer in zip(clips, answers, strict=True)], 1.0
    )


def test_a_summary_counts_lost_recordings_as_errors_but_not_as_latencies() -> None:
    found = summary(
        run_of(
            StreamedTranscript("Turn it on.", 500.0, 300.0, ("turn", "turn in")),
            StreamedTranscript("", 9000.0, error="no final text"),
        ),
        "en",
    )
    assert (found["recordings"], found["failed"]) == (2, 1)
    assert found["rtf"] == 0.25
    assert found["wer"]["percent"] == 50.0
    assert found["wer_raw"]["percent"] == pytest.approx(500 / 6)
    assert found["latency_ms"] == {"p50": 500, "p90": 500, "p95": 500, "p99": 500}
    assert found["first_partial_ms"]["p50"] == 300
    assert found["partial_words_kept"] == pytest.approx(2 / 3)
    assert "| WER, Whisper's normaliser | 50.00 % (0 ins, 3 del, 0 sub of 6) |" in table(found, "x")


def test_utterances_without_text_are_counted() -> None:
    found = summary(
        run_of(
            StreamedTranscript("turn it", 100.0, utterances=2, empty_utterances=1),
            StreamedTranscript("", 100.0, utterances=1, empty_utterances=1),
        ),
        "en",
        rejected_words=4,
    )
    assert (found["utterances"], found["empty_utterances"], found["empty_recordings"]) == (3, 2, 1)
    shown = table(found, "x")
    assert "| utterances, without text | 3, 2 |" in shown
    assert "| recordings with speech, but no text | 1 |" in shown
    assert "| words that were decoded and rejected as noise | 4 |" in shown


def test_a_run_of_uploads_reports_no_partials() -> None:
    found = summary(run_of(StreamedTranscript("turn it on", 100.0)), "en")
    assert found["first_partial_ms"] is None
    assert found["partial_words_kept"] is None
    assert "partial" not in table(found, "request to answer")
    assert "rejected" not in table(found, "request to answer")
    assert "utterances" not in table(found, "request to answer")


def test_the_table_has_the_columns_of_willow() -> None:
    rows = [WisTableRow("tiny", 3.84, 46.0), WisTableRow("tiny", 29.248, 135.4)]
    assert wis_table(rows) == (
        "| Model | Speech Duration (ms) | Inference Time (ms) | Realtime Multiple |\n"
        "| --- | --- | --- | --- |\n"
        "| tiny | 3840 | 46 | 83x |\n"
        "| tiny | 29248 | 135 | 216x |"
    )
