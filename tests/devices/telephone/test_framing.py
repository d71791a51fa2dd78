"""AudioSocket's messages as bytes, by the tables of Asterisk's documentation."""

import pytest

from core.errors import RemoteProtocolError
from devices.telephone.audiosocket.framing import (
    MAX_PAYLOAD_BYTES,
    AudioSocketDecoder,
    AudioSocketMessage,
    HangUp,
    OtherMessage,
    encode_message,
)
from tests.devices.telephone.vectors import ALL_BYTES, VECTORS


@pytest.mark.parametrize(("wire", "message"), VECTORS)
def test_a_message_is_read_and_written(wire: str, message: AudioSocketMessage) -> None:
    assert list(AudioSocketDecoder().receive_data(bytes.fromhex(wire))) == [message]
    assert not isinstance(message, OtherMessage)
    assert encode_message(message) == bytes.fromhex(wire)


def test_a_stream_may_be_cut_anywhere() -> None:
    expected = [message for _, message in VECTORS]
    for cut in range(len(ALL_BYTES) + 1):
        decoder = AudioSocketDecoder()
        pieces = (ALL_BYTES[:cut], ALL_BYTES[cut:])
        assert [one for piece in pieces for one in decoder.receive_data(piece)] == expected
    decoder = AudioSocketDecoder()
    assert [one for byte in ALL_BYTES for one in decoder.receive_data(bytes([byte]))] == expected


def test_an_unknown_kind_is_left_out_and_the_next_message_read() -> None:
    messages = list(AudioSocketDecoder().receive_data(bytes.fromhex("02 0002 abcd 00 0000")))
    assert messages == [OtherMessage(2), HangUp()]


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        (f"10 {MAX_PAYLOAD_BYTES + 2:04x}", f"allowed: at most {MAX_PAYLOAD_BYTES}"),
        ("01 0002 abcd", "a UUID of 2 bytes; allowed: 16"),
        ("03 0001 78", "allowed: 0-9"),
        ("03 0000", "allowed: 0-9"),
        ("03 0002 3132", "allowed: 0-9"),
        ("10 0003 010203", "whole samples"),
        ("12 0002 0102", "16000 Hz .* allowed: 8000 Hz"),
    ],
)
def test_a_wrong_message_says_what_is_allowed(wire: str, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        list(AudioSocketDecoder().receive_data(bytes.fromhex(wire)))
