"""Messages of AudioSocket and their bytes: kind (u8), length (u16, big-endian), payload. Pure.

The protocol: https://docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket/
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from core.errors import RemoteProtocolError
from devices.telephone.digits import DIGITS

RATE_HZ = 8_000
"Sample rate of sound of kind SLIN."

MAX_PAYLOAD_BYTES = 8_192
"Limit for one message: half a second of sound. Asterisk sends 20 ms, which are 320 bytes."

MAX_ERROR_BYTES = 64
"Limit for the code of an error. Asterisk's codes have one byte; others may be longer."

_HANG_UP, _UUID, _DTMF, _SLIN, _ERROR = 0x00, 0x01, 0x03, 0x10, 0xFF
_OTHER_RATES_HZ = {
    0x11: 12_000,
    0x12: 16_000,
    0x13: 24_000,
    0x14: 32_000,
    0x15: 44_100,
    0x16: 48_000,
    0x17: 96_000,
    0x18: 192_000,
}
"Kinds of sound at rates that only Asterisk's channel driver sends, when its dialplan asks for it."

_HEADER_BYTES = 3
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True)
class HangUp:
    """The call is over."""


@dataclass(frozen=True, slots=True)
class CallId:
    """First message of a call: the UUID that the dialplan gave it."""

    uuid: UUID


@dataclass(frozen=True, slots=True)
class Dtmf:
    """The caller pressed a key."""

    digit: str


@dataclass(frozen=True, slots=True)
class Slin:
    """Sound: s16le, mono, RATE_HZ."""

    pcm: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PeerError:
    """Asterisk could not go on. Its codes: 1 the caller hung up, 2 a frame was not passed on, 4 no
    memory."""

    code: bytes


@dataclass(frozen=True, slots=True)
class OtherMessage:
    """A message of a kind that this version does not know; it is left out."""

    kind: int


AudioSocketMessage = HangUp | CallId | Dtmf | Slin | PeerError | OtherMessage


class AudioSocketDecoder:
    """Decodes the bytes of one connection, however they are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> Iterator[AudioSocketMessage]:
        """Yields the messages that `data` completes. Raises RemoteProtocolError; then the stream
        cannot be read any further."""
        self._buffer += data
        while len(self._buffer) >= _HEADER_BYTES:
            kind, length = self._buffer[0], int.from_bytes(self._buffer[1:3], "big")
            if length > MAX_PAYLOAD_BYTES:
                raise RemoteProtocolError(
                    f"a message of kind {kind:#04x} with {length} bytes;"
                    f" allowed: at most {MAX_PAYLOAD_BYTES}"
                )
            end = _HEADER_BYTES + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER_BYTES:end])
            del self._buffer[:end]
            yield _message(kind, payload)


def encode_message(message: HangUp | CallId | Dtmf | Slin | PeerError) -> bytes:
    """Returns the bytes of a message."""
    match message:
        case HangUp():
            return _framed(_HANG_UP, b"")
        case CallId(uuid=uuid):
            return _framed(_UUID, uuid.bytes)
        case Dtmf(digit=digit):
            return _framed(_DTMF, digit.encode())
        case Slin(pcm=pcm):
            return _framed(_SLIN, pcm)
        case PeerError(code=code):
            return _framed(_ERROR, code)


def _message(kind: int, payload: bytes) -> AudioSocketMessage:
    """Reads one message. Raises RemoteProtocolError."""
    match kind:
        case 0x00:
            return HangUp()
        case 0x01:
            if len(payload) != _UUID_BYTES:
                raise RemoteProtocolError(f"a UUID of {len(payload)} bytes; allowed: {_UUID_BYTES}")
            return CallId(UUID(bytes=payload))
        case 0x03:
            digit = payload.decode("ascii", "replace").upper()
            if digit not in DIGITS:
                raise RemoteProtocolError("a DTMF digit that no telephone has; allowed: 0-9*#A-D")
            return Dtmf(digit)
        case 0x10:
            if len(payload) % 2:
                raise RemoteProtocolError(
                    f"sound of {len(payload)} bytes; allowed: whole samples of 2 bytes"
                )
            return Slin(payload)
        case 0xFF:
            return PeerError(payload[:MAX_ERROR_BYTES])
        case _ if kind in _OTHER_RATES_HZ:
            raise RemoteProtocolError(
                f"sound at {_OTHER_RATES_HZ[kind]} Hz (kind {kind:#04x}); allowed: {RATE_HZ} Hz"
                f" ({_SLIN:#04x}). Use the dialplan's AudioSocket(), or the codec slin"
            )
        case _:
            return OtherMessage(kind)


def _framed(kind: int, payload: bytes) -> bytes:
    return bytes((kind,)) + len(payload).to_bytes(2, "big") + payload
