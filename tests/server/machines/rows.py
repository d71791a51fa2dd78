"""Rows of servers for tests of decisions."""

from collections.abc import Sequence

from devices.registry.machines import MachineRow


def row(
    number: int,
    *,
    load: float = 0.0,
    takes_calls: bool = True,
    rooms: Sequence[str] = (),
    devices: Sequence[str] = (),
    age_s: float = 0.0,
) -> MachineRow:
    return MachineRow(
        number,
        f"http://10.0.0.{number}:8080",
        f"10.0.0.{number}:8090",
        f"{number:064x}",
        load,
        max_sessions=4,
        takes_calls=takes_calls,
        rooms=frozenset(rooms),
        devices=frozenset(devices),
        age_s=age_s,
    )
