"""Which device answers a wake word that several devices heard. Time is an argument."""

import random
from collections import Counter

import pytest

from devices.fleet.arbitration import LATE_S, WINDOW_S, Arbitration, ArbitrationVerdict

AB = frozenset({"a", "b"})
ABC = frozenset({"a", "b", "c"})


def won(*devices: str) -> list[ArbitrationVerdict]:
    """Asserts that the first of them wins."""
    return [ArbitrationVerdict(device, won=device == devices[0]) for device in devices]


def test_if_the_winner_leaves_the_next_wake_word_is_answered() -> None:
    for leave in ("left", "gave_up"):
        arbitration, known = Arbitration(), {"near", "far", "third"}
        arbitration.report("hall", "near", -10.0, known, 0.0)
        arbitration.report("hall", "far", -30.0, known, 0.01)
        assert arbitration.tick(0.2) == [
            ArbitrationVerdict("near", won=True),
            ArbitrationVerdict("far", won=False),
        ]
        arbitration.give_up("hall", "far")  # who lost has nothing to give up
        assert arbitration.report("hall", "third", -9.0, known, 0.3) == [
            ArbitrationVerdict("third", won=False)
        ]
        if leave == "left":
            assert arbitration.remove("hall", "near", {"far", "third"}) == []
        else:
            arbitration.give_up("hall", "near")
        assert arbitration.report("hall", "far", -30.0, {"far"}, 0.4) == [
            ArbitrationVerdict("far", won=True)
        ]


def test_the_only_device_answers_at_once() -> None:
    assert Arbitration().report("kitchen", "a", -20, frozenset({"a"}), 0.0) == won("a")


def test_the_decision_is_made_when_all_devices_have_reported() -> None:
    race = Arbitration()
    assert race.report("kitchen", "a", -20, AB, 0.0) == []
    assert race.report("kitchen", "b", -10, AB, 0.03) == won("b", "a")
    assert race.due() is None


def test_silent_devices_are_awaited_for_at_most_200_ms() -> None:
    race = Arbitration()
    race.report("kitchen", "a", -20, ABC, 5.0)
    race.report("kitchen", "b", -10, ABC, 5.1)
    assert race.due() == pytest.approx(5.2)
    assert race.tick(5.199) == []
    assert race.tick(5.2) == won("b", "a")
    assert (race.tick(5.2), race.due()) == ([], None)


def test_a_report_after_the_decision_loses_however_loud() -> None:
    race = Arbitration()
    race.report("kitchen", "a", -40, AB, 0.0)
    race.tick(WINDOW_S)
    assert race.report("kitchen", "b", 0, AB, 0.3) == [ArbitrationVerdict("b", won=False)]
    assert race.report("kitchen", "c", 0, AB, LATE_S - 0.01) == [ArbitrationVerdict("c", won=False)]
    assert race.report("kitchen", "b", -20, frozenset({"b"}), LATE_S) == won("b")


def test_the_next_wake_word_makes_a_decision_that_is_due() -> None:
    race = Arbitration()
    race.report("kitchen", "a", -40, AB, 0.0)
    late = [*won("a"), ArbitrationVerdict("b", won=False)]
    assert race.report("kitchen", "b", 0, AB, WINDOW_S) == late


def test_a_second_report_of_a_device_is_another_wake_word() -> None:
    race = Arbitration()
    race.report("kitchen", "a", -20, AB, 0.0)
    assert race.report("kitchen", "a", -20, AB, 0.1) == won("a")
    assert race.report("kitchen", "b", -30, AB, 0.15) == won("a", "b")
    assert race.report("kitchen", "b", -30, AB, 0.2) == []


def test_two_groups_decide_independently() -> None:
    race = Arbitration()
    race.report("kitchen", "a", -20, AB, 0.0)
    race.report("attic", "x", -40, frozenset("xy"), 0.05)
    assert race.report("attic", "y", -50, frozenset("xy"), 0.06) == won("x", "y")
    assert race.due() == pytest.approx(WINDOW_S)
    assert race.tick(WINDOW_S) == won("a")


@pytest.mark.parametrize("first", ["a", "b"])
def test_ties_are_broken_by_name(first: str) -> None:
    for level_db in (-20.0, None):
        race = Arbitration()
        second = next(iter(AB - {first}))
        race.report("kitchen", first, level_db, AB, 0.0)
        assert race.report("kitchen", second, level_db, AB, 0.01) == won("a", "b")


def test_a_report_without_a_level_loses() -> None:
    race = Arbitration()
    race.report("kitchen", "a", None, AB, 0.0)
    assert race.report("kitchen", "b", -90, AB, 0.1) == won("b", "a")


def test_a_device_whose_gain_is_higher_does_not_always_win() -> None:
    """`a` hears everything 6 dB louder. Half the time the user is 2 dB nearer to `b`."""
    race = Arbitration()
    for turn in range(40):
        nearer_db = 2 if turn % 2 else -2
        race.report("kitchen", "a", -20 + 6 - nearer_db / 2, AB, 10.0 * turn)
        race.report("kitchen", "b", -20 + nearer_db / 2, AB, 10.0 * turn + 0.05)
    assert race.correction_db("a") == pytest.approx(5, abs=1)
    assert race.correction_db("b") == pytest.approx(-5, abs=1)
    race.report("kitchen", "a", -15, AB, 1000.0)
    assert race.report("kitchen", "b", -19, AB, 1000.1) == won("b", "a")


def test_one_wake_word_hardly_changes_the_mean_level() -> None:
    race = Arbitration()
    race.report("kitchen", "a", -10, AB, 0.0)
    race.report("kitchen", "b", -30, AB, 0.1)
    assert 0 < race.correction_db("a") < 2
    race.forget("a")
    assert race.correction_db("a") == 0


def test_the_level_of_a_broken_microphone_is_ignored() -> None:
    race = Arbitration()
    for turn in range(50):
        race.report("kitchen", "a", -300.0, AB, 10.0 * turn)
        race.report("kitchen", "b", -20.0, AB, 10.0 * turn + 0.1)
    race.report("kitchen", "a", -100, AB, 1000.0)
    assert race.report("kitchen", "b", -20, AB, 1000.1) == won("b", "a")


def test_an_impossible_level_does_not_change_the_means_of_others() -> None:
    race = Arbitration()
    for turn in range(40):
        race.report("kitchen", "a", -14.0, AB, 10.0 * turn)
        race.report("kitchen", "b", -20.0, AB, 10.0 * turn + 0.1)
    race.report("attic", "x", 9e5, frozenset("x"), 500.0)
    race.report("kitchen", "a", -15.0, AB, 1000.0)
    assert race.report("kitchen", "b", -18.0, AB, 1000.1) == won("b", "a")


def test_a_device_that_leaves_is_not_awaited_and_does_not_win() -> None:
    race = Arbitration()
    race.report("kitchen", "a", -10, ABC, 0.0)
    race.report("kitchen", "b", -20, ABC, 0.05)
    assert race.remove("kitchen", "a", frozenset("bc")) == []
    assert race.remove("kitchen", "c", frozenset("b")) == won("b")
    assert race.remove("kitchen", "b", frozenset()) == []
    race.report("attic", "x", -10, frozenset("xy"), 1.0)
    assert race.remove("attic", "x", frozenset("y")) == []
    assert race.due() is None


def _run(lottery: random.Random, race: Arbitration, began: float) -> Counter[tuple[str, bool]]:
    """Ten devices in two rooms hear one wake word each; returns verdicts by room."""
    rooms = {f"device {number}": f"room {number % 2}" for number in range(10)}
    members = {
        room: frozenset(name for name, its in rooms.items() if its == room)
        for room in ("room 0", "room 1")
    }
    calls = [
        (began + lottery.choice((0.0, 0.02, 0.15, 0.4)) * lottery.random(), one) for one in rooms
    ]
    told: list[tuple[float, ArbitrationVerdict]] = []
    for now, device in sorted(calls):
        while (due := race.due()) is not None and due <= now:
            told += [(due, verdict) for verdict in race.tick(due)]
        level_db = lottery.choice((None, -20.0, lottery.uniform(-60, 0)))
        room = rooms[device]
        told += [(now, one) for one in race.report(room, device, level_db, members[room], now)]
    while (due := race.due()) is not None:
        told += [(due, verdict) for verdict in race.tick(due)]
    assert Counter(verdict.device for _, verdict in told) == Counter(list(rooms))
    firsts = {room: min(now for now, one in calls if rooms[one] == room) for room in members}
    for now, verdict in told:
        if verdict.won:
            assert now <= firsts[rooms[verdict.device]] + WINDOW_S + 1e-9
    return Counter((rooms[verdict.device], verdict.won) for _, verdict in told)


def test_ten_devices_in_two_rooms_always_answer_once_each_room() -> None:
    lottery = random.Random("arbitration")
    race = Arbitration()
    for turn in range(200):
        counts = _run(lottery, race, began=10.0 * turn)
        assert (counts["room 0", True], counts["room 1", True]) == (1, 1)
        assert (counts["room 0", False], counts["room 1", False]) == (4, 4)


def test_finished_decisions_are_forgotten() -> None:
    race = Arbitration()
    for number in range(100):
        race.report(f"room {number}", "a", -20, frozenset("a"), 0.0)
    race.tick(LATE_S)
    assert not race._contests
