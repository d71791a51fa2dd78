"""Binary WebSocket messages with one Opus packet each, equal in both directions.

Version 1 is the bare packet. Version 2 has a header of 16 bytes: u16 version, u16 type, u32
reserved, u32 timestamp in ms, u32 payload size. Version 3 has a header of 4 bytes: u8 type, u8
reserved, u16 payload size. All numbers are big-endian. A device reads as many bytes as the size
says, even if the message is shorter.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Literal, TypeGuard

from firmware_protocol.xiaozhi.errors import BadFrame

ProtocolVersion = Literal[1, 2, 3]
VERSIONS: tuple[ProtocolVersion, ...] = (1, 2, 3)

MAX_PAYLOAD_BYTES = 8192
"Longest payload. An Opus packet of 120 ms has at most 7662 bytes (RFC 6716), usually some 200."

MAX_FRAME_BYTES = 16 + MAX_PAYLOAD_BYTES

_V2 = Struct("!HHIII")
_V3 = Struct("!BBH")

_AUDIO, _JSON = 0, 1


@dataclass(frozen=True, slots=True)
class AudioPacket:
    """An Opus packet of sound."""

    payload: bytes
    "Opus data; 0 to 3 bytes mean silence (DTX)."
    timestamp_ms: int = 0
    "Version 2: timestamp of the sound that was being played; other versions: 0."


@dataclass(frozen=True, slots=True)
class JsonPacket:
    """A message in a binary frame; stock firmware sends none."""

    payload: bytes
    timestamp_ms: int = 0


Packet = AudioPacket | JsonPacket


def is_version(number: int) -> TypeGuard[ProtocolVersion]:
    """Returns True for a version of the protocol that is known."""
    return number in VERSIONS


def decode_frame(version: ProtocolVersion, frame: bytes) -> Packet:
    """Returns the packet in a binary frame. Raises BadFrame."""
    if version == 1:
        return AudioPacket(_sized(frame, len(frame), version))
    header = _V2 if version == 2 else _V3
    if len(frame) < header.size:
        why = f"a frame of {len(frame)} bytes is shorter than the header of protocol {version}"
        raise BadFrame("truncated", f"{why}, {header.size} bytes")
    timestamp_ms = 0
    if version == 2:
        announced, kind, _, timestamp_ms, size = _V2.unpack_from(frame)
        if announced != version:
            why = f"its first two bytes say {announced}, and the connection speaks protocol 2"
            raise BadFrame("bad_version", f"{why} (header Protocol-Version)")
    else:
        kind, _, size = _V3.unpack_from(frame)
    payload = _sized(frame[header.size :], size, version)
    if kind not in (_AUDIO, _JSON):
        raise BadFrame("bad_kind", f"type {kind}; a frame is 0 (Opus) or 1 (JSON)")
    return (AudioPacket if kind == _AUDIO else JsonPacket)(payload, timestamp_ms)


def encode_audio(version: ProtocolVersion, payload: bytes, timestamp_ms: int = 0) -> bytes:
    """Returns the binary frame for an Opus packet.

    `timestamp_ms`: used by version 2 only. Raises ValueError for more than MAX_PAYLOAD_BYTES.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(
            f"an Opus packet of {len(payload)} bytes; the limit is {MAX_PAYLOAD_BYTES}"
        )
    match version:
        case 1:
            return payload
        case 2:
            wrapped_ms = timestamp_ms & 0xFFFFFFFF
            return _V2.pack(2, _AUDIO, 0, wrapped_ms, len(payload)) + payload
        case 3:
            return _V3.pack(_AUDIO, 0, len(payload)) + payload


def _sized(payload: bytes, size: int, version: ProtocolVersion) -> bytes:
    if size > MAX_PAYLOAD_BYTES:
        raise BadFrame("too_large", f"a payload of {size} bytes; the limit is {MAX_PAYLOAD_BYTES}")
    if len(payload) == size:
        return payload
    reason: Literal["truncated", "trailing"] = "truncated" if len(payload) < size else "trailing"
    why = f"payload_size says {size} bytes, and {len(payload)} follow the header of protocol"
    raise BadFrame(reason, f"{why} {version}: is it a frame of another version?")
