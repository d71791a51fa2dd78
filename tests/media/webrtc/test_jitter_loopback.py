"""Our jitter buffer, set in a private attribute of aiortc, is really used."""

import asyncio

import pytest

from bench.voice.jitter import BEEP_EVERY_TICKS, TONES_HZ, Delays, delays, measure, table

pytestmark = pytest.mark.live

MAX_DELAY_MS = 45
"The delay is 3 ms on a quiet machine, of which 2 are resampling; aiortc's buffer takes 78 or more."


def third_quartile(values: list[float]) -> float:
    return sorted(values)[len(values) * 3 // 4]


@pytest.mark.real
@pytest.mark.alone
def test_our_buffer_has_a_low_delay_whatever_is_lost() -> None:
    found = asyncio.run(measure(depth=1))
    assert len(found.clean) >= 9
    assert len(found.after_one_loss) >= 7
    assert len(found.after_random_loss) >= 9
    assert found.mismatched == 0
    for phase in (found.clean, found.after_one_loss, found.after_random_loss):
        assert third_quartile(phase) <= MAX_DELAY_MS


def test_beeps_are_matched_by_their_tone() -> None:
    count = 30
    sent = {n: n * 0.2 for n in range(count)}
    late = [(n % len(TONES_HZ), t + 0.05) for n, t in sent.items()]
    found = delays(sent, late)
    assert found.mismatched == 0
    assert found.clean == pytest.approx([50] * 10)
    assert found.after_random_loss == pytest.approx([50] * (count - 22))
    swapped = [late[0], late[2], late[1]]
    assert delays(sent, swapped).mismatched == 1
    assert BEEP_EVERY_TICKS * 0.02 == 0.2


def test_the_table_names_phases_without_beeps() -> None:
    text = table({"ours": Delays(clean=[20, 22, 24], after_one_loss=[21])})
    assert "| ours | 22 (20-24), n=3 | 21 (21-21), n=1 | no beep | 0 |" in text
