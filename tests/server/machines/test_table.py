"""Which server of several machines answers."""

from core.conversation.ids import mark_ids, new_id
from devices.registry.machines import MachineRow, MachineSnapshot
from server.machines.table import ENTRY_LIFE_S, MachineTable
from tests.server.machines.rows import row


def table(*rows: MachineRow, own: int = 1, read_s: float = 100.0) -> MachineTable:
    made = MachineTable(own)
    made.update(MachineSnapshot(rows, 5000.0, read_s))
    return made


def number_of(found: MachineRow | None) -> int | None:
    return None if found is None else found.number


def test_a_call_goes_to_a_much_less_busy_server_only() -> None:
    known = table(row(1), row(2, load=0.3), row(3, load=0.2))
    assert known.lighter(0.44, 100.0) is None
    assert number_of(known.lighter(0.45, 100.0)) == 3


def test_a_full_or_draining_server_gives_its_calls_to_whoever_has_room() -> None:
    known = table(row(1), row(2, load=0.9), row(3, load=1.0))
    assert number_of(known.lighter(1.0, 100.0)) == 2
    assert number_of(known.lighter(0.0, 100.0, drains=True)) == 2
    assert table(row(1), row(2, load=1.0)).lighter(1.0, 100.0) is None


def test_servers_that_stop_or_are_silent_or_cannot_be_reached_get_no_call() -> None:
    stops, silent, fresh = row(2, takes_calls=False), row(3, age_s=ENTRY_LIFE_S + 1), row(4)
    known = table(row(1), stops, silent, fresh)
    assert number_of(known.lighter(0.9, 100.0)) == 4
    known.note_away(fresh, 100.0)
    assert known.lighter(0.9, 105.0) is None
    assert number_of(known.lighter(0.9, 100.0 + ENTRY_LIFE_S)) == 4


def test_the_table_grows_old_while_the_database_is_away() -> None:
    known = table(row(1), row(2, age_s=4.0))
    assert number_of(known.lighter(0.9, 106.0)) == 2
    assert known.lighter(0.9, 106.1) is None
    assert number_of(known.find(2)) == 2  # what belongs to it still finds it


def test_calls_that_were_given_count_until_the_next_heartbeat() -> None:
    other = row(2)
    known = table(row(1), other)
    given = 0
    while known.lighter(0.75, 100.0) is not None:
        known.count_given(other)
        given += 1
    assert given == 3  # 0.75 - 3 / 4 < 0.25
    known.update(MachineSnapshot([row(1), row(2, load=0.5)], 5002.0, 102.0))
    assert number_of(known.lighter(0.75, 102.0)) == 2


def test_an_id_names_its_server() -> None:
    known = table(row(1), row(72))
    try:
        mark_ids(0, 72)
        there = new_id("rtc")
        mark_ids(3, 1)
        here = new_id("whip")
        mark_ids(0, 5)
        gone = new_id("conv")
    finally:
        mark_ids(0)
    assert number_of(known.named(["v1", there])) == 72
    assert known.named([here, gone, "rtc_12x" + 24 * "0", "", "kitchen"]) is None


def test_a_device_is_found_where_it_is_connected() -> None:
    known = table(row(1, devices=["dev_1"]), row(2, devices=["dev_2"]))
    assert number_of(known.with_device("dev_2")) == 2
    assert known.with_device("dev_1") is None


def test_all_servers_name_the_same_owner_of_a_room() -> None:
    rows = [row(1), row(2), row(3)]
    tables = [table(*rows, own=number) for number in (1, 2, 3)]
    owners = set()
    for room in map(str, range(30)):
        named = {number_of(one.room_owner(room)) or one.own_number for one in tables}
        assert len(named) == 1
        owners |= named
    assert owners == {1, 2, 3}


def test_another_server_moves_only_its_own_rooms() -> None:
    before, after = table(row(1), row(2)), table(row(1), row(2), row(3))
    for room in map(str, range(30)):
        owner = number_of(after.room_owner(room))
        assert owner in (3, number_of(before.room_owner(room)))


def test_a_server_alone_owns_every_room() -> None:
    alone = MachineTable(1)
    assert alone.room_owner("kitchen") is None
    assert alone.shared_time_s(3.0) is None


def test_rooms_are_where_devices_are() -> None:
    known = table(row(1, rooms=["k"]), row(2, rooms=["k"]), row(3))
    assert known.machines_in("k") == {2}


def test_the_time_is_that_of_the_database() -> None:
    assert table(row(1), read_s=100.0).shared_time_s(103.5) == 5003.5
