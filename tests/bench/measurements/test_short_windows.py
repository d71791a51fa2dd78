"""Rows of the table that compares short windows with windows of 30 s."""

from pathlib import Path

from bench.measurements.short_windows import ComparedClip, CorpusRecording, _row
from engines.base import AsrResult


def compared(clip: CorpusRecording, full: str, short: str) -> ComparedClip:
    results = (
        AsrResult(full, 0.9, "en"),
        AsrResult(short, 0.9, "en", short_windows=("too_long", "accepted")),
    )
    return ComparedClip(clip, results, (3.0, 1.5))


def test_a_row_has_errors_times_and_outcomes() -> None:
    clip = CorpusRecording(Path("a.flac"), "en", "turn on the lamp")
    row = _row("sentences", [compared(clip, "Turn on the lamp.", "Turn on the lamb.")])
    assert row == (
        "| sentences | 1 | 0.0 % of 4 | 25.0 % of 4 | 3.00 s | 1.50 s | 2.0 |"
        " too_long 1, accepted 1 |"
    )


def test_a_labelled_clip_counts_missing_slots() -> None:
    clip = CorpusRecording(Path("a.flac"), "en", "", ("large", "mocha"))
    row = _row("commands", [compared(clip, "A large mocha.", "A large marker.")])
    assert "| 0.0 % of 2 slots | 50.0 % of 2 slots |" in row
