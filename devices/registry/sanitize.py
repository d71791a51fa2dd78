"""Cleaning of the texts that devices send about themselves, before they are stored and shown."""

from dataclasses import replace

from core.errors import RequestError
from devices.fleet.directory import DeviceClaims

MAX_NAME_CHARS = 64
"Limit of a name, area, board or firmware: one line on the page."

MAX_HARDWARE_ID_CHARS = 128


def cleaned(claims: DeviceClaims) -> DeviceClaims:
    """Returns the claims with printable and short texts.

    Raises RequestError for a malformed hardware id: if it were cut, two devices could become one.
    """
    hardware_id = claims.hardware_id.strip()
    if not (0 < len(hardware_id) <= MAX_HARDWARE_ID_CHARS and hardware_id.isprintable()):
        raise RequestError(
            f"hardware_id must be 1 to {MAX_HARDWARE_ID_CHARS} printable characters",
            code="invalid_value",
            param="hardware_id",
        )
    return replace(
        claims,
        hardware_id=hardware_id,
        address=sanitize_line(claims.address),
        name=sanitize_line(claims.name),
        board=sanitize_line(claims.board),
        firmware=sanitize_line(claims.firmware),
        language=sanitize_line(claims.language),
    )


def sanitize_line(text: str) -> str:
    """Returns one line of printable characters."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * MAX_NAME_CHARS])
    return " ".join(shown.split())[:MAX_NAME_CHARS].rstrip()


def name_of(claims: DeviceClaims) -> str:
    """Returns the name of a new device until a person names it."""
    tail = claims.hardware_id.replace(":", "")[-4:]
    usual = claims.hardware_id if claims.kind == "wyoming" else tail
    return claims.name or sanitize_line(f"{claims.board or claims.kind} {usual}")
