"""Names and areas that WAS's page sets; they are stored with the devices."""

from collections.abc import Mapping

from core.errors import NotFound
from devices.fleet.directory import Device, DeviceDirectory
from devices.willow.wis.params import invalid

MAX_CHARS = 64
"Limit of a name, as everywhere in the registry."

NAMES = ("label", "name")
"Fields for the name: WAS's own, and ours."


async def named_device(directory: DeviceDirectory, mac: str) -> Device:
    """Returns the device with this MAC, connected or not. Raises NotFound."""
    device = await directory.find("willow", mac.lower())
    if device is None:
        raise NotFound(
            f"no device {mac[:64]!r} is known", code="device_not_found", param="mac_addr"
        )
    return device


def read_name_and_area(body: Mapping[str, object]) -> tuple[str | None, str | None]:
    """Returns name and area; None: it stays. Raises RequestError, naming the field."""
    given = [name for name in NAMES if name in body]
    name = _text(body, given[0]) if given else None
    area = _text(body, "area") if "area" in body else None
    if name is None and area is None:
        raise invalid("label", None, "label (or name), area or both")
    if name == "":
        raise invalid(given[0], name, f"1 to {MAX_CHARS} characters, not only spaces")
    return name, area


def _text(body: Mapping[str, object], field: str) -> str:
    found = body[field]
    if not isinstance(found, str) or len(found) > MAX_CHARS or not found.isprintable():
        raise invalid(field, found, f"at most {MAX_CHARS} printable characters")
    return " ".join(found.split())
