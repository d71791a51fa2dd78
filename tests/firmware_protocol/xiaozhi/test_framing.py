from hashlib import sha256

import pytest

from firmware_protocol.xiaozhi.errors import BadFrame
from firmware_protocol.xiaozhi.framing import (
    MAX_PAYLOAD_BYTES,
    VERSIONS,
    AudioPacket,
    JsonPacket,
    ProtocolVersion,
    decode_frame,
    encode_audio,
)
from tests.firmware_protocol.xiaozhi.vectors import Case, frame_of, frames, limits, named


@pytest.mark.parametrize("case", frames(good=True), ids=named)
def test_frames_agree_with_the_vectors(case: Case) -> None:
    packet, expected = decode_frame(case["version"], frame_of(case)), case["expect"]
    assert isinstance(packet, AudioPacket if expected["kind"] == "audio" else JsonPacket)
    assert packet.timestamp_ms == expected.get("timestamp_ms", 0)
    if "payload_hex" in expected:
        assert packet.payload.hex() == expected["payload_hex"]
    else:
        assert len(packet.payload) == expected["payload_bytes"]
        assert sha256(packet.payload).hexdigest() == expected["payload_sha256"]


@pytest.mark.parametrize("case", frames(good=True), ids=named)
def test_a_packet_is_written_unchanged(case: Case) -> None:
    packet = decode_frame(case["version"], frame_of(case))
    if isinstance(packet, JsonPacket) or "reserved" in case["name"]:
        return  # we write no such frame
    assert encode_audio(case["version"], packet.payload, packet.timestamp_ms) == frame_of(case)


@pytest.mark.parametrize("case", frames(good=False), ids=named)
def test_a_bad_frame_is_refused_with_the_reason(case: Case) -> None:
    with pytest.raises(BadFrame) as caught:
        decode_frame(case["version"], frame_of(case))
    assert (caught.value.reason, caught.value.code) == (case["error"], "bad_frame")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("packet", [b"", b"\x58", bytes(range(200))])
def test_a_frame_cut_at_any_byte_is_reported_as_truncated(
    version: ProtocolVersion, packet: bytes
) -> None:
    frame = encode_audio(version, packet, 123_456)
    for cut in range(len(frame)):
        with pytest.raises(BadFrame) as caught:
            decode_frame(version, frame[:cut])
        assert caught.value.reason == "truncated"
    with pytest.raises(BadFrame) as caught:
        decode_frame(version, frame + b"\0")
    assert caught.value.reason == "trailing"


@pytest.mark.parametrize(
    ("spoken", "announced", "reason"), [(2, 3, "trailing"), (3, 2, "bad_version")]
)
def test_a_frame_of_another_version_is_recognised(
    spoken: ProtocolVersion, announced: ProtocolVersion, reason: str
) -> None:
    frame = encode_audio(spoken, bytes(range(1, 100)), 60)
    with pytest.raises(BadFrame, match=f"protocol {announced}") as caught:
        decode_frame(announced, frame)
    assert caught.value.reason == reason


def test_a_timestamp_wraps_as_its_field_does() -> None:
    packet = decode_frame(2, encode_audio(2, b"ab", 2**32 + 7))
    assert packet == AudioPacket(b"ab", 7)


def test_the_limits_of_sending_and_reading_are_the_same() -> None:
    assert limits()["payload_bytes"] == MAX_PAYLOAD_BYTES
    for version in VERSIONS:
        with pytest.raises(ValueError, match="limit is 8192"):
            encode_audio(version, bytes(MAX_PAYLOAD_BYTES + 1))
