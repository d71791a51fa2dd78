"""Which device answers a wake word that several devices heard. Time is an argument."""

import random
from collections import Counter

import pytest

from devices.fleet.arbitration import (
    LATE_S,
    WINDOW_S,
    Arbitration,
    ArbitrationVerdict,
    LevelSource,
    WakeLevel,
)

AB = frozenset({"a", "b"})
ABC = frozenset({"a", "b", "c"})


def won(*devices: str) -> list[ArbitrationVerdict]:
    """Asserts that the first of them wins."""
    return [ArbitrationVerdict(device, won=device == devices[0]) for device in devices]


def _level(level_db: float | None) -> WakeLevel | None:
    return None if level_db is None else WakeLevel(level_db)


def test_if_the_winner_leaves_the_next_wake_word_is_answered() -> None:
    for leave in ("left", "gave_up"):
        arbitration, known = Arbitration(), {"near", "far", "third"}
        arbitration.report("hall", "near", WakeLevel(-10.0), known, 0.0)
        arbitration.report("hall", "far", WakeLevel(-30.0), known, 0.01)
        assert arbitration.tick(0.2) == [
            ArbitrationVerdict("near", won=True),
            ArbitrationVerdict("far", won=False),
        ]
        arbitration.give_up("far")  # who lost has nothing to give up
        assert arbitration.report("hall", "third", WakeLevel(-9.0), known, 0.3) == [
            ArbitrationVerdict("third", won=False)
        ]
        if leave == "left":
            assert arbitration.remove("near") == []
        else:
            arbitration.give_up("near")
        assert arbitration.report("hall", "far", WakeLevel(-30.0), {"far"}, 0.4) == [
            ArbitrationVerdict("far", won=True)
        ]


def test_the_only_device_answers_at_once() -> None:
    assert Arbitration().report("kitchen", "a", WakeLevel(-20), frozenset({"a"}), 0.0) == won("a")


def test_the_decision_is_made_when_all_devices_have_reported() -> None:
    race = Arbitration()
    assert race.report("kitchen", "a", WakeLevel(-20), AB, 0.0) == []
    assert race.report("kitchen", "b", WakeLevel(-10), AB, 0.03) == won("b", "a")
    assert race.due() is None


def test_silent_devices_are_awaited_for_at_most_200_ms() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-20), ABC, 5.0)
    race.report("kitchen", "b", WakeLevel(-10), ABC, 5.1)
    assert race.due() == pytest.approx(5.2)
    assert race.tick(5.199) == []
    assert race.tick(5.2) == won("b", "a")
    assert (race.tick(5.2), race.due()) == ([], None)


def test_a_report_after_the_decision_loses_however_loud() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-40), AB, 0.0)
    race.tick(WINDOW_S)
    assert race.report("kitchen", "b", WakeLevel(0), AB, 0.3) == [
        ArbitrationVerdict("b", won=False)
    ]
    assert race.report("kitchen", "c", WakeLevel(0), AB, LATE_S - 0.01) == [
        ArbitrationVerdict("c", won=False)
    ]
    assert race.report("kitchen", "b", WakeLevel(-20), frozenset({"b"}), LATE_S) == won("b")


def test_the_next_wake_word_makes_a_decision_that_is_due() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-40), AB, 0.0)
    late = [*won("a"), ArbitrationVerdict("b", won=False)]
    assert race.report("kitchen", "b", WakeLevel(0), AB, WINDOW_S) == late


def test_a_second_report_of_a_device_is_another_wake_word() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-20), AB, 0.0)
    assert race.report("kitchen", "a", WakeLevel(-20), AB, 0.1) == won("a")
    assert race.report("kitchen", "b", WakeLevel(-30), AB, 0.15) == won("a", "b")
    assert race.report("kitchen", "b", WakeLevel(-30), AB, 0.2) == []


def test_two_groups_decide_independently() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-20), AB, 0.0)
    race.report("attic", "x", WakeLevel(-40), frozenset("xy"), 0.05)
    assert race.report("attic", "y", WakeLevel(-50), frozenset("xy"), 0.06) == won("x", "y")
    assert race.due() == pytest.approx(WINDOW_S)
    assert race.tick(WINDOW_S) == won("a")


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_equal_devices_the_first_wins(first: str) -> None:
    for level_db in (-20.0, None):
        race = Arbitration()
        second = next(iter(AB - {first}))
        race.report("kitchen", first, _level(level_db), AB, 0.0)
        assert race.report("kitchen", second, _level(level_db), AB, 0.01) == won(first, second)


def test_a_report_without_a_level_loses() -> None:
    race = Arbitration()
    race.report("kitchen", "a", None, AB, 0.0)
    assert race.report("kitchen", "b", WakeLevel(-90), AB, 0.1) == won("b", "a")


def test_a_device_whose_gain_is_higher_does_not_always_win() -> None:
    """`a` hears everything 6 dB louder. Half the time the user is 2 dB nearer to `b`."""
    race = Arbitration()
    for turn in range(40):
        nearer_db = 2 if turn % 2 else -2
        race.report("kitchen", "a", WakeLevel(-20 + 6 - nearer_db / 2), AB, 10.0 * turn)
        race.report("kitchen", "b", WakeLevel(-20 + nearer_db / 2), AB, 10.0 * turn + 0.05)
    assert race.correction_db("a") == pytest.approx(5, abs=1)
    assert race.correction_db("b") == pytest.approx(-5, abs=1)
    race.report("kitchen", "a", WakeLevel(-15), AB, 1000.0)
    assert race.report("kitchen", "b", WakeLevel(-19), AB, 1000.1) == won("b", "a")


def test_one_wake_word_hardly_changes_the_mean_level() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-10), AB, 0.0)
    race.report("kitchen", "b", WakeLevel(-30), AB, 0.1)
    assert 0 < race.correction_db("a") < 2
    race.forget("a")
    assert race.correction_db("a") == 0


def test_the_level_of_a_broken_microphone_is_ignored() -> None:
    race = Arbitration()
    for turn in range(50):
        race.report("kitchen", "a", WakeLevel(-300.0), AB, 10.0 * turn)
        race.report("kitchen", "b", WakeLevel(-20.0), AB, 10.0 * turn + 0.1)
    race.report("kitchen", "a", WakeLevel(-100), AB, 1000.0)
    assert race.report("kitchen", "b", WakeLevel(-20), AB, 1000.1) == won("b", "a")


def test_an_impossible_level_does_not_change_the_means_of_others() -> None:
    race = Arbitration()
    for turn in range(40):
        race.report("kitchen", "a", WakeLevel(-14.0), AB, 10.0 * turn)
        race.report("kitchen", "b", WakeLevel(-20.0), AB, 10.0 * turn + 0.1)
    race.report("attic", "x", WakeLevel(9e5), frozenset("x"), 500.0)
    race.report("kitchen", "a", WakeLevel(-15.0), AB, 1000.0)
    assert race.report("kitchen", "b", WakeLevel(-18.0), AB, 1000.1) == won("b", "a")


def test_a_device_that_leaves_is_not_awaited_and_does_not_win() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-10), ABC, 0.0)
    race.report("kitchen", "b", WakeLevel(-20), ABC, 0.05)
    assert race.remove("a") == []
    assert race.remove("c") == won("b")
    assert race.remove("b") == []
    race.report("attic", "x", WakeLevel(-10), frozenset("xy"), 1.0)
    assert race.remove("x") == []
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
        told += [
            (now, one) for one in race.report(room, device, _level(level_db), members[room], now)
        ]
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
        race.report(f"room {number}", "a", WakeLevel(-20), frozenset("a"), 0.0)
    race.tick(LATE_S)
    assert not race._contests


def test_a_level_that_is_measured_is_awaited_for_at_most_200_ms() -> None:
    race = Arbitration()
    race.report("kitchen", "a", None, AB, 0.0, is_measuring=True)
    assert race.report("kitchen", "b", WakeLevel(-30), AB, 0.02) == []
    half = WakeLevel(-50, "first_audio")
    assert race.measure("kitchen", "a", half, is_complete=False) == []
    assert race.measure("kitchen", "b", half, is_complete=True) == []  # it has a level
    assert {one.device for one in race.tick(WINDOW_S)} == {"a", "b"}
    assert race.measure("kitchen", "a", half, is_complete=True) == []


def test_measured_levels_decide_as_soon_as_all_are_there() -> None:
    race = Arbitration()
    for device in ("a", "b"):
        assert race.report("kitchen", device, None, AB, 0.0, is_measuring=True) == []
    quiet, loud = WakeLevel(-40, "first_audio"), WakeLevel(-20, "first_audio")
    assert race.measure("kitchen", "a", quiet, is_complete=True) == []
    assert race.measure("kitchen", "b", loud, is_complete=True) == won("b", "a")


def test_the_only_device_is_not_measured() -> None:
    race = Arbitration()
    assert race.report("kitchen", "a", None, {"a"}, 0.0, is_measuring=True) == won("a")


@pytest.mark.parametrize("source", ["wake_word", "first_audio"])
def test_levels_that_are_measured_in_different_ways_are_compared_by_their_means(
    source: LevelSource,
) -> None:
    """`a` reports the level of the word itself, `b` is 30 dB quieter because of how it is measured.
    Half the time the user is 3 dB nearer to `b`."""
    race = Arbitration()
    answers = Counter[str]()
    for turn in range(60):
        nearer_db = 3 if turn % 2 else -3
        race.report("kitchen", "a", WakeLevel(-20 - nearer_db), AB, 10.0 * turn)
        level = WakeLevel(-50 + nearer_db, source)
        verdicts = race.report("kitchen", "b", level, AB, 10.0 * turn + 0.05)
        if turn >= 20:
            assert verdicts[0].device == ("b" if turn % 2 else "a")
            answers[verdicts[0].device] += 1
    assert answers == {"a": 20, "b": 20}


def test_a_device_in_its_conversation_silences_the_others() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-20), ABC, 0.0)
    assert race.claim("kitchen", "b", 0.1) == [ArbitrationVerdict("a", won=False)]
    assert race.report("kitchen", "c", WakeLevel(0), ABC, 0.15) == [
        ArbitrationVerdict("c", won=False)
    ]
    race.report("kitchen", "a", WakeLevel(-20), ABC, LATE_S + 1)
    race.tick(LATE_S + 1 + WINDOW_S)
    assert race.claim("kitchen", "b", LATE_S + 1.3) == []  # `a` answers already


def test_a_winner_whose_command_comes_over_another_connection_does_not_give_up() -> None:
    race = Arbitration()
    race.report("kitchen", "a", WakeLevel(-20), {"a"}, 0.0)
    assert race.remove("a", gives_up=False) == []
    assert race.report("kitchen", "b", WakeLevel(0), {"b"}, 0.5) == [
        ArbitrationVerdict("b", won=False)
    ]


def test_a_claim_makes_a_decision_that_is_due() -> None:
    for late_s in (WINDOW_S, LATE_S):
        race = Arbitration()
        race.report("kitchen", "a", WakeLevel(-20), ABC, 0.0)
        assert race.claim("kitchen", "b", late_s) == won("a")
