"""Messages of AudioSocket and their bytes, by the tables of Asterisk's documentation."""

from uuid import UUID

from devices.telephone.audiosocket.framing import (
    AudioSocketMessage,
    CallId,
    Dtmf,
    HangUp,
    PeerError,
    Slin,
)

CALL = UUID("40325ec2-5efd-4bd3-805f-53576e581d13")
VECTORS: list[tuple[str, AudioSocketMessage]] = [
    ("00 0000", HangUp()),
    ("01 0010 40325ec25efd4bd3805f53576e581d13", CallId(CALL)),
    ("03 0001 35", Dtmf("5")),
    ("03 0001 23", Dtmf("#")),
    ("10 0004 01000280", Slin(b"\x01\x00\x02\x80")),
    ("10 0000", Slin(b"")),
    ("ff 0001 02", PeerError(b"\x02")),
    ("ff 0000", PeerError(b"")),
]
ALL_BYTES = b"".join(bytes.fromhex(wire) for wire, _ in VECTORS)
