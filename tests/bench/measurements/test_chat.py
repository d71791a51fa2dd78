"""The table of the chat measurement compares systems round by round."""

import pytest

from bench.client.http import Address
from bench.load import bodies
from bench.load.clients import LoadAnswer, LoadPlan, LoadReport
from bench.measurements.chat import OURS, ChatRound, rows

KIND = bodies.chat("m", prompt="Tell me a story.", max_tokens=64)


def chat_round(*, wall_s: float, used_s: float, first_ms: float, error: str = "") -> ChatRound:
    """Returns a round of two answers of 64 tokens, the second of which may have failed."""
    plan = LoadPlan(Address(), KIND, 2, 2, 1.0, is_kept=True)
    answers = [
        LoadAnswer(1000 * wall_s, first_ms=first_ms, tokens=64),
        LoadAnswer(1000 * wall_s, error, first_ms=first_ms, tokens=64),
    ]
    return ChatRound(LoadReport(plan, wall_s, answers), used_s)


def test_a_row_has_the_medians_and_the_ratio_of_each_pair_of_rounds() -> None:
    ours = [
        chat_round(wall_s=1.0, used_s=2.0, first_ms=40.0),
        chat_round(wall_s=2.0, used_s=2.0, first_ms=50.0),
        chat_round(wall_s=4.0, used_s=2.0, first_ms=60.0),
    ]
    peer = [
        chat_round(wall_s=0.5, used_s=1.0, first_ms=38.0),
        chat_round(wall_s=2.0, used_s=1.0, first_ms=46.0),
        chat_round(wall_s=8.0, used_s=1.0, first_ms=54.0),
    ]
    first, second = rows(2, {OURS: ours, "peer": peer})
    assert first == [
        *("2", OURS, "6", "0", "64.0 (32.0 to 128.0)", "64.0 (64.0 to 64.0)", "50.0", "60.0"),
        *("-", "-", "-"),
    ]
    assert second[:4] == ["2", "peer", "6", "0"]
    assert second[-3:] == ["1.000 (0.500 to 2.000)", "0.500 (0.500 to 0.500)", "4.0 (2.0 to 6.0)"]


@pytest.mark.parametrize("error", ["timeout", "500"])
def test_failed_answers_are_named_and_their_tokens_do_not_count(error: str) -> None:
    broken = chat_round(wall_s=1.0, used_s=1.0, first_ms=40.0, error=error)
    whole = chat_round(wall_s=1.0, used_s=1.0, first_ms=40.0)
    first, second = rows(2, {OURS: [broken], "peer": [whole]})
    assert first[2:5] == ["1", f"1 x {error}", "64.0 (64.0 to 64.0)"]
    assert second[-3:] == ["0.500 (0.500 to 0.500)", "0.500 (0.500 to 0.500)", "0.0 (0.0 to 0.0)"]
