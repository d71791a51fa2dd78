"""Willow's messages on the wire, and which bytes are refused."""

import json

import pytest

from core.errors import PayloadTooLarge
from firmware_protocol.willow import encode as out
from firmware_protocol.willow.decode import MAX_MESSAGE_BYTES, MalformedMessage, decode
from firmware_protocol.willow.encode import encode
from firmware_protocol.willow.messages import (
    ConfigMessage,
    Endpoint,
    EndpointResult,
    Notify,
    NvsMessage,
    OtaStart,
    UnknownMessage,
    WakeStart,
)
from tests.firmware_protocol.willow.vectors import FROM_DEVICE, TO_DEVICE, Heard, Told

HELLO = {"hostname": "willow-1", "hw_type": "ESP32-S3-BOX", "mac_addr": [1, 2, 3, 4, 5, 6]}


@pytest.mark.parametrize("one", FROM_DEVICE, ids=lambda one: one.origin)
def test_messages_of_devices_are_read(one: Heard) -> None:
    assert decode(one.wire) == one.message
    assert decode(one.wire.encode()) == one.message


@pytest.mark.parametrize("one", TO_DEVICE, ids=lambda one: one.origin)
def test_messages_to_devices_are_written(one: Told) -> None:
    assert encode(one.message) == one.wire


@pytest.mark.parametrize("one", FROM_DEVICE, ids=lambda one: one.origin)
def test_a_message_cut_at_any_byte_is_refused(one: Heard) -> None:
    whole = one.wire.encode()
    for cut in range(len(whole)):
        with pytest.raises(MalformedMessage):
            decode(whole[:cut])


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        ("", "not JSON"),
        ("[1]", "other JSON"),
        ("null", "other JSON"),
        ('{"a":1} {"b":2}', "not JSON"),
        ("[" * 10_000, "not JSON"),
        ('{"cmd":7}', "cmd"),
        ('{"cmd":"endpoint"}', "data"),
        ('{"cmd":"endpoint","data":{"text":7}}', "data.text"),
        ('{"cmd":"endpoint","data":{"text":"x","language":["en"]}}', "data.language"),
        ('{"wake_start":7}', "wake_start"),
        ('{"wake_start":{"wake_volume":"loud"}}', "wake_volume"),
        ('{"wake_start":{"wake_volume":true}}', "wake_volume"),
        ('{"notify_done":"7"}', "notify_done"),
        ('{"notify_done":1.5}', "notify_done"),
        ('{"notify_done":1e300}', "notify_done"),
        ('{"notify_done":true}', "notify_done"),
        ('{"hello":[]}', "hello"),
    ],
)
def test_an_unreadable_field_is_named(wire: str, says: str) -> None:
    with pytest.raises(MalformedMessage, match=says):
        decode(wire)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hostname", None),
        ("hostname", ""),
        ("hostname", "a" * 65),
        ("hostname", "willow\n! forged log line"),
        ("hostname", "../../etc"),
        ("hw_type", {"a": 1}),
        ("hw_type", "../x"),
        ("mac_addr", None),
        ("mac_addr", [1, 2, 3, 4, 5]),
        ("mac_addr", [1, 2, 3, 4, 5, 256]),
        ("mac_addr", [1, 2, 3, 4, 5, -1]),
        ("mac_addr", [True, 2, 3, 4, 5, 6]),
        ("mac_addr", "01:02:03:04:05:06"),
    ],
)
def test_a_hello_without_an_identity_is_refused(field: str, value: object) -> None:
    with pytest.raises(MalformedMessage, match=field) as error:
        decode(json.dumps({"hello": {**HELLO, field: value}}))
    assert "forged" not in str(error.value)


def test_a_message_of_ten_megabytes_is_refused_before_it_is_read() -> None:
    with pytest.raises(MalformedMessage, match="bytes, the limit"):
        decode('{"cmd":"' + "x" * 10_000_000 + '"}')
    with pytest.raises(MalformedMessage, match="bytes, the limit"):
        decode('{"cmd":"' + "é" * (MAX_MESSAGE_BYTES // 2) + '"}')


def test_an_impossible_wake_volume_is_ignored() -> None:
    assert decode('{"wake_start":{"wake_volume":-1e300}}') == WakeStart(None)


def test_a_wake_word_takes_precedence_over_other_fields() -> None:
    assert decode('{"cmd":"get_config","wake_start":{}}') == WakeStart(None)


def test_unknown_names_are_shortened() -> None:
    fields = {f"{number}{'x' * 100}": 1 for number in range(50)}
    found = decode(json.dumps(fields))
    assert isinstance(found, UnknownMessage)
    assert (len(found.names), {len(name) for name in found.names}) == (4, {32})


def test_a_transcript_is_one_line() -> None:
    assert decode('{"cmd":"endpoint","data":{"text":" a\\n b "}}') == Endpoint("a b")


@pytest.mark.parametrize("word", ["word ", "größer ", '\\quote" ', "ü", "\x07x"])
def test_a_long_text_is_cut_at_a_word_to_fit_the_firmware(word: str) -> None:
    for text, message in (
        (word * 3000, EndpointResult(True, word * 3000)),
        (word * 3000, Notify(id=2, text=word * 3000, audio_url="http://a/" + "b" * 500)),
    ):
        wire = encode(message)
        size_bytes = len(wire.encode())
        assert out.MAX_MESSAGE_BYTES - 40 <= size_bytes <= out.MAX_MESSAGE_BYTES < 4096
        fields = json.loads(wire)
        said = fields["result"]["speech"] if "result" in fields else fields["data"]["text"]
        assert said.endswith("…")
        assert out.one_line(text).startswith(said[:-1])


def test_no_character_is_cut_in_half() -> None:
    assert encode(EndpointResult(True, "a\ud800b")) == '{"result":{"ok":true,"speech":"a?b"}}'


def test_a_message_that_cannot_be_shortened_is_refused() -> None:
    too_long = "x" * out.MAX_MESSAGE_BYTES
    for message in (
        OtaStart(too_long),
        ConfigMessage({"hass_token": too_long}),
        Notify(id=2, text="Tea", audio_url=too_long),
    ):
        with pytest.raises(PayloadTooLarge):
            encode(message)


def test_secrets_are_not_shown() -> None:
    assert "horse" not in repr(NvsMessage("ws://a", "home", "horse")) + repr(
        ConfigMessage({"hass_token": "horse"})
    )
