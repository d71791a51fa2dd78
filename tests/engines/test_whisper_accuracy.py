"""Whisper's batching and padding keep the tiny model's accuracy on recorded commands."""

import csv

import pytest

from engines.base import AsrItem
from media.files import decode_file
from tests.engines.test_faster_whisper import load_nano
from tests.shared import shared_data

BATCH = 8


def distance(said: list[str], heard: list[str]) -> int:
    """Words to change, add or drop."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1]


@pytest.mark.real
@pytest.mark.parametrize("padding", ["nopad", "bucket"])
def test_recorded_commands_are_understood(padding: str) -> None:
    folder = shared_data("commands")
    with (folder / "transcripts.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    model = load_nano(padding=padding, min_confidence=0, max_batch=BATCH)
    errors = words = 0
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        clips = [decode_file(folder / row["path"]) for row in part]
        items = [AsrItem(row["path"], pcm, True) for row, pcm in zip(part, clips, strict=True)]
        for row, result in zip(part, model.decode(items), strict=True):
            errors += distance(row["transcript"].split(), result.text.split())
            words += len(row["transcript"].split())
    model.close()
    assert errors / words < 0.04
