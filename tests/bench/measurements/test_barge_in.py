"""Times of barge-ins, from the server's metrics and the client's events of a turn."""

from bench.client.turn import TurnLog
from bench.measurements.barge_in import PAUSE, BargeInEvents, line, pauses_ms


def metric(total_s: float, count: int) -> dict[str, float]:
    return {f"{PAUSE}_sum": total_s, f"{PAUSE}_count": count, "earshot_sessions": 1}


def test_one_new_count_is_exact_and_two_give_their_mean() -> None:
    assert pauses_ms(metric(1.5, 30), metric(1.5, 30)) == []
    (one,) = pauses_ms(metric(1.5, 30), metric(1.5175, 31))
    assert round(one, 6) == 17.5
    assert [round(each, 6) for each in pauses_ms({}, metric(0.03, 2))] == [15, 15]


def test_a_line_has_percentiles_and_the_worst() -> None:
    values = [float(value) for value in range(1, 101)]
    assert line("to silence", values) == "to silence: p50 50.5, p95 95.0, max 100.0 ms of 100"


def test_the_first_word_of_a_barge_in_counts() -> None:
    watch, log = BargeInEvents(), TurnLog()

    def report(at: float, *, is_speech: bool, is_playing: bool = False) -> None:
        log.last_at, log.is_speech, log.is_playing = at, is_speech, is_playing
        watch.change(log, is_paced=True)

    report(1.0, is_speech=True)  # the question
    report(2.0, is_speech=False)
    report(3.0, is_speech=False, is_playing=True)
    report(4.0, is_speech=True, is_playing=True)
    report(4.5, is_speech=True, is_playing=True)
    assert (watch.answer_began.is_set(), watch.reported_at) == (True, 4.0)
    watch.begin()
    report(5.0, is_speech=True)
    assert (watch.answer_began.is_set(), watch.reported_at) == (False, None)
