"""Files of costs."""

from dataclasses import fields
from pathlib import Path

import pytest

from bench.simulate.costs import GPU_COSTS, TurnCosts, read_costs, write_costs
from core.errors import RequestError


def test_costs_are_read_as_they_were_written(tmp_path: Path) -> None:
    costs, file = read_costs(GPU_COSTS), tmp_path / "costs.toml"
    write_costs(file, costs, {field.name: "a test" for field in fields(TurnCosts)})
    assert read_costs(file) == costs


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[tts_ms]", "[tts]", "unknown: tts, tts_ms"),
        ("value = 96", "value = -1", "notice_ms.value must be a number, 0 or more"),
        ('source = "way out', 'where = "way out', "out_ms.source must say"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "costs.toml"
    file.write_text(GPU_COSTS.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(RequestError, match=said):
        read_costs(file)
