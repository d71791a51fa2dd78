"""The report files, byte for byte as the Triton ASR client writes them for the same results."""

from bench.asr.error_rates import ScoredText, characters, words
from bench.asr.report.triton_files import errs_text, recogs_text, rtf_text

RESULTS = [
    ScoredText("b", words("turn on the light"), words("turn the lights")),
    ScoredText("a", words("what time is it"), words("what time is it now")),
]
"One deletion and one substitution apart, and one insertion."

ERRS = (
    "%WER = 37.50\n"
    "Errors: 1 insertions, 1 deletions, 1 substitutions, over 8 reference words (6 correct)\n"
    "Search below for sections starting with PER-UTT DETAILS:, SUBSTITUTIONS:, DELETIONS:, "
    "INSERTIONS:, PER-WORD STATS:\n"
    "\n"
    "PER-UTT DETAILS: corr or (ref->hyp)  \n"
    "a:\twhat time is it (*->now)\n"
    "b:\tturn (on->*) the (light->lights)\n"
    "\n"
    "SUBSTITUTIONS: count ref -> hyp\n"
    "1   light -> lights\n"
    "\n"
    "DELETIONS: count ref\n"
    "1   on\n"
    "\n"
    "INSERTIONS: count hyp\n"
    "1   now\n"
    "\n"
    "PER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp\n"
    "on   0 1 1 0\n"
    "now   0 1 0 1\n"
    "lights   0 1 0 1\n"
    "light   0 1 1 0\n"
    "what   1 0 1 1\n"
    "turn   1 0 1 1\n"
    "time   1 0 1 1\n"
    "the   1 0 1 1\n"
    "it   1 0 1 1\n"
    "is   1 0 1 1\n"
)


def test_word_errors_are_written_like_tritons() -> None:
    assert errs_text(RESULTS) == ERRS


def test_character_errors_have_their_own_file() -> None:
    text = errs_text([ScoredText("a", characters("get on"), characters("got in it"))], "CER")
    assert text.startswith(
        "%CER = 80.00\n"
        "Errors: 2 insertions, 0 deletions, 2 substitutions, over 5 reference words (3 correct)\n"
    )


def test_adjacent_errors_share_a_bracket() -> None:
    text = errs_text(
        [ScoredText("a", words("a b c"), words("a x y z c")), ScoredText("b", words("q"), [])]
    )
    assert "a:\ta (b->x y z) c\nb:\t(q->*)\n" in text


def test_references_and_transcripts_are_written_like_tritons() -> None:
    assert recogs_text(RESULTS) == (
        "a:\tref=['what', 'time', 'is', 'it']\n"
        "a:\thyp=['what', 'time', 'is', 'it', 'now']\n"
        "b:\tref=['turn', 'on', 'the', 'light']\n"
        "b:\thyp=['turn', 'the', 'lights']\n"
    )


def test_real_time_factor_and_latencies_are_written_like_tritons() -> None:
    assert rtf_text(7200.0, 36.0, [0.1, 0.2, 0.3, 0.4, 0.5]) == (
        "RTF: 0.0050\n"
        "total_duration: 7200.000 seconds\n"
        "(2.00 hours)\n"
        "processing time: 36.000 seconds (0.01 hours)\n"
        "latency_variance: 20.00\n"
        "latency_50_percentile_ms: 300.00\n"
        "latency_90_percentile_ms: 460.00\n"
        "latency_95_percentile_ms: 480.00\n"
        "latency_99_percentile_ms: 496.00\n"
        "average_latency_ms: 300.00\n"
    )
