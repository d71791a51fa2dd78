"""Finds the devices that a call selects by name, area, domain or device class."""

from collections.abc import Mapping, Sequence

from pipeline.tools.home import Home, HomeEntity, names_in
from pipeline.tools.skills.arguments import ToolError, read_text

NAMED_AS_GROUP = ("light",)
"Kinds of which a call without name and area selects all devices in the home."

SIMILAR_CLASSES = (("door", "garage", "gate"), ("blind", "shutter", "shade"))
"Groups of device classes that share a word: a garage door is a door, and shutters are blinds."


def find_targets(
    home: Home, arguments: Mapping[str, object], language: str, kinds: Sequence[str]
) -> list[HomeEntity]:
    """Returns the devices that a call selects, at least one.

    arguments: those of the model. language: of the names. kinds: kinds that the tool can act on.
    Raises ToolError if there is no such device, or if several fit and only one can be meant.
    """
    name, domain = read_text(arguments, "name"), read_text(arguments, "domain")
    device_class = read_text(arguments, "device_class")
    area = find_area(home, read_text(arguments, "area"), language)
    is_everywhere = arguments.get("everywhere") is True
    if not (name or area or domain or device_class or is_everywhere):
        raise ToolError("one of name, area, domain and device_class is required", param="name")
    found = [entity for entity in home.entities() if not area or entity.config.area == area]
    if name:
        found = _named(found, name, language)
    if domain:
        found = [entity for entity in found if entity.config.kind == domain]
    if device_class:
        found = _of_class(found, device_class)
    if not found:
        raise _no_device(arguments)
    capable = [entity for entity in found if entity.config.kind in kinds]
    if not capable:
        raise ToolError(
            f"a {found[0].config.kind} cannot do that",
            code="not_supported",
            name=found[0].name(language),
        )
    if name:
        # "Front door" names both a door and its lock. Without a domain it means the door.
        return [entity for entity in capable if entity.config.kind != "lock"] or capable
    if area or is_everywhere:
        return capable
    return _only_one(capable, language)


def find_area(home: Home, name: str, language: str) -> str:
    """Returns the id of the area with this name or id; an empty id for an empty name.

    Raises ToolError no_such_area.
    """
    if not name:
        return ""
    wanted = name.casefold()
    for area in home.config.areas:
        if area.id == wanted or any(wanted == own for own in _all_names(area.names, language)):
            return area.id
    raise ToolError(f"there is no area {name!r}", code="no_such_area", area=name)


def describe_entity(home: Home, entity: HomeEntity, language: str) -> dict[str, object]:
    """Returns the fields of a device for a tool's result."""
    return {
        "id": entity.config.id,
        "name": entity.name(language),
        "area": entity.config.area,
        "area_name": home.area_name(entity.config.area, language),
        "kind": entity.config.kind,
        "device_class": entity.config.device_class,
        "state": entity.state,
        "attributes": dict(entity.attributes),
    }


def _named(entities: Sequence[HomeEntity], name: str, language: str) -> list[HomeEntity]:
    wanted = name.casefold()
    return [
        entity
        for entity in entities
        if entity.config.id == wanted or wanted in _all_names(entity.config.names, language)
    ]


def _of_class(entities: Sequence[HomeEntity], device_class: str) -> list[HomeEntity]:
    """Returns the devices of a class, or else those of classes that share a word with it."""
    exact = [entity for entity in entities if entity.config.device_class == device_class]
    similar = next((group for group in SIMILAR_CLASSES if device_class in group), ())
    return exact or [entity for entity in entities if entity.config.device_class in similar]


def _all_names(names: Mapping[str, tuple[str, ...]], language: str) -> set[str]:
    groups = (names_in(names, language), names.get("en", ()))
    return {name.casefold() for group in groups for name in group}


def _only_one(found: list[HomeEntity], language: str) -> list[HomeEntity]:
    if len(found) == 1 or found[0].config.kind in NAMED_AS_GROUP:
        return found
    raise ToolError(
        "more than one device fits; say which",
        code="ambiguous",
        names=[entity.name(language) for entity in found],
    )


def _no_device(arguments: Mapping[str, object]) -> ToolError:
    keys = ("name", "area", "domain", "device_class")
    given = {key: arguments[key] for key in keys if arguments.get(key)}
    return ToolError("there is no such device", code="no_such_device", **given)
