"""Check-in of a board at its start: its request and the response.

The firmware copies every key of `websocket` into its flash, and hangs at a key of more than 15
characters. So the response has no keys of our own.
"""

import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256

import msgspec
from msgspec import UNSET, Struct, UnsetType

from core.errors import RequestError
from devices.fleet.directory import Device, DeviceClaims
from devices.fleet.ota import is_release, version_key

MAX_BODY_BYTES = 32 * 1024
"A board with every field and a long partition table sends 3 kB."

ACTIVATION_TIMEOUT_MS = 30_000

MAX_NAME_CHARS = 64

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_COMPARABLE = re.compile(r"[0-9]{1,6}(?![0-9])[^.]*(\.[0-9]{1,6}(?![0-9])[^.]*){0,5}")
"""Each part must begin with a number: firmware reads it with std::stoi, also in its own version,
and stops if it cannot."""
_LANGUAGE = re.compile(r"[a-z]{2,3}(?![a-z])")


class WebSocketSection(Struct, frozen=True):
    """Address and key with which the board connects."""

    url: str
    token: str = ""
    version: int = 1

    def __repr__(self) -> str:
        return f"WebSocketSection({self.url!r}, version={self.version})"


class ServerTime(Struct, frozen=True):
    """Time of this server."""

    timestamp: int
    "Milliseconds since 1970."
    timezone_offset: int
    "Offset from UTC in minutes."


class FirmwareOffer(Struct, frozen=True):
    """Firmware for the board. The board's own version means no update; a greater one is fetched
    from `url`."""

    version: str
    url: str = ""


class Activation(Struct, frozen=True):
    """Shown and spoken by the device, which then asks until it is approved."""

    message: str
    challenge: str
    "Required: without it a device shows the code and never asks."
    code: str | UnsetType = UNSET
    "Absent: the device shows no code, but still asks, and then checks in again."
    timeout_ms: int = ACTIVATION_TIMEOUT_MS


class OtaCheckReply(Struct, frozen=True):
    """Response to a check-in. Absent sections change nothing on the device.

    There is never a section `mqtt`: it would take precedence over `websocket`.
    """

    server_time: ServerTime
    websocket: WebSocketSection | UnsetType = UNSET
    firmware: FirmwareOffer | UnsetType = UNSET
    activation: Activation | UnsetType = UNSET


def hardware_id_of(headers: Mapping[str, str]) -> str:
    """Returns the MAC in `Device-Id`. Raises RequestError."""
    mac = headers.get("Device-Id", "").strip().lower()
    if not _MAC.fullmatch(mac):
        raise RequestError(
            "the header Device-Id must be the board's MAC, as a1:b2:c3:d4:e5:f6",
            code="invalid_device_id",
            param="Device-Id",
        )
    return mac


def identity_of(headers: Mapping[str, str]) -> bytes:
    """Returns the digest of the `Client-Id`. A missing one counts as empty.

    A board makes its `Client-Id` when its flash is empty, and sends it only to this server.
    """
    return sha256(headers.get("Client-Id", "").strip().encode("utf-8", "replace")).digest()


def claims_of(headers: Mapping[str, str], body: bytes, address: str) -> DeviceClaims:
    """Returns the claims of a check-in. Raises RequestError.

    A body that is no JSON object counts as empty, because some firmware sends one.
    """
    body_object = _object(body)
    application, board = _part(body_object, "application"), _part(body_object, "board")
    agent_board, _, agent_version = headers.get("User-Agent", "").partition("/")
    language = headers.get("Accept-Language", "").strip().lower()
    found = _LANGUAGE.match(language)
    return DeviceClaims(
        kind="xiaozhi",
        hardware_id=hardware_id_of(headers),
        address=address,
        name=_text(board, "name") or _plain(agent_board),
        board=_text(board, "type") or _plain(agent_board),
        firmware=_text(application, "version") or _plain(agent_version),
        language=found.group() if found else "",
        identity=identity_of(headers),
    )


def is_newer(version: str, than: str) -> bool:
    """Returns True if a release is newer than the version `than`, which may be a pre-release.

    False if the firmware on the board could not compare the two versions.
    """
    return (
        is_release(version)
        and _COMPARABLE.fullmatch(than) is not None
        and version_key(version) > version_key(than)
    )


def check_in_reply(
    device: Device,
    firmware: str,
    now: datetime,
    url: str,
    token: str,
    offered: FirmwareOffer | None = None,
) -> OtaCheckReply:
    """Builds the response for a board.

    firmware: the version that it just reported.
    token: its key, which opens nothing before its approval; empty: it gets none.
    offered: newer firmware for it.
    """
    offset = now.utcoffset()
    no_update = FirmwareOffer(firmware) if is_release(firmware) else UNSET
    return OtaCheckReply(
        ServerTime(
            round(1000 * now.timestamp()), round(offset.total_seconds() / 60) if offset else 0
        ),
        websocket=WebSocketSection(url, token) if token else UNSET,
        firmware=offered or no_update,
        activation=UNSET if device.standing == "approved" else _activation(device),
    )


def _activation(device: Device) -> Activation:
    return Activation(
        message=f"Earshot\n{device.pairing_code}".rstrip(),
        code=device.pairing_code or UNSET,
        challenge=secrets.token_hex(16),
    )


def _object(body: bytes) -> Mapping[str, object]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _part(body_object: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = body_object.get(name)
    return found if isinstance(found, dict) else {}


def _text(part: Mapping[str, object], name: str) -> str:
    found = part.get(name)
    return _plain(found) if isinstance(found, str) else ""


def _plain(text: str) -> str:
    """Returns text that may be shown and logged."""
    return "".join(char for char in text if char.isprintable()).strip()[:MAX_NAME_CHARS]
