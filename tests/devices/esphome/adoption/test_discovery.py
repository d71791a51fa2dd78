"""Announcements of satellites become an address by MAC; what nobody can use is dropped."""

import pytest

from devices.esphome.adoption.discovery import MAX_FOUND, SERVICE, FoundSatellites

KITCHEN = f"kitchen.{SERVICE}"
MAC = {"mac": "AABBCCDDEEFF"}


def test_an_announcement_is_kept_by_its_mac() -> None:
    found = FoundSatellites()
    texts = {"mac": "AA:bb:cc:dd:ee:ff", "friendly_name": "Kit\x1bchen", "api_encryption": "Noise"}
    found.note(KITCHEN, ["fe80::1", "192.168.1.40"], 6053, texts)
    (one,) = found.online()
    assert (one.hardware_id, one.name, one.needs_key) == ("aa:bb:cc:dd:ee:ff", "Kitchen", True)
    assert (one.host, one.port) == ("192.168.1.40", 6053)


def test_a_satellite_that_left_is_not_offered_and_its_address_stays() -> None:
    found = FoundSatellites()
    found.note(KITCHEN, ["192.168.1.40"], 6053, MAC)
    change = found.changed()
    found.gone(KITCHEN)
    found.gone(f"another.{SERVICE}")
    assert change.is_set()
    assert found.online() == ()
    known = found.find("aa:bb:cc:dd:ee:ff")
    assert known is not None
    assert (known.name, known.host) == ("kitchen", "192.168.1.40")


@pytest.mark.parametrize(
    ("addresses", "port", "texts"),
    [
        ([], 6053, MAC),
        (["10.0.0.1"], 0, MAC),
        (["10.0.0.1"], 6053, {}),
        (["10.0.0.1"], 1, {"mac": "z" * 12}),
    ],
)
def test_an_announcement_without_address_or_mac_is_dropped(
    addresses: list[str], port: int, texts: dict[str, str]
) -> None:
    found = FoundSatellites()
    found.note(KITCHEN, addresses, port, texts)
    assert found.online() == ()


def test_a_flood_of_announcements_fills_no_memory() -> None:
    found = FoundSatellites()
    for number in range(MAX_FOUND + 10):
        found.note(f"{number}.{SERVICE}", ["10.0.0.1"], 6053, {"mac": f"{number:012x}"})
    assert len(found.online()) == MAX_FOUND
