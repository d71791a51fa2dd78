import pytest

from firmware_protocol.xiaozhi.pacing import PacketPacer, PacketPacerSettings


def paced(packets: int, start: float = 5.0, late: float = 0.0) -> list[float]:
    """Returns the time of each packet after `tts start` if all packets are ready at once."""
    pacer, now, times = PacketPacer(), start, []
    pacer.start(now)
    for _ in range(packets):
        now = max(now, pacer.due_at() + late)
        pacer.sent(now)
        times.append(now - start)
    return times


def test_a_few_packets_are_sent_at_once_then_one_every_60_ms() -> None:
    assert paced(8) == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.16, 0.22, 0.28, 0.34])


def test_the_schedule_does_not_drift() -> None:
    """Each packet is sent a little late, and the last one no later than the second."""
    on_time, late = paced(1000), paced(1000, late=0.004)
    assert late[-1] - on_time[-1] < 0.009


def test_at_most_four_packets_wait_on_the_device() -> None:
    pacer, now = PacketPacer(), 0.0
    pacer.start(now)
    for _ in range(100):
        now = max(now, pacer.due_at())
        pacer.sent(now)
        assert pacer.queued_ms(now) <= 4 * 60 + 1e-6
    assert pacer.queued_ms(now + 10) == 0


def test_the_schedule_restarts_after_a_gap() -> None:
    pacer = PacketPacer()
    pacer.start(0)
    pacer.sent(0.1)
    pacer.sent(3.0)  # the voice had stalled
    assert pacer.queued_ms(3.0) == pytest.approx(60)
    assert pacer.due_at() <= 3.0
    assert pacer.finished_at() == pytest.approx(3.16)


def test_the_end_is_sent_after_all_packets_have_played() -> None:
    pacer = PacketPacer()
    pacer.start(1.0)
    assert pacer.finished_at() == pytest.approx(1.2)  # nothing was said
    for _ in range(4):
        pacer.sent(1.1)
    assert pacer.finished_at() == pytest.approx(1.1 + 0.24 + 0.1)


@pytest.mark.parametrize("ahead", [0, 21])
def test_no_setting_overflows_the_queue_of_a_device(ahead: int) -> None:
    with pytest.raises(ValueError, match="40 packets"):
        PacketPacerSettings(ahead=ahead)
