"""Reasons why a device cannot be reached, in words that tell the operator what to do."""

from dataclasses import dataclass

from aioesphomeapi.core import (
    APIConnectionError,
    BadMACAddressAPIError,
    BadNameAPIError,
    EncryptionPlaintextAPIError,
    InvalidEncryptionKeyAPIError,
    RequiresEncryptionAPIError,
    SocketClosedAPIError,
)

SETTLE_S = 60.0
"Wait after an error that only a person can end, such as a wrong key."


@dataclass(frozen=True, slots=True)
class ConnectFailure:
    """A failed attempt to connect."""

    code: str
    message: str
    needs_person: bool = False
    "True: another attempt ends the same way until a person changes something."


UNREACHABLE = "unreachable"


def failure_of(error: APIConnectionError | OSError, *, has_key: bool) -> ConnectFailure:
    """Names the reason of an error. The library's own text is left out of keyed errors, because it
    may repeat what was configured."""
    match error:
        case RequiresEncryptionAPIError():
            return ConnectFailure(
                "key_needed",
                "it is encrypted, so its key is needed",
                needs_person=True,
            )
        case EncryptionPlaintextAPIError():
            return _not_encrypted()
        case InvalidEncryptionKeyAPIError():
            name = getattr(error, "received_name", None)
            whose = f" of {name!r}" if name else ""
            return ConnectFailure(
                "wrong_key",
                f"the key is not the one{whose}; a key is 32 bytes in Base64 (docs/esphome.md)",
                needs_person=True,
            )
        case SocketClosedAPIError() if has_key:
            return _not_encrypted()
        case BadNameAPIError() | BadMACAddressAPIError():
            return ConnectFailure("other_device", "another device has its address now")
        case _:
            return ConnectFailure(UNREACHABLE, f"it does not answer ({type(error).__name__})")


def _not_encrypted() -> ConnectFailure:
    return ConnectFailure(
        "not_encrypted",
        "it does not use its key (docs/esphome.md); a plain connection is not tried,"
        " because anybody in the network could offer one",
        needs_person=True,
    )
