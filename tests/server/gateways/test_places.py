"""Places that several gateways count together."""

import os

import pytest

from core.access.limits import CapacityLimit
from core.access.named_key import CALLER_KEY, KeySessions, NamedKey
from core.errors import OverloadedError
from server.gateways.places import PlaceFile, SharedPlaces


def members(file: PlaceFile, *gateways: int) -> list[SharedPlaces]:
    """Returns the places as each gateway sees them."""
    return [SharedPlaces(os.dup(file.file), file.give_row(number)) for number in gateways]


def test_a_limit_holds_for_all_gateways_together() -> None:
    one, two = (
        CapacityLimit(2, "{limit} calls", name="calls", places=places)
        for places in members(PlaceFile(2), 1, 2)
    )
    with one.take():
        with two.take():
            assert (one.taken, two.taken, one.taken_by_all, two.taken_by_all) == (1, 1, 2, 2)
            for limit in (one, two):
                with pytest.raises(OverloadedError, match="2 calls"), limit.take():
                    pass
        with one.take():
            assert two.taken_by_all == 2
    assert one.taken_by_all == 0


def test_the_places_of_a_killed_gateway_are_free_again() -> None:
    file = PlaceFile(2)
    one, two = members(file, 1, 2)
    for name in ("calls", "calls", "sessions"):
        one.take(name)
    two.take("calls")
    assert two.count("calls") == 3
    file.free_row(1)
    assert (two.count("calls"), two.count("sessions")) == (1, 0)
    (three,) = members(file, 3)  # it has the row of the first
    three.give_back("sessions", three.take("sessions"))
    assert three.count("calls") == 1


def test_each_slot_may_have_an_old_and_a_new_gateway() -> None:
    file = PlaceFile(2)
    assert len({file.give_row(number) for number in range(1, 6)}) == 5


def test_cells_are_used_again() -> None:
    (one,) = members(PlaceFile(1), 1)
    first, second = one.take("calls"), one.take("calls")
    one.give_back("calls", first)
    assert one.take("sessions") == first
    assert (one.count("calls"), one.count("sessions")) == (1, 1)
    one.give_back("calls", second)
    assert one.count("calls") == 0


def test_a_named_key_has_its_sessions_at_all_gateways() -> None:
    one, two = (KeySessions(places) for places in members(PlaceFile(2), 1, 2))
    key = NamedKey("key_1", "anna", ("talk",), max_sessions=1)
    token = CALLER_KEY.set(key)
    try:
        with one.take():
            assert two.count_of(key) == 1
            with pytest.raises(OverloadedError, match="1 of 1 sessions"), two.take():
                pass
        with two.take():
            assert one.count_of(key) == 1
    finally:
        CALLER_KEY.reset(token)
