"""The home as Home Assistant's registries describe it; malformed entries are skipped."""

from typing import Any

import pytest

from devices.home_assistant.registries import (
    HomeAssistantHouse,
    RegistrySnapshot,
    build_house,
    candidate_ids,
)


def registries(**told: Any) -> RegistrySnapshot:
    usual = dict[str, Any].fromkeys(
        ("states", "entries", "devices", "areas", "floors", "exposed"), None
    )
    return RegistrySnapshot(**{**usual, **told})


def state(entity_id: str, name: Any = "Lamp", **attributes: Any) -> dict[str, Any]:
    return {"entity_id": entity_id, "attributes": {"friendly_name": name, **attributes}}


def exposed(*ids: str) -> dict[str, Any]:
    return {"exposed_entities": {one: {"conversation": True} for one in ids}}


def test_the_area_is_that_of_the_entity_or_of_its_device() -> None:
    found = build_house(
        registries(
            states=[state("light.a", "A"), state("light.b", "B"), state("light.c", "C")],
            entries={
                "light.a": {"area_id": "kitchen", "device_id": "d1"},
                "light.b": {"area_id": None, "device_id": "d1"},
                "light.c": {"area_id": "gone"},
            },
            devices=[{"id": "d1", "area_id": "office"}],
            areas=[{"area_id": "kitchen", "name": "Kitchen"}, {"area_id": "office", "name": "Off"}],
        )
    )
    assert [one.area for one in found.entities] == ["kitchen", "office", ""]


@pytest.mark.parametrize(
    ("entry", "listed", "is_there", "is_surely_exposed"),
    [
        ({}, True, True, True),
        ({}, False, True, False),
        ({"options": {"conversation": {"should_expose": True}}}, False, True, True),
        ({"options": {"conversation": {"should_expose": False}}}, False, False, None),
        ({"hidden_by": "user"}, False, False, None),
        ({"entity_category": "config"}, False, False, None),
    ],
)
def test_only_exposed_entities_are_used(
    entry: dict[str, Any], is_surely_exposed: bool | None, *, listed: bool, is_there: bool
) -> None:
    found = build_house(
        registries(
            states=[state("light.a")],
            entries={"light.a": entry},
            exposed=exposed("light.a") if listed else exposed(),
        )
    )
    assert [one.is_surely_exposed for one in found.entities] == (
        [is_surely_exposed] if is_there else []
    )


def test_domains_hidden_by_default_must_be_listed() -> None:
    states = [state("lock.front", "Front"), state("lock.back", "Back"), state("sensor.x", "X")]
    told = registries(states=states, entries={}, exposed=exposed("lock.front"))
    assert [one.id for one in build_house(told).entities] == ["lock.front"]
    assert candidate_ids(states, exposed("lock.front")) == ["lock.front"]
    assert candidate_ids(states, None) == ["lock.front", "lock.back"]


def test_names_are_pronounceable_and_limited_in_number() -> None:
    aliases = [f"alias {number}" for number in range(30)]
    states = [state("light.a", " Big \n Lamp "), state("light.b", "x" * 81), state("light.c", 7)]
    found = build_house(
        registries(states=states, entries={"light.a": {"aliases": [*aliases, 3, ""]}})
    )
    assert [one.id for one in found.entities] == ["light.a"]
    assert found.entities[0].names[:2] == ("Big Lamp", "alias 0")
    assert len(found.entities[0].names) == 11


@pytest.mark.parametrize("odd", [None, 7, "text", [], [None, 7, {}], {"light.a": 7}, [[]]])
def test_malformed_registries_give_an_empty_home(odd: Any) -> None:
    told = dict.fromkeys(("states", "entries", "devices", "areas", "floors", "exposed"), odd)
    assert build_house(RegistrySnapshot(**told)) == HomeAssistantHouse()


@pytest.mark.parametrize("odd", [[], {}, {"a": 1}, 3])
def test_a_malformed_area_or_device_is_skipped(odd: Any) -> None:
    area, entry = {"area_id": "kitchen", "name": "Kitchen"}, {"area_id": odd, "device_id": odd}
    devices = [{"id": odd, "area_id": "kitchen"}, {"id": "d", "area_id": odd}]
    found = build_house(
        registries(
            states=[state("light.a"), state("light.b")],
            entries={"light.a": entry, "light.b": {"device_id": "d"}},
            devices=devices,
            areas=[area],
        )
    )
    assert [one.area for one in found.entities] == ["", ""]


def test_areas_and_main_names_come_first_in_the_vocabulary() -> None:
    found = build_house(
        registries(
            states=[state("sensor.t", "Sensor"), state("light.a", "Lamp")],
            entries={"light.a": {"aliases": ["Torch"]}},
            areas=[{"area_id": "k", "name": "Kitchen", "aliases": ["Galley"]}],
            floors=[{"name": "Upstairs"}],
            exposed=exposed("sensor.t", "light.a"),
        )
    )
    assert found.keywords(9) == ("Kitchen", "Lamp", "Sensor", "Upstairs", "Galley", "Torch")
    assert found.keywords(2) == ("Kitchen", "Lamp")
    area = found.area("galley")
    assert area is not None
    assert (area.spoken_name("Galley"), area.spoken_name("k")) == ("Galley", "Kitchen")
