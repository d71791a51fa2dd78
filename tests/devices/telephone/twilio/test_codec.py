"""Messages of Twilio Media Streams, by the examples of its documentation."""

import json

import pytest

from core.errors import RemoteProtocolError
from devices.telephone.twilio.codec import (
    MAX_MESSAGE_BYTES,
    MAX_SOUND_BYTES,
    StreamMessage,
    decode_stream_message,
    encode_clear,
    encode_mark,
    encode_sound,
)
from tests.devices.telephone.twilio.vectors import MEDIA, START, VECTORS


@pytest.mark.parametrize(("text", "message"), VECTORS)
def test_a_message_is_read(text: str, message: StreamMessage) -> None:
    assert decode_stream_message(text) == message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no JSON", "no message of Media Streams"),
        ("[]", "no message of Media Streams"),
        ('{"event":"media"}', "'media' without its object"),
        ('{"event":"start"}', "'start' without its object"),
        ('{"event":"dtmf","dtmf":{"digit":"12"}}', "allowed: 0-9"),
        (MEDIA.replace("/wB/", "!!"), "Base64"),
        (MEDIA.replace("/wB/", "AAAA" * (MAX_SOUND_BYTES // 3 + 1)), "at most 8000"),
        (START.replace("8000", "16000"), "8000 Hz"),
        (START.replace("CA1", "C" * 501), "start.callSid has 501 characters"),
        (" " * (MAX_MESSAGE_BYTES + 1), "at most 32768"),
    ],
)
def test_a_wrong_message_says_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        decode_stream_message(text)


def test_messages_to_twilio_have_its_form() -> None:
    assert json.loads(encode_sound("MZ1", b"\xff\x00\x7f")) == {
        "event": "media",
        "streamSid": "MZ1",
        "media": {"payload": "/wB/"},
    }
    assert json.loads(encode_mark("MZ1", "7")) == {
        "event": "mark",
        "streamSid": "MZ1",
        "mark": {"name": "7"},
    }
    assert json.loads(encode_clear("MZ1")) == {"event": "clear", "streamSid": "MZ1"}
