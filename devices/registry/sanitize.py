"""Cleaning of the texts that devices send about themselves, before they are stored and shown."""

from dataclasses import replace

from core.errors import RequestError
from devices.directory import DeviceClaims

MAX_NAME_CHARS = 64
"Limit of a name, area, board or firmware: one line on the page."

MAX_HARDWARE_ID_CHARS = 128


def cleaned(contact: DeviceClaims) -> DeviceClaims:
    """Returns the claims with printable and short texts.

    Raises RequestError for a malformed hardware id: if it were cut, two devices could become one.
    """
    hardware_id = contact.hardware_id.strip()
    if not (0 < len(hardware_id) <= MAX_HARDWARE_ID_CHARS and hardware_id.isprintable()):
        raise RequestError(
            f"hardware_id must be 1 to {MAX_HARDWARE_ID_CHARS} printable characters",
            code="invalid_value",
            param="hardware_id",
        )
    return replace(
        contact,
        hardware_id=hardware_id,
        address=short(contact.address),
        name=short(contact.name),
        board=short(contact.board),
        firmware=short(contact.firmware),
        language=short(contact.language),
    )


def short(text: str) -> str:
    """Returns one line of printable characters."""
    shown = "".join(one if one.isprintable() else " " for one in text[: 4 * MAX_NAME_CHARS])
    return " ".join(shown.split())[:MAX_NAME_CHARS].rstrip()


def name_of(contact: DeviceClaims) -> str:
    """Returns the name of a new device until a person names it."""
    tail = contact.hardware_id.replace(":", "")[-4:]
    usual = contact.hardware_id if contact.kind == "wyoming" else tail
    return contact.name or short(f"{contact.board or contact.kind} {usual}")
